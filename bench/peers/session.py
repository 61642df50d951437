"""One run of the benchmark: losses first, then rounds of timing, then memory.

    session = Session(Settings(…), folder)
    result = session.run_case(CASES["8x512"])
    slopes = session.measure_slopes()
"""
import os
import statistics
from dataclasses import dataclass

from ring_run import say

from peers.cases import MEMORY_CASES, Case
from peers.configurations import CONFIGURATIONS, Configuration
from peers.losses import ITERATIONS, check_losses
from peers.memory import PeakWatch
from peers.results import CaseResult, MemorySlope, memory_slope, rotated
from peers.ring import dump_initial, forecast_bytes, run_ring
from peers.spec import LEFT_OUT, RunReport
from peers.torch_peer import run_peer

_MEMORY_ITERATIONS = 10
_MEMORY_RUNS = 3  # of each model of a slope: an allocator's peak depends on what meets what


@dataclass(frozen=True)
class Settings:
    program: str              # ringzero
    names: list[str]          # configurations
    rounds: int
    iterations: int | None    # measured in each run; None: as the case says
    memory: bool
    timeout_seconds: float    # of one run


class Session:
    """`folder`: for what passes between processes; several hundred MiB of initial parameters among it."""

    def __init__(self, settings: Settings, folder: str) -> None:
        self._settings = settings
        self._folder = folder

    def run_case(self, case: Case) -> CaseResult:
        initial = self._dump(case)
        losses = self._losses(case, initial)
        worst = check_losses(losses)
        say(f"{case.name}: the first losses of all agree (greatest relative difference {worst:.1g})")
        iterations = self._settings.iterations or case.iterations
        rounds = [self._round(case, initial, losses, iterations, number) for number in range(self._settings.rounds)]
        pss = {name: self._peak_mib(name, case, initial) for name in self._settings.names} if self._settings.memory else {}
        os.remove(initial)
        return CaseResult(case, iterations, losses, worst, rounds, pss)

    def measure_slopes(self) -> dict[str, MemorySlope]:
        if not self._settings.memory:
            return {}
        points: dict[str, list[tuple[int, float]]] = {name: [] for name in self._settings.names}
        forecasts: dict[str, list[int]] = {}
        for case in MEMORY_CASES:
            initial = self._dump(case)
            for name in self._settings.names:
                if CONFIGURATIONS[name].is_ring:
                    forecasts.setdefault(name, []).append(self._forecast(name, case))
                points[name].append((case.shape.parameters, self._median_peak_mib(name, case, initial)))
            os.remove(initial)
        return {name: memory_slope(of_name, forecasts.get(name)) for name, of_name in points.items()}

    def _dump(self, case: Case) -> str:
        path = os.path.join(self._folder, f"{case.name}.safetensors")
        say(f"{case.name}: initial parameters")
        dump_initial(self._settings.program, case, path, folder=self._folder,
                     timeout_seconds=self._settings.timeout_seconds)
        return path

    def _run(self, configuration: Configuration, case: Case, initial: str, iterations: int, left_out: int,
             watch: PeakWatch | None = None) -> RunReport:
        """`iterations`: all of them. RingZero itself leaves out the first three where there are more."""
        sample = watch.sample if watch else None
        if configuration.is_ring:
            return run_ring(self._settings.program, configuration, case, iterations=iterations, folder=self._folder,
                            timeout_seconds=self._settings.timeout_seconds, watch=sample)
        return run_peer(configuration, case, iterations=iterations, left_out=left_out, initial=initial,
                        folder=self._folder, timeout_seconds=self._settings.timeout_seconds, watch=sample)

    def _losses(self, case: Case, initial: str) -> dict[str, list[float]]:
        """Of the first iterations: all of them for those that must train as dp does, else the first."""
        losses = {}
        for name in self._settings.names:
            configuration = CONFIGURATIONS[name]
            if configuration.losses == "none":
                continue
            say(f"{case.name}: first losses of {name}")
            count = ITERATIONS if configuration.losses == "dp" else 1
            if configuration.is_ring:  # its summary tells the first and the last one
                runs = [self._run(configuration, case, initial, n, 0) for n in range(1, count + 1)]
                losses[name] = [run.losses[-1] for run in runs]
            else:
                losses[name] = self._run(configuration, case, initial, count, 0).losses
        return losses

    def _round(self, case: Case, initial: str, losses: dict[str, list[float]], iterations: int,
               number: int) -> dict[str, RunReport]:
        reports = {}
        for name in rotated(self._settings.names, number):
            say(f"{case.name}: round {number + 1} of {self._settings.rounds}: {name}")
            report = self._run(CONFIGURATIONS[name], case, initial, LEFT_OUT + iterations, LEFT_OUT)
            if name in losses:  # what is timed is what was compared
                check_losses({f"{name}, compared": losses[name][:1], f"{name}, timed": report.losses[:1]})
            reports[name] = report
        return reports

    def _forecast(self, name: str, case: Case) -> int:
        return forecast_bytes(self._settings.program, CONFIGURATIONS[name], case, folder=self._folder,
                              timeout_seconds=self._settings.timeout_seconds)

    def _median_peak_mib(self, name: str, case: Case, initial: str) -> float:
        return statistics.median(self._peak_mib(name, case, initial) for _ in range(_MEMORY_RUNS))

    def _peak_mib(self, name: str, case: Case, initial: str) -> float:
        say(f"{case.name}: memory of {name}")
        watch = PeakWatch()
        self._run(CONFIGURATIONS[name], case, initial, _MEMORY_ITERATIONS, 0, watch)
        return watch.peak_mib
