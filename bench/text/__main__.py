"""The command `./rz bench text`: what a delayed update costs a GPT on the King James Bible. The times are not looked at.

First AdamW under every rule, with one lap and with several, then SGD with momentum, with and without `predict`.
"""
import argparse
import json
import math
import os
import sys

import charts
from ring_run import BenchError, bench_parser, run_command, say, train, write_page

RULES = {"dp": {"cyclic.rule": "dp"},
         "cdp_v2, slack 0": {"cyclic.rule": "cdp_v2", "cyclic.slack": 0},
         "cdp_v2, slack 1": {"cyclic.rule": "cdp_v2", "cyclic.slack": 1},
         "cdp_v2, strict": {"cyclic.rule": "cdp_v2", "cyclic.strict": True, "cyclic.slack": 0},
         "cdp_v1": {"cyclic.rule": "cdp_v1"}}
PREDICTED = {"dp": RULES["dp"],
             "cdp_v2, slack 1": RULES["cdp_v2, slack 1"],
             "cdp_v2, slack 1, predict": {**RULES["cdp_v2, slack 1"], "cyclic.predict": True},
             "cdp_v1": RULES["cdp_v1"],
             "cdp_v1, predict": {**RULES["cdp_v1"], "cyclic.predict": True}}
DIVERGED = "diverged"


def _parse(words: list[str]) -> argparse.Namespace:
    parser = bench_parser("text", __doc__, os.path.join(os.path.dirname(__file__), "gpt.json"))
    parser.add_argument("--iterations", type=int, metavar="N", help="[the config's]")
    parser.add_argument("--laps", nargs="+", type=int, default=[1, 4], metavar="K", help="[1 4]")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="1 to N [2]")
    parser.add_argument("--sgd-rates", nargs="+", type=float, default=[0.05], metavar="LR", help="[0.05]")
    return parser.parse_args(words)


def _curve(options: argparse.Namespace, settings: dict[str, object]) -> list[tuple[float, float]]:
    """(iteration, validation loss in nats per byte); nothing: a loss was no number."""
    if options.iterations is not None:
        settings = {**settings, "iterations": options.iterations}
    summary, _ = train(options.program, options.config, settings)
    curve = [(point["iteration"], point["loss"]) for point in summary["evaluations"]]
    return curve if all(isinstance(loss, float) and math.isfinite(loss) for _, loss in curve) else []


def _shown(curve: list[tuple[float, float]]) -> str:
    return f"{curve[-1][1]:.4f}" if curve else DIVERGED


def _middle(curve: list[tuple[float, float]]) -> str:
    return f"{curve[len(curve) // 5][1]:.4f}" if curve else DIVERGED


def _compare(options: argparse.Namespace, name: str, rules: dict[str, dict], common: dict[str, object]) -> dict[str, list]:
    """By rule, the curve of each seed."""
    curves: dict[str, list] = {}
    for seed in range(1, options.seeds + 1):
        for rule, settings in rules.items():
            curve = _curve(options, {**settings, **common, "seed": seed})
            say(f"{name}, {rule}, seed {seed}: {_shown(curve)}")
            curves.setdefault(rule, []).append(curve)
    return curves


def _mean(curves: list[list[tuple[float, float]]]) -> str:
    return f"{sum(curve[-1][1] for curve in curves) / len(curves):.4f}" if all(curves) else "-"


def _section(options: argparse.Namespace, name: str, file_name: str, curves: dict[str, list]) -> list[str]:
    lines = [f"## {name}", "", "| rule | after a fifth of the run, by seed | at the end, by seed | mean |", "| --- | --- | --- | --- |"]
    for rule, seeds in curves.items():
        lines.append(f"| {rule} | {', '.join(map(_middle, seeds))} | {', '.join(map(_shown, seeds))} | {_mean(seeds)} |")
    series = [charts.Series(rule, curve, thin=True) for rule, seeds in curves.items() for curve in seeds if curve]
    if not series:
        return [*lines, ""]
    lowest = min(y for each in series for _, y in each.points)
    end = [charts.Series(each.label, each.points[len(each.points) // 2:], thin=True) for each in series]
    highest = max(lowest + 0.05, min(max(y for each in end for _, y in each.points), lowest + 0.6))
    charts.write(os.path.join(options.out, file_name), name, [
        charts.Panel("validation loss, nats per byte", "iteration", series, (lowest, lowest + 1.5)),
        charts.Panel("the second half", "iteration", end, (lowest, highest))])
    return [*lines, "", f"![{name}]({file_name})", ""]


def _bench(options: argparse.Namespace, command: str) -> str:
    document = ["# The rules on text", "",
                f"`{command}` made this: `bench/text/{os.path.basename(options.config)}`, a GPT of 4 layers and dimension 128, byte by "
                "byte, on the King James Bible; four workers; validation loss in nats per byte. K laps are K micro-batches per worker "
                "and update, so an update of K = 4 has seen four times as much.", ""]
    found: dict[str, dict] = {}
    for laps in options.laps:
        found[f"AdamW, K = {laps}"] = _compare(options, f"AdamW, K = {laps}", RULES, {"gradient_accumulation_steps": laps})
    for rate in options.sgd_rates:
        optimizer = {"type": "SGD", "params": {"lr": rate, "momentum": 0.9}}
        name = f"SGD, momentum 0.9, rate {rate:g}"
        found[name] = _compare(options, name, PREDICTED, {"optimizer": json.dumps(optimizer)})
    if not found:
        raise BenchError("nothing to run")
    for number, (name, curves) in enumerate(found.items()):
        document += _section(options, name, f"text-{number + 1}.svg", curves)
    with open(os.path.join(options.out, "text.json"), "w", encoding="utf-8") as file:
        json.dump({"command": command, "curves": found}, file)
    return write_page(options.out, "text.md", document)


if __name__ == "__main__":
    sys.exit(run_command("text", _parse, _bench, sys.argv[1:]))
