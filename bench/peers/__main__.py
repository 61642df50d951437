"""Trains the same GPT with RingZero and with its peers, interleaved, and prints one table per case.

The command: `./rz bench peers`. Exit codes: 0 done, 1 it failed, 2 bad arguments.
"""
import argparse
import dataclasses
import os
import statistics
import tempfile

import charts
from peers import results
from peers.cases import CASES, CONFIGURATIONS, MEMORY_CASES, SMALL_CASES, Case
from peers.processes import PeakWatch
from peers.results import CaseResult, MemorySlope, check_losses, memory_slope
from peers.runs import LEFT_OUT, Runner, RunReport
from ring_run import (Options, bench_parser, describe_machine, main, positive, say, take_turns,
                      write_json)

_ALL_CASES = CASES | SMALL_CASES
_LOSSES = 3  # iterations whose losses are compared before anything is timed
_MEMORY_ITERATIONS = 10
_MEMORY_RUNS = 3  # of each model of a slope: an allocator's peak depends on what meets what


def _list_of(known: dict):
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(known)}")
        return [name for name in known if name in names]
    return parse


def parser() -> argparse.ArgumentParser:
    made = bench_parser("peers", __doc__, rounds=3)
    made.add_argument("--case", type=_list_of(_ALL_CASES), default=list(CASES), metavar="A,B",
                      help=f"of {', '.join(CASES)} [all of these], {', '.join(SMALL_CASES)}")
    made.add_argument("--steps", type=positive, metavar="S",
                      help="measured in each run [as the case says]")
    made.add_argument("--peers", type=_list_of(CONFIGURATIONS), default=list(CONFIGURATIONS),
                      metavar="A,B", help=f"what runs, of {', '.join(CONFIGURATIONS)} [all]")
    made.add_argument("--no-memory", action="store_true",
                      help="leave out the passes that measure memory")
    made.add_argument("--timeout", type=positive, default=1800, metavar="SECONDS",
                      help="of one run [1800]")
    return made


class Session:
    """The order of things: for each case losses first, then rounds of timing, then memory; the
    slopes of memory at the end. `folder`: for what passes between processes; several hundred MiB of
    initial parameters among it."""

    def __init__(self, options: Options, folder: str) -> None:
        self._options = options
        self._runner = Runner(options.program, folder, options.timeout)

    def run_case(self, case: Case) -> CaseResult:
        self._dump(case)
        peers = self._options.peers
        losses = {name: self._losses(case, name) for name in peers
                  if CONFIGURATIONS[name].losses != "none"}
        worst = check_losses(losses)
        say(f"{case.name}: the first losses of all agree (greatest relative difference "
            f"{worst:.1g})")
        iterations = self._options.steps or case.iterations

        def one(name: str) -> RunReport:
            report = self._run(case, name, LEFT_OUT + iterations, LEFT_OUT)
            if name in losses:  # what is timed is what was compared
                check_losses({f"{name}, compared": losses[name][:1],
                              f"{name}, timed": report.losses[:1]})
            return report

        rounds = take_turns(peers, self._options.rounds, one)
        pss = {}
        if not self._options.no_memory:
            pss = {name: self._peak_mib(case, name) for name in peers}
        return CaseResult(case, iterations, losses, worst, rounds, pss)

    def measure_slopes(self) -> dict[str, MemorySlope]:
        if self._options.no_memory:
            return {}
        points: dict[str, list[tuple[int, float]]] = {name: [] for name in self._options.peers}
        forecasts: dict[str, list[int]] = {}
        for case in MEMORY_CASES:
            self._dump(case)
            for name, found in points.items():
                if CONFIGURATIONS[name].is_ring:
                    forecast = self._runner.forecast_bytes(CONFIGURATIONS[name], case)
                    forecasts.setdefault(name, []).append(forecast)
                peak = statistics.median(self._peak_mib(case, name) for _ in range(_MEMORY_RUNS))
                found.append((case.shape.parameters, peak))
        return {name: memory_slope(found, forecasts.get(name)) for name, found in points.items()}

    def _dump(self, case: Case) -> None:
        say(f"{case.name}: initial parameters")
        self._runner.dump_initial(case)

    def _run(self, case: Case, name: str, iterations: int, left_out: int = 0,
             watch: PeakWatch | None = None) -> RunReport:
        return self._runner.run(CONFIGURATIONS[name], case, iterations=iterations,
                                left_out=left_out, watch=watch.sample if watch else None)

    def _losses(self, case: Case, name: str) -> list[float]:
        """Of the first iterations: all of them for those that must train as dp does, else the
        first."""
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


def bench(options: Options, command: str) -> list[str]:
    about = describe_machine()
    with tempfile.TemporaryDirectory(prefix="ringzero-peers-") as folder:
        session = Session(options, folder)
        found = [session.run_case(_ALL_CASES[name]) for name in options.case]
        slopes = session.measure_slopes()
    for result in found:
        name = result.case.name
        charts.write(os.path.join(options.out, f"peers-{name}.svg"),
                     f"{name}: {results.describe(result.case)}",
                     results.panels(results.make_rows(result, slopes)))
    write_json({"command": command, "machine": about,
                "cases": [dataclasses.asdict(result) for result in found],
                "memory": {name: dataclasses.asdict(slope) for name, slope in slopes.items()}},
               options.out, "peers.json")
    return results.page(command, about, found, slopes)


if __name__ == "__main__":
    main(parser(), bench)
