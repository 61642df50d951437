"""The command `./rz bench memory`: the fit certificate of `ringzero plan` beside what a run takes, measured from outside.

Measured: the sum of all processes' proportional set sizes, launcher included, at its highest; they stand still for each look.
"""
import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass

import charts
from memory.cases import NAMES, RULES, configuration
from memory.certificate import Certificate, certificate_in
from peers.memory import PeakWatch
from peers.processes import Command, run_group
from ring_run import BenchError, bench_parser, run_command, say, write_page

_MIB = 1 << 20
_BOUND = 0.05


@dataclass(frozen=True)
class Case:
    model: str
    transport: str
    workers: int
    rule: str
    zero_stage: int = 3

    def __str__(self) -> str:
        stage = "" if self.zero_stage == 3 else f" ZeRO-{self.zero_stage}"
        return f"{self.model} {self.transport} N={self.workers} {self.rule}{stage}"


@dataclass(frozen=True)
class Result:
    case: Case
    predicted: Certificate
    measured_mib: float

    @property
    def predicted_mib(self) -> float:
        return self.predicted.peak / _MIB

    @property
    def ratio(self) -> float:
        return self.predicted_mib / self.measured_mib


def _parse(words: list[str]) -> argparse.Namespace:
    parser = bench_parser("memory", __doc__)
    parser.add_argument("--models", nargs="+", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--workers", nargs="+", type=int, default=[2, 4], metavar="N")
    parser.add_argument("--transports", nargs="+", choices=("shm", "ucx"), default=["shm", "ucx"],
                        help="ucx: cdp_v2 alone [both]")
    parser.add_argument("--stages", nargs="+", type=int, choices=range(4), default=[0, 1, 2, 3],
                        help="of ZeRO; those below 3: the largest number of workers and the first rule, over shm [all]")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--timeout", type=float, default=900, metavar="SECONDS", help="of one run [900]")
    return parser.parse_args(words)


def _measure(options: argparse.Namespace, case: Case) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        config, log = os.path.join(folder, "config.json"), os.path.join(folder, "log")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(configuration(**asdict(case), iterations=options.iterations), file)
        run_group([Command(f"plan of {case}", [options.program, "plan", config], {}, log)], options.timeout)
        with open(log, encoding="utf-8") as file:
            predicted = certificate_in(file.read())
        watch = PeakWatch()
        run_group([Command(str(case), [options.program, "train", config], {}, log)], options.timeout, watch.sample)
        return Result(case, predicted, watch.peak_mib)


def _row(result: Result) -> str:
    case = result.case
    return (f"| {NAMES[case.model]} | {case.transport} | {case.workers} | {case.rule} | {case.zero_stage} | "
            f"{result.predicted_mib:.0f} | {result.measured_mib:.0f} | {result.ratio:.3f} |")


def _categories(results: list[Result]) -> list[str]:
    names = list(results[0].predicted.categories)
    lines = ["| MiB | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for result in results:
        cells = " | ".join(f"{result.predicted.categories[name] / _MIB:.1f}" for name in names)
        lines.append(f"| {result.case} | {cells} |")
    return lines


def _bar(result: Result) -> charts.Bar:
    """The predicted categories, and a mark at what was measured."""
    parts = {name: value / _MIB for name, value in result.predicted.categories.items() if name != "never together"}
    apart = -result.predicted.categories.get("never together", 0) / _MIB
    if "activations" in parts:  # the bar ends at the peak
        parts["activations"] = max(0, parts["activations"] - apart)
    return charts.Bar(str(result.case), parts, f"{result.measured_mib:.0f} ({result.ratio:.3f})", mark=result.measured_mib)


def _furthest(results: list[Result]) -> Result:
    return max(results, key=lambda result: abs(result.ratio - 1))


def _verdict(results: list[Result]) -> str:
    worst = _furthest(results)
    bound = f"wanted: within {_BOUND:.0%}." if worst.case.transport == "shm" else \
        "how many received copies are alive at once is a matter of timing, so this is an estimate."
    return f"Furthest off over {worst.case.transport}: {worst.ratio:.3f} ({worst.case}); {bound}\n"


def _cases(options: argparse.Namespace) -> list[Case]:
    cases = []
    if "shm" in options.transports:
        if 3 in options.stages:
            cases += [Case(model, "shm", workers, rule) for model in options.models for workers in options.workers
                      for rule in options.rules]
        cases += [Case(model, "shm", max(options.workers), options.rules[0], stage) for model in options.models
                  for stage in options.stages if stage < 3]
    if "ucx" in options.transports:
        cases += [Case(model, "ucx", workers, "cdp_v2") for model in options.models for workers in options.workers]
    return cases


def _bench(options: argparse.Namespace, command: str) -> str:
    results = []
    for case in _cases(options):
        results.append(_measure(options, case))
        say(_row(results[-1]))
    shared = [result for result in results if result.case.transport == "shm"]
    received = [result for result in results if result.case.transport != "shm"]
    document = ["# Memory: predicted and measured", "",
                f"`{command}` made this. Predicted: the certificate's peak of the host, by `ringzero plan` ([memory.md](../memory.md)). "
                "Measured: proportional set sizes of all processes of the run, added up, at their highest, in "
                f"{options.iterations} iterations.", "",
                "| model | transport | workers | rule | ZeRO stage | predicted, MiB | measured, MiB | predicted / measured |",
                "| --- | --- | --- | --- | --- | --- | --- | --- |", *map(_row, results), "",
                *map(_verdict, filter(None, (shared, received))), "", "![predicted and measured](memory.svg)", "", "Predicted, by category:", "",
                *_categories(results), ""]
    charts.write(os.path.join(options.out, "memory.svg"), "Predicted by category, and measured (black mark)", [
        charts.Panel("", "MiB of the host", bars=[_bar(result) for result in results])])
    page = write_page(options.out, "memory.md", document)
    worst = _furthest(shared) if shared else None
    if worst is not None and abs(worst.ratio - 1) > _BOUND:
        raise BenchError(f"wanted a prediction within {_BOUND:.0%}, found {worst.ratio:.3f} ({_row(worst)}); "
                         f"the table is in {options.out}")
    return page


if __name__ == "__main__":
    sys.exit(run_command("memory", _parse, _bench, sys.argv[1:]))
