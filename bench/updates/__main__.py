"""The command `./rz bench updates`: how much of a step is spent waiting for updates.

A wait counts from its begin to the end of the update that made what is waited for, also where the copy came by way of others.
Updates that are slowed (cyclic.inject.update_slowness) take so many times as long, asleep: what hides them is the schedule.
Configurations take turns; of their rounds the median is shown.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

from ring_run import bench_parser, run_command, say, take_turns, train, write_page
from updates.exposed import Exposed, exposed

RULES = ("dp", "cdp_v1")
LIMIT = 2.0  # percent of a step, under cdp_v1


def _parse(words: list[str]) -> argparse.Namespace:
    parser = bench_parser("updates", __doc__, os.path.join(os.path.dirname(__file__), "..", "waits", "gpt.json"))
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="[2]")
    parser.add_argument("--slowness", type=float, action="append", metavar="TIMES",
                        help="how many times as long an update takes, repeatable [1 and 10]")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="[3]")
    return parser.parse_args(words)


def _run(options: argparse.Namespace, rule: str, slowness: float) -> tuple[float, Exposed]:
    """Seconds of a step, and what of them is exposed."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        settings = {"cyclic.rule": rule, "cyclic.workers": options.workers, "cyclic.inject.update_slowness": slowness}
        summary, _ = train(options.program, options.config, settings, ["--trace", path])
        with open(path, encoding="utf-8") as file:
            return summary["step_seconds"]["median"], exposed(json.load(file), summary["iterations"])


def _row(rule: str, slowness: float, rounds: list[dict]) -> str:
    found = [each[rule, slowness] for each in rounds]
    shares = [100 * of.waits / step for step, of in found]
    step, updates, share = (statistics.median(values) for values in (
        [step for step, _ in found], [of.updates for _, of in found], shares))
    verdict = "" if rule != "cdp_v1" else "holds" if share <= LIMIT else "does not hold"
    each = ", ".join(f"{value:.2f}" for value in shares)
    return f"| {rule} | {slowness:g} | {step:.3f} | {updates:.3f} | {share:.2f} | {each} | {verdict} |"


def _bench(options: argparse.Namespace, command: str) -> str:
    runs = [(rule, slowness) for rule in RULES for slowness in options.slowness or [1, 10]]

    def one(run: tuple[str, float], turn: str) -> tuple[float, Exposed]:
        say(f"{turn}: {run[0]}, updates {run[1]:g} times as long")
        return _run(options, *run)

    rounds = take_turns(runs, options.rounds, one)
    document = ["# Updates that nobody waits for", "",
                f"`{command}` made this: {options.workers} workers with one thread each, `{os.path.basename(options.config)}`, "
                f"{options.rounds} rounds. A wait counts until the update is over that made what is waited for (mean over workers, "
                f"in percent of a step; under cdp_v1 at most {LIMIT:g}).", "",
                "| rule | updates take, times | step, median s | all updates of a step, s | exposed, % | by round | " +
                f"at most {LIMIT:g} % |",
                "| --- | ---: | ---: | ---: | ---: | --- | --- |"]
    document += [_row(rule, slowness, rounds) for rule, slowness in runs] + [""]
    return write_page(options.out, "updates.md", document)


if __name__ == "__main__":
    sys.exit(run_command("updates", _parse, _bench, sys.argv[1:]))
