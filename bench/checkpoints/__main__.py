"""The command `./rz bench checkpoints`: what checkpoints add to a step, beside what people use today.

Each runs without and with a save every ten iterations, RingZero also on a disk that is made as slow
as 1.2 times what is needed: an owner's bytes of one save in the time of a step. All take turns.
"""
import dataclasses
import math
import os
import re
import statistics
import tempfile

from peers.cases import CONFIGURATIONS, Case, Configuration, Shape
from peers.processes import PeakWatch
from peers.runs import LEFT_OUT, Runner, RunReport, Saves
from ring_run import (Options, bench_parser, describe_machine, interval, main, not_negative,
                      positive, read_json, say, table, take_turns)

_HERE = os.path.dirname(os.path.abspath(__file__))
_EVERY, _SPARE = 10, 1.2
_SHAPE = Shape(layers=6, dim=256, sequence=64)  # 4.9 M parameters
_RING = CONFIGURATIONS["cdp_v2"]
_RING_SAVES = {"every": _EVERY, "keep": 100, "at_end": False}
_SAVING = {"ddp": "torch.save by worker 0", "fsdp2": "DCP async_save",
           "deepspeed_zero3": "save_checkpoint"}
_EXTRA_RUNS = 3  # of each, for memory and for how long a save takes
Form = tuple[str, str]  # who trains; how it saves, "" not at all


@dataclasses.dataclass(frozen=True)
class Found:
    report: RunReport
    saves: list[float]  # seconds until durable; of RingZero in traced runs alone
    peak_mib: float     # 0: not watched


def seconds_until_durable(events: list[dict]) -> list[float]:
    """Of a trace: from the last update that makes a version to the end of its commit."""
    made: dict[str, float] = {}
    found = []
    for event in sorted((each for each in events if each["ph"] == "X"), key=lambda each: each["ts"]):
        end = event["ts"] + event["dur"]
        if update := re.fullmatch(r"Update s\d+ t\d+ v(\d+)", event["args"].get("op", "")):
            made[update[1]] = max(end, made.get(update[1], 0))
        elif commit := re.fullmatch(r"Commit t(\d+)", event["args"].get("op", "")):
            found.append(1e-6 * (end - made[commit[1]]))
    return found


class _Bench:
    def __init__(self, options: Options, folder: str) -> None:
        self._case = Case("checkpoints", _SHAPE, options.micro_batch, options.iterations)
        self._runner = Runner(options.program, folder, 1800)
        self._folder = folder
        say("initial parameters, a step and a checkpoint ...")
        self._runner.dump_initial(self._case)
        step = self._ring({}).report.step_mean
        with tempfile.TemporaryDirectory(dir=folder) as run:
            self._ring(_RING_SAVES, run)
            files = list(os.scandir(os.path.join(run, f"iteration-{_EVERY:06}")))
            self.bytes, self.stale = (
                sum(file.stat().st_size for file in files if file.name.startswith(kind))
                for kind in ("", "stale-"))
        self.needed = self.bytes / self._case.workers / step  # of each worker, by second
        self._saves = {"": {}, "saving": _RING_SAVES,
                       "slow disk": {**_RING_SAVES, "bandwidth": _SPARE * self.needed / 1e9}}

    def run(self, form: Form, watch: bool = False, trace: bool = False) -> Found:
        who, how = form
        with tempfile.TemporaryDirectory(dir=self._folder) as run:
            if who == "RingZero":
                return self._ring(self._saves[how], run, watch, trace)
            report, peak_mib = self._train(CONFIGURATIONS[who], watch,
                                           saves=Saves(_EVERY, run) if how else None)
        return Found(report, report.saves, peak_mib)

    def _ring(self, saves: dict[str, object], run: str = "", watch: bool = False,
              trace: bool = False) -> Found:
        """`saves`: of the section `cyclic.checkpoint`, but for its folder; empty: it saves nothing."""
        cyclic = _RING.cyclic | ({"checkpoint": {"folder": run, **saves}} if saves else {})
        file = os.path.join(self._folder, "trace.json")
        report, peak_mib = self._train(Configuration("RingZero", "RingZero", cyclic), watch,
                                       words=["--trace", file] if trace else [])
        seconds = seconds_until_durable(read_json(file)["traceEvents"]) if trace else []
        return Found(report, seconds, peak_mib)

    def _train(self, configuration: Configuration, watch: bool,
               **more: object) -> tuple[RunReport, float]:
        """And the most MiB of all workers."""
        seen = PeakWatch()
        iterations = LEFT_OUT + self._case.iterations
        report = self._runner.run(configuration, self._case, iterations=iterations, left_out=LEFT_OUT,
                                  watch=seen.sample if watch else None, **more)
        return report, seen.peak_mib


