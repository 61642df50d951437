"""The command `./rz bench memory`: the fit certificate of `ringzero plan` beside what a run takes,
measured from outside.

Measured: the sum of all processes' proportional set sizes, launcher included, at its highest; they
stand still for each look.
"""
import os
import re
import tempfile
from dataclasses import dataclass

import charts
from peers.processes import Command, PeakWatch, run_group
from ring_run import (PAPER, BenchError, Options, bench_parser, main, positive, run, say, table,
                      write_json, write_page)

_BOUND = 0.05
_ADAMW = {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}}
# Models of 11 to 26 million parameters, with their batches.
_MODELS = {
    "gpt": {"model": {"type": "gpt", "layers": 8, "dim": 512, "heads": 8, "vocab": 256, "seq": 128},
            "data": {"type": "random", "samples": 4096},
            "train_micro_batch_size_per_gpu": 4},
    "resnet": {"model": {"type": "resnet", "depth": 18},
               "data": {"type": "random", "samples": 4096, "input": [3, 32, 32], "classes": 10},
               "train_micro_batch_size_per_gpu": 8},
    "mlp": {"model": {"type": "mlp", "hidden": [1024] * 20},
            "data": {"type": "random", "samples": 4096, "input": [1, 28, 28], "classes": 10},
            "train_micro_batch_size_per_gpu": 64},
}
NAMES = {"gpt": "GPT, 8 layers of 512", "resnet": "ResNet-18", "mlp": "MLP, 20 layers of 1024"}
RULES = ("dp", "cdp_v1", "cdp_v2")


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

    def configuration(self, iterations: int) -> dict:
        """For `ringzero train`."""
        return {**_MODELS[self.model], "gradient_accumulation_steps": 1, "gradient_clipping": 0,
                "optimizer": _ADAMW, "iterations": iterations, "evaluation": {"every": 0},
                "seed": 1, "zero_optimization": {"stage": self.zero_stage},
                "cyclic": {"rule": self.rule, **PAPER, "workers": self.workers,
                           "transport": self.transport, "threads": 1}}


@dataclass(frozen=True)
class Result:
    case: Case
    # Predicted MiB of the host, each at its most; what is never together is negative.
    categories: dict[str, float]
    predicted: float              # MiB, at the peak
    measured: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured

    def row(self) -> list[object]:
        case = self.case
        return [NAMES[case.model], case.transport, case.workers, case.rule, case.zero_stage,
                f"{self.predicted:.0f}", f"{self.measured:.0f}", f"{self.ratio:.3f}"]


def certificate_in(plan: str) -> dict[str, float]:
    """MiB of the host by category, and `peak`, of what `ringzero plan` prints."""
    printed = re.search(r"^fit certificate .*\n((?:.+\n)*?)budget ", plan, re.MULTILINE)
    lines = printed[1].splitlines() if printed else []
    found = [re.match(r"(\S.*?)  +(-?\d+) ", line) for line in lines]
    if not found or not all(found):
        raise BenchError("`ringzero plan` printed no fit certificate that can be read")
    return {row[1]: int(row[2]) / 2**20 for row in found}


def _measure(options: Options, case: Case) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        config, log = os.path.join(folder, "config.json"), os.path.join(folder, "log")
        write_json(case.configuration(options.iterations), config)
        plan = run([options.program, "plan", config], timeout_seconds=options.timeout)
        predicted = certificate_in(plan)
        watch = PeakWatch()
        training = Command(str(case), [options.program, "train", config], {}, log)
        run_group([training], options.timeout, watch.sample)
        return Result(case, predicted, predicted.pop("peak"), watch.peak_mib)


def _bar(result: Result) -> charts.Bar:
    """The predicted categories, and a mark at what was measured."""
    parts = dict(result.categories)
    apart = parts.pop("never together", 0)
    if "activations" in parts:  # the bar ends at the peak
        parts["activations"] = max(0, parts["activations"] + apart)
    return charts.Bar(str(result.case), parts, f"{result.measured:.0f} ({result.ratio:.3f})",
                      mark=result.measured)


def _cases(options: Options) -> list[Case]:
    def all_of(transport: str, rules: list[str]) -> list[Case]:
        return [Case(model, transport, workers, rule)
                for model in options.models for workers in options.workers for rule in rules]

    cases = all_of("shm", options.rules if 3 in options.stages else [])
    cases += [Case(model, "shm", max(options.workers), options.rules[0], stage)
              for model in options.models for stage in options.stages if stage < 3]
    cases += all_of("ucx", ["cdp_v2"])
    return [case for case in cases if case.transport in options.transports]


def _bench(options: Options, command: str) -> list[str]:
    results = []
    for case in _cases(options):
        results.append(_measure(options, case))
        say(" ".join(map(str, results[-1].row())))
    furthest = {}  # by transport
    for result in sorted(results, key=lambda result: abs(result.ratio - 1)):
        furthest[result.case.transport] = result
    bounds = {"shm": f"wanted: within {_BOUND:.0%}.",
              "ucx": "how many received copies are alive at once is a matter of timing, so this is "
                     "an estimate."}
    categories = list(results[0].categories)
    page = ["# Memory: predicted and measured", "",
            f"`{command}` made this. Predicted: the certificate's peak of the host, by `ringzero "
            "plan` ([memory.md](../memory.md)). Measured: proportional set sizes of all processes "
            f"of the run, added up, at their highest, in {options.iterations} iterations.", "",
            *table(["model", "transport", "workers", "rule", "ZeRO stage", "predicted, MiB",
                    "measured, MiB", "predicted / measured"], map(Result.row, results)), "",
            *(f"Furthest off over {name}: {worst.ratio:.3f} ({worst.case}); {bounds[name]}\n"
              for name, worst in sorted(furthest.items())),
            "![predicted and measured](memory.svg)", "", "Predicted, by category:", "",
            *table(["MiB", *categories],
                   [[result.case, *(f"{result.categories[name]:.1f}" for name in categories)]
                    for result in results])]
    charts.write(os.path.join(options.out, "memory.svg"),
                 "Predicted by category, and measured (black mark)",
                 [charts.Panel("", "MiB of the host", bars=list(map(_bar, results)))])
    if (worst := furthest.get("shm")) and abs(worst.ratio - 1) > _BOUND:
        write_page(page, options.out, "memory.md")
        raise BenchError(f"wanted a prediction within {_BOUND:.0%}, found {worst.ratio:.3f} "
                         f"({worst.case}); the table is in {options.out}")
    return page


if __name__ == "__main__":
    PARSER = bench_parser("memory", __doc__)
    PARSER.add_argument("--models", nargs="+", choices=list(NAMES), default=list(NAMES))
    PARSER.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    PARSER.add_argument("--workers", nargs="+", type=positive, default=[2, 4], metavar="N")
    PARSER.add_argument("--transports", nargs="+", choices=("shm", "ucx"), default=["shm", "ucx"],
                        help="ucx: cdp_v2 alone [both]")
    PARSER.add_argument("--stages", nargs="+", type=int, choices=range(4), default=[0, 1, 2, 3],
                        help="of ZeRO; those below 3: the largest number of workers and the first "
                             "rule, over shm [all]")
    PARSER.add_argument("--iterations", type=positive, default=10)
    PARSER.add_argument("--timeout", type=float, default=900, metavar="SECONDS",
                        help="of one run [900]")
    main(PARSER, _bench)
