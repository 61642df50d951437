"""One run on hosts of their own: N workers, one per host, RingZero over UCX or a peer over gloo.

    report = Runner(Settings(…), folder).run("cdp_v1", Link(delay_ms=5, gbit=10), iterations=30)
"""
import json
import os
from dataclasses import dataclass

from hosts import Hosts, Link
from hosts.crew import torchrun_environment
from hosts.network import INTERFACE
from peers.cases import Case, Shape
from peers.configurations import CONFIGURATIONS, Configuration
from peers.processes import Command, run_group
from peers.ring import dump_initial, report_of
from peers.spec import LEFT_OUT, RunReport
from peers.torch_peer import Place, run_peer

# Enough computing to be worth a network: what is exchanged in a step takes less time on the line than the step.
CASE = Case("latency", Shape(layers=8, dim=128, sequence=128), micro_batch=4, iterations=20)
FSDP2 = "fsdp2+jemalloc"  # RingZero has this allocator too
NAMES = ("dp", "cdp_v1", "cdp_v2", FSDP2)


@dataclass(frozen=True)
class Settings:
    program: str  # ringzero
    timeout_seconds: float


class Runner:
    """`folder`: for what passes between processes."""

    def __init__(self, settings: Settings, folder: str, case: Case = CASE) -> None:
        self._settings, self._folder, self._case = settings, folder, case
        self._initial = self._path("initial.safetensors")
        dump_initial(settings.program, case, self._initial, folder=folder, timeout_seconds=settings.timeout_seconds)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def run(self, name: str, link: Link, iterations: int) -> RunReport:
        """`iterations`: measured; others come before them."""
        configuration = CONFIGURATIONS[name]
        with Hosts(self._case.workers, link) as hosts:
            if configuration.is_ring:
                return self._ring(configuration, hosts, LEFT_OUT + iterations)
            places = [Place(host.enter, INTERFACE) for host in hosts]
            return run_peer(configuration, self._case, iterations=LEFT_OUT + iterations, left_out=LEFT_OUT,
                            initial=self._initial, folder=self._folder, timeout_seconds=self._settings.timeout_seconds,
                            places=places)

    def _ring(self, configuration: Configuration, hosts: Hosts, iterations: int) -> RunReport:
        config, summary = self._path("config.json"), self._path("summary.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(self._case.configuration(iterations, **configuration.cyclic | {"transport": "ucx"}), file, indent=1)
        if os.path.exists(summary):
            os.remove(summary)
        run_group([Command(f"{configuration.name} worker {worker}",
                           [*host.enter, self._settings.program, "train", config, "--summary", summary],
                           torchrun_environment(hosts, worker), self._path(f"worker{worker}.log"))
                   for worker, host in enumerate(hosts)], self._settings.timeout_seconds)
        with open(summary, encoding="utf-8") as file:
            return report_of(json.load(file), self._case)