def rows(rounds: list[dict[Form, Found]], extra: dict[Form, list[Found]],
         forms: list[Form]) -> list[list[str]]:
    """`extra`: runs that tell of memory and of saves."""
    made = []
    for form in forms:
        who, how = form
        found = [each for each in rounds if form in each]
        steps = [1e3 * each[form].report.step_mean for each in found]
        row = [f"{who}, {how}" if how else who, str(len(found)), f"{statistics.median(steps):.1f}"]
        if not how:
            made.append([*row, "", "", "", ""])
            continue
        ratios = [math.log(each[form].report.step_mean / each[who, ""].report.step_mean)
                  for each in found]
        span = interval(ratios)
        shown = f"{math.exp(span[0]):.3f} to {math.exp(span[1]):.3f}" if span else "-"
        saves = [seconds for each in extra[form] for seconds in each.saves]
        memory, without = (statistics.median(each.peak_mib for each in extra[one] if each.peak_mib)
                           for one in (form, (who, "")))
        made.append([*row, f"{math.exp(statistics.mean(ratios)):.3f}", shown,
                     f"{statistics.median(saves):.2f}", f"{memory - without:+.0f}"])
    return made


def _bench(options: Options, command: str) -> list[str]:
    about = describe_machine()
    ring = [("RingZero", how) for how in ("", "saving", "slow disk")]
    peers = [(who, how) for who, saving in _SAVING.items() for how in ("", saving)]
    with tempfile.TemporaryDirectory(dir=options.folder or options.out) as folder:
        bench = _Bench(options, folder)
        beside = min(options.peer_rounds, options.rounds)
        rounds = take_turns([*ring, *peers], beside, bench.run)
        rounds += take_turns(ring, options.rounds - beside, bench.run)
        forms = [*ring, *(peers if beside else [])]
        say("memory, and how long a save takes ...")
        extra = {form: [bench.run(form, watch=True) for _ in range(_EXTRA_RUNS)] for form in forms}
        for form in ring[1:]:
            extra[form] += [bench.run(form, trace=True) for _ in range(_EXTRA_RUNS)]
    with open(os.path.join(_HERE, "findings.md"), encoding="utf-8") as file:
        findings = file.read().splitlines()
    return ["# What checkpoints cost", "",
            f"`{command}` made this, on {about['cores']} cores of {about['processor']}, PyTorch "
            f"{about['torch']}, DeepSpeed {about['deepspeed']}: GPT {_SHAPE.layers} × {_SHAPE.dim}, "
            f"micro-batches of {options.micro_batch} × {_SHAPE.sequence} tokens, 4 workers, AdamW, "
            f"a save every {_EVERY} iterations. RingZero has `cdp_v2` and saves "
            f"{bench.bytes / 1e6:.1f} MB, of which {bench.stale / 1e6:.1f} MB are older versions, "
            "which the peers do not have. "
            f"The slow disk gives each worker {_SPARE:g} times the {bench.needed / 1e6:.0f} MB/s "
            "that its part of a save needs to be written within a step.", "",
            "All take turns. The step is the mean of a run; its median over rounds is shown, and "
            "the ratio to the run without saves of the same round, with its 95 % interval. Durable: "
            "the median time from the last update (of peers: the end of a step) until all files of a "
            "save are on the disk, in runs of their own. Memory: the most of all workers together, "
            "PSS, beside the runs without saves, too.", "",
            *table(["", "rounds", "step, ms", "beside without", "95 %", "durable, s",
                    "memory, MiB"], rows(rounds, extra, forms)), "", *findings]


if __name__ == "__main__":
    PARSER = bench_parser("checkpoints", __doc__, rounds=20)
    PARSER.add_argument("--peer-rounds", type=not_negative, default=5, metavar="N",
                        help="rounds in which the peers take part; 0: they are left out [5]")
    PARSER.add_argument("--iterations", type=positive, default=60, metavar="N",
                        help="of a run, which are measured [60]")
    PARSER.add_argument("--micro-batch", type=positive, default=8, metavar="N",
                        help="sequences of 64 tokens [8]")
    PARSER.add_argument("--folder", default="", metavar="DIR", help="where they are [--out]")
    main(PARSER, _bench)
