"""The command `./rz bench waits`: what each rule waits for, and how much a latency of every message adds to its step.

The latency is injected (cyclic.inject.delay): messages lie for so long before they are sent, and no worker computes for them.
Configurations take turns; a ratio is of two runs of one round, and of these the median is shown.
"""
import argparse
import os
import statistics
import sys

import charts
from ring_run import bench_parser, run_command, say, take_turns, train, write_page

RULES = {"dp": {"cyclic.rule": "dp"},
         "cdp_v1": {"cyclic.rule": "cdp_v1"},
         "cdp_v2, slack 0": {"cyclic.rule": "cdp_v2", "cyclic.slack": 0},
         "cdp_v2, slack 1": {"cyclic.rule": "cdp_v2", "cyclic.slack": 1}}


def _parse(words: list[str]) -> argparse.Namespace:
    parser = bench_parser("waits", __doc__, os.path.join(os.path.dirname(__file__), "gpt.json"))
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="[2]")
    parser.add_argument("--delay", type=float, action="append", metavar="SECONDS",
                        help="latency of every message, repeatable [0.01]")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="[3]")
    return parser.parse_args(words)


def _shares(summary: dict) -> dict[str, float]:
    """Percent of a step."""
    step = summary["step_seconds"]["median"]
    return {cause: 100 * seconds / step for cause, seconds in summary["waits_seconds_per_step"].items()}


def _median(rounds: list[dict], of) -> float:
    return statistics.median(of(each) for each in rounds)


def _row(rule: str, delay: float, rounds: list[dict]) -> str:
    found = [each[rule, delay] for each in rounds]
    parameters, sums, updates = (_median(found, lambda summary, cause=cause: _shares(summary)[cause])
                                 for cause in ("parameters", "gradient_sums", "update"))
    step = _median(found, lambda summary: summary["step_seconds"]["median"])
    growth = _growth(rule, delay, rounds)
    return (f"| {rule} | {1000 * delay:g} | {step:.3f} | {growth:+.1f} % | {parameters:.1f} | {sums:.1f} | "
            f"{parameters + sums:.1f} | {updates:.1f} |")


def _growth(rule: str, delay: float, rounds: list[dict]) -> float:
    return 100 * (_median(rounds, lambda each: each[rule, delay]["step_seconds"]["median"] /
                          each[rule, 0]["step_seconds"]["median"]) - 1)


def _bench(options: argparse.Namespace, command: str) -> str:
    delays = [0, *(options.delay or [0.01])]
    runs = [(rule, delay) for rule in RULES for delay in delays]

    def one(run: tuple[str, float], turn: str) -> dict:
        rule, delay = run
        say(f"{turn}: {rule}, {1000 * delay:g} ms")
        settings = {**RULES[rule], "cyclic.workers": options.workers}
        if delay:
            settings["cyclic.inject.delay"] = delay
        return train(options.program, options.config, settings)[0]

    rounds = take_turns(runs, options.rounds, one)
    document = ["# Waits, and messages that take their time", "",
                f"`{command}` made this: {options.workers} workers with one thread each, `{os.path.basename(options.config)}`, "
                f"{options.rounds} rounds, the window chosen by the plan. Waits in percent of a step (mean over workers).", "",
                "| rule | latency, ms | step, median s | growth | parameters | sums | both | updates |",
                "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    document += [_row(rule, delay, rounds) for rule, delay in runs]
    document += ["", "![growth of the step](waits.svg)", ""]
    series = [charts.Series(rule, [(1000 * delay, _growth(rule, delay, rounds)) for delay in delays]) for rule in RULES]
    top = max(y for each in series for _, y in each.points)
    charts.write(os.path.join(options.out, "waits.svg"), "How much a latency of every message adds to a step", [
        charts.Panel("growth of the step, %", "latency, ms", series, (-5, max(10.0, 1.1 * top)), [("5 %", 5.0)])])
    return write_page(options.out, "waits.md", document)


if __name__ == "__main__":
    sys.exit(run_command("waits", _parse, _bench, sys.argv[1:]))
