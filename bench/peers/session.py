"""The order of things: losses first, then rounds of timing, then memory.

    session = Session(options, folder)    # options: of the command line
    result = session.run_case(CASES["8x512"])
    slopes = session.measure_slopes()
"""
import argparse
import os
import statistics

from peers.cases import CONFIGURATIONS, MEMORY_CASES, Case
from peers.processes import PeakWatch
from peers.results import CaseResult, MemorySlope, check_losses, memory_slope
from peers.runs import LEFT_OUT, Runner, RunReport
from ring_run import say, take_turns

_LOSSES = 3  # iterations whose losses are compared before anything is timed
_MEMORY_ITERATIONS = 10
_MEMORY_RUNS = 3  # of each model of a slope: an allocator's peak depends on what meets what


class Session:
    """`folder`: for what passes between processes; several hundred MiB of initial parameters among it."""

    def __init__(self, options: argparse.Namespace, folder: str) -> None:
        self._options = options
        self._runner = Runner(options.program, folder, options.timeout)
        self._initial = os.path.join(folder, "initial.safetensors")

    def run_case(self, case: Case) -> CaseResult:
        self._dump(case)
        losses = {name: self._losses(case, name) for name in self._options.peers if CONFIGURATIONS[name].losses != "none"}
        worst = check_losses(losses)
        say(f"{case.name}: the first losses of all agree (greatest relative difference {worst:.1g})")
        iterations = self._options.steps or case.iterations

        def one(name: str) -> RunReport:
            report = self._run(case, name, LEFT_OUT + iterations, LEFT_OUT)
            if name in losses:  # what is timed is what was compared
                check_losses({f"{name}, compared": losses[name][:1], f"{name}, timed": report.losses[:1]})
            return report

        rounds = take_turns(self._options.peers, self._options.rounds, one)
        pss = {} if self._options.no_memory else {name: self._peak_mib(case, name) for name in self._options.peers}
        return CaseResult(case, iterations, losses, worst, rounds, pss)

    def measure_slopes(self) -> dict[str, MemorySlope]:
        if self._options.no_memory:
            return {}
        points: dict[str, list[tuple[int, float]]] = {name: [] for name in self._options.peers}
        forecasts: dict[str, list[int]] = {}
        for case in MEMORY_CASES:
            self._dump(case)
            for name in self._options.peers:
                if CONFIGURATIONS[name].is_ring:
                    forecasts.setdefault(name, []).append(self._runner.forecast_bytes(CONFIGURATIONS[name], case))
                peak = statistics.median(self._peak_mib(case, name) for _ in range(_MEMORY_RUNS))
                points[name].append((case.shape.parameters, peak))
        return {name: memory_slope(of_name, forecasts.get(name)) for name, of_name in points.items()}

    def _dump(self, case: Case) -> None:
        say(f"{case.name}: initial parameters")
        self._runner.dump_initial(case, self._initial)

    def _run(self, case: Case, name: str, iterations: int, left_out: int = 0, watch: PeakWatch | None = None) -> RunReport:
        return self._runner.run(CONFIGURATIONS[name], case, self._initial, iterations=iterations, left_out=left_out,
                                watch=watch.sample if watch else None)

    def _losses(self, case: Case, name: str) -> list[float]:
        """Of the first iterations: all of them for those that must train as dp does, else the first."""
        say(f"{case.name}: first losses of {name}")
        count = _LOSSES if CONFIGURATIONS[name].losses == "dp" else 1
        if CONFIGURATIONS[name].is_ring:  # its summary tells the first and the last one
            return [self._run(case, name, n).losses[-1] for n in range(1, count + 1)]
        return self._run(case, name, count).losses

    def _peak_mib(self, case: Case, name: str) -> float:
        say(f"{case.name}: memory of {name}")
        watch = PeakWatch()
        self._run(case, name, _MEMORY_ITERATIONS, watch=watch)
        return watch.peak_mib
