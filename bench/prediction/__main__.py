"""The command `./rz bench prediction`: the step time that a plan predicts beside the one that a run measures.

Each pair is measured right after each other: the profile, and the run that it should foretell.
"""
import argparse
import json
import os
import re
import statistics
import shlex
import sys
import tempfile

from memory.cases import NAMES, RULES, configuration
from ring_run import BenchError, bench_parser, run, run_command, say, train, write_page

# Samples of a micro-batch: steps short enough to repeat, with adds and updates that count.
MICRO_BATCHES = {"gpt": 2, "resnet": 4, "mlp": 32}


def _parse(words: list[str]) -> argparse.Namespace:
    parser = bench_parser("prediction", __doc__)
    parser.add_argument("--workers", nargs="+", type=int, default=[2, 4], metavar="N", help="[2 4]")
    parser.add_argument("--iterations", type=int, default=20, help="of each run; the first 10 are left out [20]")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="[3]")
    return parser.parse_args(words)


def _predict(program: str, config: str, profile: str, settings: dict[str, object]) -> float:
    """Seconds of a step, from a profile measured now."""
    if os.path.exists(profile):
        os.remove(profile)
    command = [program, "plan", config, "--profile", profile]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    found = re.search(r"^step +(\S+) ms", run(command).stdout, re.MULTILINE)
    if found is None:
        raise BenchError(f"'{shlex.join(command)}' printed no step")
    return float(found.group(1)) / 1000


def _round(options: argparse.Namespace, number: int, folder: str) -> dict[tuple[str, int, str], tuple[float, float]]:
    """Predicted and measured seconds, by model, workers and rule."""
    results = {}
    config, profile = os.path.join(folder, "run.json"), os.path.join(folder, "profile.json")
    cases = [(model, workers, rule) for model in NAMES for workers in options.workers for rule in RULES]
    for model, workers, rule in cases[::-1] if number % 2 else cases:
        say(f"round {number + 1} of {options.rounds}: {model}, {workers} workers, {rule}")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(configuration(model, rule=rule, workers=workers, transport="shm", iterations=options.iterations), file)
        settings = {"train_micro_batch_size_per_gpu": MICRO_BATCHES[model]}
        predicted = _predict(options.program, config, profile, settings)
        summary, _ = train(options.program, config, settings)
        results[model, workers, rule] = predicted, summary["step_seconds"]["median"]
    return results


def _bench(options: argparse.Namespace, command: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        rounds = [_round(options, number, folder) for number in range(options.rounds)]
    document = ["# Predicted and measured step times", "",
                f"`{command}` made this, on {len(os.sched_getaffinity(0))} cores: in each of {options.rounds} rounds, for each line, "
                "`ringzero plan --profile` measures the layers anew and predicts, and `ringzero train` runs right after it. "
                "Seconds are medians; the ratio is the median of the rounds' own ratios, with the lowest and the highest.", "",
                "| model | workers | rule | predicted, s | measured, s | predicted / measured |",
                "| --- | ---: | --- | ---: | ---: | ---: |"]
    for key in sorted(rounds[0]):
        model, workers, rule = key
        pairs = [each[key] for each in rounds]
        ratios = sorted(predicted / measured for predicted, measured in pairs)
        predicted, measured = (statistics.median(column) for column in zip(*pairs))
        document.append(f"| {NAMES[model]} | {workers} | {rule} | {predicted:.4f} | {measured:.4f} | {statistics.median(ratios):.3f} "
                        f"({ratios[0]:.3f} to {ratios[-1]:.3f}) |")
    document.append("")
    return write_page(options.out, "prediction.md", document)


if __name__ == "__main__":
    sys.exit(run_command("prediction", _parse, _bench, sys.argv[1:]))
