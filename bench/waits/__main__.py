"""The command `./rz bench waits`: what each rule waits for, and how much a latency of every message
adds to its step.

The latency is injected (cyclic.inject.delay): messages lie for so long before they are sent, and no
worker computes for them. A ratio is of two runs of one round, and of these the median is shown.
"""
import os
import statistics

import charts
from ring_run import RULES, Options, bench_parser, main, table, take_turns, train

NAMES = ("dp", "cdp_v1", "cdp_v2, slack 0", "cdp_v2, slack 1")


def _step(summary: dict) -> float:
    return summary["step_seconds"]["median"]


def _growth(rule: str, delay: float, rounds: list[dict]) -> float:
    ratios = [_step(each[rule, delay]) / _step(each[rule, 0]) for each in rounds]
    return 100 * (statistics.median(ratios) - 1)


def _row(rule: str, delay: float, rounds: list[dict]) -> list[str]:
    found = [each[rule, delay] for each in rounds]
    parameters, sums, updates = (
        statistics.median(100 * of["waits_seconds_per_step"][cause] / _step(of) for of in found)
        for cause in ("parameters", "gradient_sums", "update"))
    return [rule, f"{1000 * delay:g}", f"{statistics.median(map(_step, found)):.3f}",
            f"{_growth(rule, delay, rounds):+.1f} %",
            *(f"{share:.1f}" for share in (parameters, sums, parameters + sums, updates))]


def _bench(options: Options, command: str) -> list[str]:
    delays = [0, *(options.delay or [0.01])]
    runs = [(rule, delay) for rule in NAMES for delay in delays]

    def one(run: tuple[str, float]) -> dict:
        rule, delay = run
        injected = {"cyclic.inject.delay": delay} if delay else {}
        return train(options, {**RULES[rule], "cyclic.workers": options.workers, **injected})

    rounds = take_turns(runs, options.rounds, one)
    series = [charts.Series(rule, [(1000 * at, _growth(rule, at, rounds)) for at in delays])
              for rule in NAMES]
    top = max(y for each in series for _, y in each.points)
    charts.write(os.path.join(options.out, "waits.svg"),
                 "How much a latency of every message adds to a step", [
                     charts.Panel("growth of the step, %", "latency, ms", series,
                                  (-5, max(10.0, 1.1 * top)), [("5 %", 5.0)])])
    return ["# Waits, and messages that take their time", "",
            f"`{command}` made this: {options.workers} workers with one thread each, "
            f"`{os.path.basename(options.config)}`, {options.rounds} rounds, the window chosen by "
            "the plan. Waits in percent of a step (mean over workers).", "",
            *table(["rule", "latency, ms", "step, median s", "growth", "parameters", "sums", "both",
                    "updates"], [_row(rule, delay, rounds) for rule, delay in runs]),
            "", "![growth of the step](waits.svg)"]


if __name__ == "__main__":
    PARSER = bench_parser("waits", __doc__, config="waits/gpt.json", workers=2, rounds=3)
    PARSER.add_argument("--delay", type=float, action="append", metavar="SECONDS",
                        help="latency of every message, repeatable [0.01]")
    main(PARSER, _bench)
