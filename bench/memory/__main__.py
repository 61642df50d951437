"""The command `./rz bench memory`: the fit certificate of `ringzero plan` beside what a run takes,
measured from outside.

Measured: the sum of all processes' proportional set sizes, launcher included, at its highest; they
stand still for each look. Where optimizer states lie in files: how much of these files is in the
page cache, too.
"""
import contextlib
import ctypes
import os
import re
import tempfile
from dataclasses import dataclass, replace

import charts
from peers.processes import Command, PeakWatch, run_group
from ring_run import (PAPER, BenchError, Options, bench_parser, main, positive, run, say, table,
                      write_json, write_page)

_BOUND = 0.05
_STAGING_MIB = 16  # of each worker
_CACHESTAT = 451   # the system call, of Linux 6.5
_LIBC = ctypes.CDLL(None, use_errno=True)
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
    on_disk: float = 0  # the share of the optimizer states

    def __str__(self) -> str:
        stage = "" if self.zero_stage == 3 else f" ZeRO-{self.zero_stage}"
        disk = f" {self.on_disk:.0%} on NVMe" if self.on_disk else ""
        return f"{self.model} {self.transport} N={self.workers} {self.rule}{stage}{disk}"

    def configuration(self, iterations: int, folder: str = "") -> dict:
        """For `ringzero train`. `folder`: for states on NVMe."""
        offload = {"device": "nvme", "nvme_path": folder, "ratio": self.on_disk}
        zero = {"stage": self.zero_stage, **({"offload_optimizer": offload} if self.on_disk else {})}
        return {**_MODELS[self.model], "gradient_accumulation_steps": 1, "gradient_clipping": 0,
                "optimizer": _ADAMW, "iterations": iterations, "evaluation": {"every": 0},
                "seed": 1, "zero_optimization": zero,
                "cyclic": {"rule": self.rule, **PAPER, "workers": self.workers,
                           "transport": self.transport, "threads": 1,
                           "offload": {"staging": f"{_STAGING_MIB}MiB"}}}


@dataclass(frozen=True)
class Result:
    case: Case
    # Predicted MiB of the host, each at its most; what is never together is negative.
    categories: dict[str, float]
    predicted: float              # MiB, at the peak
    measured: float
    cached: float                 # MiB of the state files in the page cache, at most

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured

    def row(self) -> list[object]:
        case = self.case
        return [NAMES[case.model], case.transport, case.workers, case.rule, case.zero_stage,
                f"{case.on_disk:.0%}",
                f"{self.predicted:.0f}", f"{self.measured:.0f}", f"{self.ratio:.3f}"]


def certificate_in(plan: str) -> dict[str, float]:
    """MiB of the host by category, and `peak`, of what `ringzero plan` prints."""
    printed = re.search(r"^fit certificate .*\n((?:.+\n)*?)budget ", plan, re.MULTILINE)
    lines = printed[1].splitlines() if printed else []
    found = [re.match(r"(\S.*?)  +(-?\d+) ", line) for line in lines]
    if not found or not all(found):
        raise BenchError("`ringzero plan` printed no fit certificate that can be read")
    return {row[1]: int(row[2]) / 2**20 for row in found}


def _cached_mib(fd: int) -> float:
    everything = (ctypes.c_uint64 * 2)(0, 0)
    pages = (ctypes.c_uint64 * 5)()  # in the cache, dirty, being written, evicted, just evicted
    if _LIBC.syscall(_CACHESTAT, fd, everything, pages, 0) != 0:
        raise BenchError(f"cachestat: {os.strerror(ctypes.get_errno())}; it wants Linux 6.5")
    return pages[0] * os.sysconf("SC_PAGE_SIZE") / 2**20


class _Watch(PeakWatch):
    """Looks at the open files of a folder, too. They have no names."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder
        self.cached_mib = 0.0

    def look(self, pids: list[int]) -> None:
        super().look(pids)
        found = {}
        for pid in pids:
            with contextlib.suppress(OSError):
                for name in os.listdir(f"/proc/{pid}/fd"):
                    path = f"/proc/{pid}/fd/{name}"
                    if not os.readlink(path).startswith(self._folder):
                        continue
                    fd = os.open(path, os.O_RDONLY)
                    found[os.fstat(fd).st_ino] = _cached_mib(fd)
                    os.close(fd)
        self.cached_mib = max(self.cached_mib, sum(found.values()))


def _measure(options: Options, case: Case) -> Result:
    os.makedirs(options.folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        config, log = os.path.join(folder, "config.json"), os.path.join(folder, "log")
        tier = os.path.realpath(os.path.join(folder, "tier"))
        os.mkdir(tier)
        write_json(case.configuration(options.iterations, tier), config)
        plan = run([options.program, "plan", config], timeout_seconds=options.timeout)
        predicted = certificate_in(plan)
        watch = _Watch(tier)
        training = Command(str(case), [options.program, "train", config], {}, log)
        run_group([training], options.timeout, watch.sample)
        return Result(case, predicted, predicted.pop("peak"), watch.peak_mib, watch.cached_mib)


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
    cases += [Case(model, "shm", max(options.workers), options.rules[-1], on_disk=share)
              for model in options.models for share in options.on_disk if model != "resnet"]
    return [case for case in cases if case.transport in options.transports]


def _saved(results: list[Result]) -> list[str]:
    """What states on NVMe save, beside the same run with all of them in memory."""
    found = {result.case: result for result in results}
    rows = []
    for result in results:
        memory = found.get(replace(result.case, on_disk=0))
        if memory in (None, result):
            continue
        predicted, fell = memory.predicted - result.predicted, memory.measured - result.measured
        rows.append([result.case, f"{predicted:.0f}", f"{fell:.0f}", f"{fell / predicted:.3f}",
                     f"{result.cached:.1f}"])
    if not rows:
        return []
    return [f"With optimizer states on NVMe, through {_STAGING_MIB} MiB of each worker, a run takes "
            "less than with all of them in memory:", "",
            *table(["run", "predicted, MiB less", "measured, MiB less", "measured / predicted",
                    "of the files in the page cache, MiB"], rows), ""]


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
            *table(["model", "transport", "workers", "rule", "ZeRO stage", "states on NVMe",
                    "predicted, MiB", "measured, MiB", "predicted / measured"],
                   map(Result.row, results)), "",
            *_saved(results),
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
    PARSER.add_argument("--on-disk", nargs="*", type=float, default=[0.5, 1], metavar="SHARE",
                        help="of optimizer states, for gpt and mlp with the largest number of "
                             "workers and the last rule, over shm [0.5 1]")
    PARSER.add_argument("--folder", default="build/bench-memory", metavar="DIR",
                        help="for the files of these states [build/bench-memory]")
    PARSER.add_argument("--iterations", type=positive, default=10)
    PARSER.add_argument("--timeout", type=float, default=900, metavar="SECONDS",
                        help="of one run [900]")
    main(PARSER, _bench)
