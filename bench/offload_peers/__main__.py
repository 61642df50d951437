"""The command `./rz bench offload_peers`: what optimizer states on NVMe cost a step, with RingZero
and with DeepSpeed ZeRO-3.

The same GPT, parameters and batches, as in `./rz bench peers`. Each step is over the step of the
same program with its states in memory. All take turns. The first call compiles DeepSpeed's
operators for files.
"""
import os
import shutil
import statistics
import tempfile

from peers.cases import CASES, Configuration
from peers.results import check_losses
from peers.runs import LEFT_OUT, Runner, RunReport
from ring_run import (Options, bench_parser, describe_machine, interval, main, positive, set_words,
                      table, take_turns, write_json)

_SECTION = "zero_optimization.offload_optimizer"
_RING = Configuration("cdp_v1", "RingZero cdp_v1", {"rule": "cdp_v1"})
_IN_MEMORY = {"RingZero cdp_v1": _RING,
              "DeepSpeed ZeRO-3": Configuration("deepspeed_zero3", "DeepSpeed ZeRO-3")}
# What has its states on NVMe, and the same in memory.
_ON_NVME = {
    "RingZero cdp_v1, NVMe": (_RING, "RingZero cdp_v1"),
    "DeepSpeed ZeRO-3, NVMe": (Configuration("deepspeed_nvme", "DeepSpeed"), "DeepSpeed ZeRO-3"),
    "DeepSpeed ZeRO-3, NVMe, pipelined": (Configuration("deepspeed_nvme_pipelined", "DeepSpeed"),
                                          "DeepSpeed ZeRO-3"),
}


class _Bench:
    def __init__(self, options: Options, folder: str) -> None:
        self._options, self._case = options, CASES[options.case]
        self._runner = Runner(options.program, folder, options.timeout)
        self._runner.dump_initial(self._case)

    def one(self, name: str) -> RunReport:
        configuration = _IN_MEMORY[name] if name in _IN_MEMORY else _ON_NVME[name][0]
        nvme = os.path.abspath(self._options.folder) if name in _ON_NVME else ""
        if nvme:
            shutil.rmtree(nvme, ignore_errors=True)
            os.makedirs(nvme)
        tier = {f"{_SECTION}.device": "nvme", f"{_SECTION}.nvme_path": nvme}
        words = set_words(tier) if nvme and configuration.is_ring else []
        report = self._runner.run(configuration, self._case,
                                  iterations=LEFT_OUT + self._options.steps, left_out=LEFT_OUT,
                                  words=words, nvme=nvme)
        if nvme:
            shutil.rmtree(nvme)
        return report


def _check_losses(found: dict[str, RunReport]) -> None:
    """Wherever states lie, the same is trained."""
    for name, (_, base) in _ON_NVME.items():
        check_losses({name: found[name].losses, base: found[base].losses})


def _row(name: str, base: str, rounds: list[dict[str, RunReport]]) -> list[str]:
    ratios = [found[name].step_median / found[base].step_median for found in rounds]
    more = [found[name].cpu_seconds_per_step - found[base].cpu_seconds_per_step
            for found in rounds]
    ends = interval(ratios)
    return [name, *(f"{statistics.median(found[each].step_median for found in rounds):.3f}"
                    for each in (base, name)),
            f"{statistics.mean(ratios):.3f}" + ("" if ends is None else " [%.3f, %.3f]" % ends),
            f"{statistics.mean(more):+.3f}"]


def _bench(options: Options, command: str) -> list[str]:
    os.environ.setdefault("TORCH_EXTENSIONS_DIR",
                          os.path.join(os.path.abspath(options.out), "operators"))
    about = describe_machine()
    with tempfile.TemporaryDirectory(prefix="ringzero-offload-") as folder:
        bench = _Bench(options, folder)
        bench.one("DeepSpeed ZeRO-3, NVMe")  # compiles
        rounds = take_turns([*_IN_MEMORY, *_ON_NVME], options.rounds, bench.one)
    for found in rounds:
        _check_losses(found)
    write_json([{name: vars(report) for name, report in found.items()} for found in rounds],
               options.out, "runs.json")
    case = CASES[options.case]
    return ["# Optimizer states on NVMe beside DeepSpeed", "",
            f"`{command}` made this, on {about['processor']}: a GPT of "
            f"{case.shape.parameters / 1e6:.1f} million parameters, {case.workers} workers with "
            f"micro-batches of {case.micro_batch} × {case.shape.sequence} tokens, "
            f"{options.steps} steps in each of {options.rounds} rounds in which all take turns. "
            "Seconds: the median step. Each is over the step of the same program with its states "
            "in memory, with the 95 % interval over rounds.", "",
            *table(["", "in memory, s", "on NVMe, s", "on NVMe over in memory",
                    "more processor time per step, s"],
                   [_row(name, base, rounds) for name, (_, base) in _ON_NVME.items()])]


if __name__ == "__main__":
    PARSER = bench_parser("offload_peers", __doc__, rounds=3)
    PARSER.add_argument("--case", choices=CASES, default="8x512", help="[8x512]")
    PARSER.add_argument("--steps", type=positive, default=10, help="measured in each run [10]")
    PARSER.add_argument("--folder", default="build/bench-offload_peers/tier", metavar="DIR",
                        help="on the disk [build/bench-offload_peers/tier]")
    PARSER.add_argument("--timeout", type=positive, default=600, metavar="SECONDS",
                        help="of one run [600]")
    main(PARSER, _bench)
