"""The command `./rz bench checkpoints`: what checkpoints add to a step.

Runs without, with a save every ten iterations, and with the same on a disk that is made as slow as
1.2 times what is needed: an owner's bytes of one save in the time of a step. All take turns.
"""
import math
import os
import statistics
import tempfile

from ring_run import Options, bench_parser, interval, main, say, table, take_turns, train_with_metrics

_EVERY, _LEFT_OUT = 10, 10  # iterations
_SPARE = 1.2                # times what is needed


def _settings(folder: str, **more: object) -> dict[str, object]:
    return {f"cyclic.checkpoint.{key}": value
            for key, value in {"folder": folder, "every": _EVERY, "at_end": False, **more}.items()}


def _run(options: Options, settings: dict[str, object]) -> tuple[float, float]:
    """The mean step in ms, and the workers' most MiB, added up."""
    summary, scalars = train_with_metrics(
        options, {"cyclic.workers": options.workers, **settings})
    assert not summary["not_written"], summary["not_written"]
    steps = [each["Ring/Samples/iteration_ms"] for each in scalars[_LEFT_OUT:]]
    return statistics.mean(steps), sum(summary["pss_peak_mib"])


def _bytes_in(folder: str) -> int:
    newest = os.path.join(folder, sorted(name for name in os.listdir(folder)
                                         if name.startswith("iteration-"))[-1])
    return sum(os.path.getsize(os.path.join(newest, name)) for name in os.listdir(newest))


def _bench(options: Options, command: str) -> list[str]:
    with tempfile.TemporaryDirectory(dir=options.folder or options.out) as folder:
        say("a step and a checkpoint ...")
        step, _ = _run(options, {})
        run = os.path.join(folder, "first")
        _run(options, _settings(run))
        size = _bytes_in(run)
        needed = size / options.workers / (1e-3 * step) / 1e9  # GB/s of each worker
        forms = {"without": {}, "saved": {}, "slow disk": {"bandwidth": _SPARE * needed}}

        def one(form: str) -> tuple[float, float]:
            if form == "without":
                return _run(options, {})
            with tempfile.TemporaryDirectory(dir=folder) as mine:
                return _run(options, _settings(os.path.join(mine, "run"), **forms[form]))

        found = take_turns(list(forms), options.rounds, one)
    rows = []
    for form in forms:
        ratios = [math.log(each[form][0] / each["without"][0]) for each in found]
        span = interval(ratios)
        shown = f"{math.exp(span[0]):.3f} to {math.exp(span[1]):.3f}" if span else "-"
        memory = statistics.mean(each[form][1] - each["without"][1] for each in found)
        rows.append([form, f"{statistics.median(each[form][0] for each in found):.1f}",
                     f"{math.exp(statistics.mean(ratios)):.3f}", shown,
                     f"{memory:+.0f}"])
    return ["# What checkpoints cost", "",
            f"`{command}` made this: `{os.path.basename(options.config)}`, {options.workers} "
            f"workers, a save every {_EVERY} iterations of {size / 1e6:.1f} MB, "
            f"{options.rounds} rounds in which all take turns. The slow disk gives each worker "
            f"{_SPARE:g} times the {1e3 * needed:.0f} MB/s that its part of a save needs to be "
            "written within a step. The step is the mean, beside the run without of the same round, "
            "with its 95 % interval. Memory: the workers' most, beside the run without.", "",
            *table(["", "step, ms", "beside without", "95 %", "memory, MiB"], rows)]


if __name__ == "__main__":
    PARSER = bench_parser("checkpoints", __doc__, config="checkpoints/gpt.json", rounds=20, workers=4)
    PARSER.add_argument("--folder", default="", metavar="DIR", help="where they are [--out]")
    main(PARSER, _bench)
