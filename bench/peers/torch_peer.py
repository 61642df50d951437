"""Runs a peer: one process per worker (worker.py), found by a file, heard by a file."""
import os
import sys
from collections.abc import Callable

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
    "GLOO_SOCKET_IFNAME": "lo",
    "DS_ACCELERATOR": "cpu",
}


def run_peer(configuration: Configuration, case: Case, *, iterations: int, left_out: int, initial: str, folder: str,
             timeout_seconds: float, watch: Callable[[list[int]], None] | None = None) -> RunReport:
    """`folder`: empty or with the files of an earlier run, which are replaced."""
    spec = RunSpec(wrapping=configuration.wrapping, case=case, iterations=iterations, left_out=left_out, initial=initial,
                   store=os.path.join(folder, "store"), report=os.path.join(folder, "report.json"))
    for leftover in (spec.store, spec.report):
        if os.path.exists(leftover):
            os.remove(leftover)
    spec_path = os.path.join(folder, "spec.json")
    write_json(spec_path, spec)
    environment = _ENVIRONMENT | (_JEMALLOC if configuration.jemalloc else {})
    commands = []
    for worker in range(case.workers):
        # DeepSpeed reads these, though it is handed a process group that is already there.
        own = {"RANK": str(worker), "LOCAL_RANK": str(worker), "WORLD_SIZE": str(case.workers)}
        commands.append(Command(f"{configuration.name} worker {worker} ({case.name})",
                                [sys.executable, "-m", "peers.worker", spec_path, str(worker)], environment | own,
                                os.path.join(folder, f"worker{worker}.log")))
    run_group(commands, timeout_seconds, watch)
    return read_report(spec.report)
