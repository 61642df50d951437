"""Runs a peer: one process per worker (worker.py), found by a file, heard by a file."""
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from peers.cases import Case
from peers.configurations import Configuration
from peers.processes import Command, run_group
from peers.spec import RunReport, RunSpec, read_report, write_json

# What integrations/cli/main.cc tells jemalloc.
_JEMALLOC = {
    "LD_PRELOAD": "libjemalloc.so.2",
    "MALLOC_CONF": "thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:1",
}
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "DS_ACCELERATOR": "cpu",
}


@dataclass(frozen=True)
class Place:
    """Where a worker runs: what its command begins with there, and the network device that gloo takes."""
    enter: list[str]
    interface: str


_HERE = Place([], "lo")


def run_peer(configuration: Configuration, case: Case, *, iterations: int, left_out: int, initial: str, folder: str,
             timeout_seconds: float, watch: Callable[[list[int]], None] | None = None,
             places: list[Place] | None = None) -> RunReport:
    """`folder`: empty or with the files of an earlier run, which are replaced. `places`: one per worker; else all are here."""
    spec = RunSpec(wrapping=configuration.wrapping, case=case, iterations=iterations, left_out=left_out, initial=initial,
                   store=os.path.join(folder, "store"), report=os.path.join(folder, "report.json"))
    for leftover in (spec.store, spec.report):
        if os.path.exists(leftover):
            os.remove(leftover)
    spec_path = os.path.join(folder, "spec.json")
    write_json(spec_path, spec)
    environment = _ENVIRONMENT | (_JEMALLOC if configuration.jemalloc else {})
    commands = []
    for worker, place in enumerate(places or [_HERE] * case.workers):
        # DeepSpeed reads the first three, though it is handed a process group that is already there.
        own = {"RANK": str(worker), "LOCAL_RANK": str(worker), "WORLD_SIZE": str(case.workers),
               "GLOO_SOCKET_IFNAME": place.interface}
        commands.append(Command(f"{configuration.name} worker {worker} ({case.name})",
                                [*place.enter, sys.executable, "-m", "peers.worker", spec_path, str(worker)], environment | own,
                                os.path.join(folder, f"worker{worker}.log")))
    run_group(commands, timeout_seconds, watch)
    return read_report(spec.report)
