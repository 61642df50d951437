"""The command `./rz bench text`: what a delayed update costs a GPT on the King James Bible. The
times are not looked at.

First AdamW under every rule, with one lap and with several, then SGD with momentum, with and
without `predict`.
"""
import math
import os

import charts
from ring_run import RULES, Options, bench_parser, main, of_rule, positive, say, table,
                      train, write_json

Curve = list[tuple[float, float]]  # (iteration, validation loss in nats per byte); empty: diverged
STRICT = of_rule("cdp_v2", strict=True, slack=0)
ADAMW = {**{rule: RULES[rule] for rule in ("dp", "cdp_v2, slack 0", "cdp_v2, slack 1")},
         "cdp_v2, strict": STRICT, "cdp_v1": RULES["cdp_v1"]}
PREDICTED = {"dp": RULES["dp"]}
for _rule in ("cdp_v2, slack 1", "cdp_v1"):
    PREDICTED[_rule] = RULES[_rule]
    PREDICTED[f"{_rule}, predict"] = {**RULES[_rule], "cyclic.predict": True}


def _shown(seeds: list[Curve], early: bool = False) -> str:
    return ", ".join(f"{curve[len(curve) // 5 if early else -1][1]:.4f}" if curve else "diverged"
                     for curve in seeds)


def _compare(options: Options, name: str, rules: dict[str, dict],
             common: dict[str, object]) -> dict[str, list[Curve]]:
    """By rule, the curve of each seed."""
    if options.iterations is not None:
        common = {**common, "iterations": options.iterations}
    curves: dict[str, list[Curve]] = {rule: [] for rule in rules}
    for seed in range(1, options.seeds + 1):
        for rule, settings in rules.items():
            summary = train(options, {**settings, **common, "seed": seed})
            curve = [(point["iteration"], point["loss"]) for point in summary["evaluations"]]
            finite = all(isinstance(loss, float) and math.isfinite(loss) for _, loss in curve)
            curves[rule].append(curve if finite else [])
            say(f"{name}, {rule}, seed {seed}: {_shown(curves[rule][-1:])}")
    return curves


def _section(options: Options, name: str, file_name: str,
             curves: dict[str, list[Curve]]) -> list[str]:
    rows = [[rule, _shown(seeds, early=True), _shown(seeds),
             f"{sum(curve[-1][1] for curve in seeds) / len(seeds):.4f}" if all(seeds) else "-"]
            for rule, seeds in curves.items()]
    titles = ["rule", "after a fifth of the run, by seed", "at the end, by seed", "mean"]
    lines = ["", f"## {name}", "", *table(titles, rows)]
    series = [charts.Series(rule, curve, thin=True)
              for rule, seeds in curves.items() for curve in seeds if curve]
    if not series:
        return lines
    lowest = min(y for each in series for _, y in each.points)
    end = [charts.Series(each.label, each.points[len(each.points) // 2:], thin=True)
           for each in series]
    highest = min(max(y for each in end for _, y in each.points), lowest + 0.6)
    charts.write(os.path.join(options.out, file_name), name, [
        charts.Panel("validation loss, nats per byte", "iteration", series, (lowest, lowest + 1.5)),
        charts.Panel("the second half", "iteration", end, (lowest, max(lowest + 0.05, highest)))])
    return [*lines, "", f"![{name}]({file_name})"]


def _bench(options: Options, command: str) -> list[str]:
    document = ["# The rules on text", "",
                f"`{command}` made this: `bench/text/{os.path.basename(options.config)}`, a GPT of "
                "4 layers and dimension 128, byte by byte, on the King James Bible; four workers; "
                "validation loss in nats per byte. K laps are K micro-batches per worker and "
                "update, so an update of K = 4 has seen four times as much."]
    found = {}
    for laps in options.laps:
        name, common = f"AdamW, K = {laps}", {"gradient_accumulation_steps": laps}
        found[name] = _compare(options, name, ADAMW, common)
    for rate in options.sgd_rates:
        name = f"SGD, momentum 0.9, rate {rate:g}"
        common = {"optimizer": {"type": "SGD", "params": {"lr": rate, "momentum": 0.9}}}
        found[name] = _compare(options, name, PREDICTED, common)
    for number, (name, curves) in enumerate(found.items()):
        document += _section(options, name, f"text-{number + 1}.svg", curves)
    write_json({"command": command, "curves": found}, options.out, "text.json")
    return document


if __name__ == "__main__":
    PARSER = bench_parser("text", __doc__, config="text/gpt.json", seeds=2)
    PARSER.add_argument("--iterations", type=positive, metavar="N", help="[the config's]")
    PARSER.add_argument("--laps", nargs="+", type=int, default=[1, 4], metavar="K", help="[1 4]")
    PARSER.add_argument("--sgd-rates", nargs="+", type=float, default=[0.05], metavar="LR",
                        help="[0.05]")
    main(PARSER, _bench)
