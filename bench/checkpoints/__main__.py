"""The command `./rz bench checkpoints`: what checkpoints add to a step, beside what people use today.

Each runs without and with a save every ten iterations, RingZero also on a disk that is made as slow
as 1.2 times what is needed: an owner's bytes of one save in the time of a step. All take turns.
"""
import dataclasses
import json
import math
import os
import statistics
import tempfile

from peers.cases import CONFIGURATIONS, Case, Configuration, Shape
from peers.processes import PeakWatch
from peers.runs import LEFT_OUT, Runner, RunReport, Saves
from ring_run import (Options, bench_parser, describe_machine, interval, main, not_negative,
                      positive, say, table, take_turns)

_EVERY, _ITERATIONS, _SPARE = 10, 30, 1.2
_SHAPE = Shape(layers=6, dim=256, sequence=64)  # 4.9 M parameters
_RING = CONFIGURATIONS["cdp_v2"]
_RING_SAVES = {"every": _EVERY, "keep": 100, "at_end": False}
_SAVING = {"ddp": "torch.save by worker 0", "fsdp2": "DCP async_save",
           "deepspeed_zero3": "save_checkpoint"}
_MEMORY_RUNS = 3
Form = tuple[str, str]  # who trains; how it saves, "" not at all


@dataclasses.dataclass(frozen=True)
class Found:
    report: RunReport
    saves: list[float]  # seconds until durable
    peak_mib: float     # 0: not watched
    bytes: int = 0      # of one save of RingZero's


def last_written(folder: str, iterations: list[dict]) -> list[float]:
    """Seconds from the end of the iteration before each checkpoint of a run to its last file."""
    ends = {each["iteration"]: each["wall_seconds"] for each in iterations
            if "Train/Samples/train_loss" in each["scalars"]}
    found = []
    for name in sorted(os.listdir(folder)):
        kind, _, version = name.partition("-")
        if kind == "iteration" and int(version) in ends:
            written = os.path.getmtime(os.path.join(folder, name, "state.json"))
            found.append(written - ends[int(version)])
    return found


class _Bench:
    def __init__(self, options: Options, folder: str) -> None:
        self._case = Case("checkpoints", _SHAPE, options.micro_batch, _ITERATIONS)
        self._runner = Runner(options.program, folder, 1800)
        self._folder = folder
        say("initial parameters, a step and a checkpoint ...")
        self._runner.dump_initial(self._case)
        step = self._ring({}, False).report.step_mean
        self.bytes = self._ring(_RING_SAVES, False).bytes
        self.needed = self.bytes / self._case.workers / step  # of each worker, by second
        self._saves = {"": {}, "saving": _RING_SAVES,
                       "slow disk": {**_RING_SAVES, "bandwidth": _SPARE * self.needed / 1e9}}

    def run(self, form: Form, watch: bool = False) -> Found:
        who, how = form
        if who == "RingZero":
            return self._ring(self._saves[how], watch)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            report, peak_mib = self._train(CONFIGURATIONS[who], watch,
                                           saves=Saves(_EVERY, folder) if how else None)
        return Found(report, report.saves, peak_mib)

    def _ring(self, saves: dict[str, object], watch: bool) -> Found:
        """`saves`: of the section `cyclic.checkpoint`, but for its folder; empty: it saves nothing."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            run, metrics = os.path.join(folder, "run"), os.path.join(folder, "metrics")
            cyclic = _RING.cyclic | ({"checkpoint": {"folder": run, **saves}} if saves else {})
            report, peak_mib = self._train(Configuration("RingZero", "RingZero", cyclic), watch,
                                           words=["--metrics", metrics])
            if not saves:
                return Found(report, [], peak_mib)
            with open(os.path.join(metrics, "metrics.jsonl"), encoding="utf-8") as file:
                seconds = last_written(run, list(map(json.loads, file)))
            one = os.path.join(run, f"iteration-{_EVERY:06}")
            return Found(report, seconds, peak_mib,
                         sum(entry.stat().st_size for entry in os.scandir(one)))

    def _train(self, configuration: Configuration, watch: bool,
               **more: object) -> tuple[RunReport, float]:
        """And the most MiB of all workers."""
        seen = PeakWatch()
        report = self._runner.run(configuration, self._case, iterations=LEFT_OUT + _ITERATIONS,
                                  left_out=LEFT_OUT, watch=seen.sample if watch else None, **more)
        return report, seen.peak_mib


def rows(rounds: list[dict[Form, Found]], memory: dict[Form, list[float]],
          forms: list[Form]) -> list[list[str]]:
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
        saves = [seconds for each in found for seconds in each[form].saves]
        more = statistics.median(memory[form]) - statistics.median(memory[who, ""])
        made.append([*row, f"{math.exp(statistics.mean(ratios)):.3f}", shown,
                     f"{statistics.median(saves):.2f}", f"{more:+.0f}"])
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
        say("memory ...")
        memory = {form: [bench.run(form, watch=True).peak_mib for _ in range(_MEMORY_RUNS)]
                  for form in forms}
    return ["# What checkpoints cost", "",
            f"`{command}` made this, on {about['cores']} cores of {about['processor']}, PyTorch "
            f"{about['torch']}, DeepSpeed {about['deepspeed']}: GPT {_SHAPE.layers} × {_SHAPE.dim}, "
            f"micro-batches of {options.micro_batch} × {_SHAPE.sequence} tokens, 4 workers, AdamW, "
            f"a save every {_EVERY} iterations. RingZero has `cdp_v2` and saves "
            f"{bench.bytes / 1e6:.1f} MB, of which a fourth are versions that the peers do not have. "
            f"The slow disk gives each worker {_SPARE:g} times the {bench.needed / 1e6:.0f} MB/s "
            "that its part of a save needs to be written within a step.", "",
            "All take turns. The step is the mean of a run; its median over rounds is shown, and "
            "the ratio to the run without saves of the same round, with its 95 % interval. Durable: "
            "the median time from the end of the iteration until all files of a save are on the "
            "disk. Memory: the most of all workers together, PSS, beside the runs without saves.", "",
            *table(["", "rounds", "step, ms", "beside without", "95 %", "durable, s",
                    "memory, MiB"], rows(rounds, memory, forms))]


if __name__ == "__main__":
    PARSER = bench_parser("checkpoints", __doc__, rounds=20)
    PARSER.add_argument("--peer-rounds", type=not_negative, default=5, metavar="N",
                        help="rounds in which the peers take part; 0: they are left out [5]")
    PARSER.add_argument("--micro-batch", type=positive, default=8, metavar="N",
                        help="sequences of 64 tokens [8]")
    PARSER.add_argument("--folder", default="", metavar="DIR", help="where they are [--out]")
    main(PARSER, _bench)
