"""The command `./rz bench updates`: how much of a step is spent waiting for updates.

A wait counts from its begin to the end of the update that made what is waited for, also where the copy came by way of others.
Updates that are slowed (cyclic.inject.update_slowness) take so many times as long, asleep: what hides them is the schedule.
"""
import argparse
import os
import statistics
import sys

from ring_run import bench_parser, run_command, table, take_turns, train_traced
from updates.exposed import Exposed, exposed

LIMIT = 2.0  # percent of a step, under cdp_v1


def _row(rule: str, slowness: float, found: list[tuple[float, Exposed]]) -> list[str]:
    """`found`: of each round, seconds of a step and what of them is exposed."""
    shares = [100 * of.waits / step for step, of in found]
    step, updates, share = (statistics.median(values) for values in (
        [step for step, _ in found], [of.updates for _, of in found], shares))
    verdict = "" if rule != "cdp_v1" else "holds" if share <= LIMIT else "does not hold"
    return [rule, f"{slowness:g}", f"{step:.3f}", f"{updates:.3f}", f"{share:.2f}", ", ".join(f"{value:.2f}" for value in shares), verdict]


def _bench(options: argparse.Namespace, command: str) -> list[str]:
    runs = [(rule, slowness) for rule in ("dp", "cdp_v1") for slowness in options.slowness or [1, 10]]

    def one(run: tuple[str, float]) -> tuple[float, Exposed]:
        rule, slowness = run
        summary, slices = train_traced(options.program, options.config, {
            "cyclic.rule": rule, "cyclic.workers": options.workers, "cyclic.inject.update_slowness": slowness})
        return summary["step_seconds"]["median"], exposed(slices, summary["iterations"])

    rounds = take_turns(runs, options.rounds, one)
    return ["# Updates that nobody waits for", "",
            f"`{command}` made this: {options.workers} workers with one thread each, `{os.path.basename(options.config)}`, "
            f"{options.rounds} rounds. A wait counts until the update is over that made what is waited for (mean over workers, "
            f"in percent of a step; under cdp_v1 at most {LIMIT:g}).", "",
            *table(["rule", "updates take, times", "step, median s", "all updates of a step, s", "exposed, %", "by round",
                    f"at most {LIMIT:g} %"], [_row(*run, [each[run] for each in rounds]) for run in runs])]


if __name__ == "__main__":
    PARSER = bench_parser("updates", __doc__, config="waits/gpt.json", rounds=3, workers=2)
    PARSER.add_argument("--slowness", type=float, action="append", metavar="TIMES",
                        help="how many times as long an update takes, repeatable [1 and 10]")
    sys.exit(run_command(PARSER, _bench))
