"""The command `./rz bench rules`: what a delayed update costs in accuracy. The times are not looked at."""
import argparse
import json
import os
import sys

import charts
from ring_run import bench_parser, run_command, say, train, write_page

RULES = {"dp": {"cyclic.rule": "dp"},
         "cdp_v2, slack 0": {"cyclic.rule": "cdp_v2", "cyclic.slack": 0},
         "cdp_v2, slack 1": {"cyclic.rule": "cdp_v2", "cyclic.slack": 1},
         "cdp_v1": {"cyclic.rule": "cdp_v1"}}
_SMOOTHED = 20  # printed losses in one point of the curve


def _parse(words: list[str]) -> argparse.Namespace:
    parser = bench_parser("rules", __doc__, os.path.join(os.path.dirname(__file__), "fashion_mnist.json"))
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="1 to N [2]")
    parser.add_argument("--rate", type=float, action="append", metavar="LR", help="learning rate, repeatable [the config's]")
    return parser.parse_args(words)


def _smooth(losses: list[tuple[int, float]]) -> list[tuple[float, float]]:
    chunks = [losses[i:i + _SMOOTHED] for i in range(0, len(losses), _SMOOTHED)]
    return [(chunk[-1][0], sum(loss for _, loss in chunk) / len(chunk)) for chunk in chunks]


def _accuracies(summary: dict) -> list[tuple[float, float]]:
    return [(point["iteration"], 100 * point["accuracy"]) for point in summary["evaluations"]]


def _draw(path: str, title: str, runs: list[dict]) -> None:
    accuracy = [charts.Series(run["rule"], _accuracies(run["summary"])) for run in runs]
    loss = [charts.Series(run["rule"], _smooth(run["losses"]), thin=True) for run in runs]
    charts.write(path, title, [
        charts.Panel("held-out accuracy, %", "iteration", accuracy, y_range=(70, 92)),
        charts.Panel(f"training loss, mean of {_SMOOTHED} printed", "iteration", loss, y_range=(0.2, 1.0))])


def _table(runs: list[dict]) -> list[str]:
    lines = ["| rule | held-out accuracy, %, by seed | mean | last training loss |", "| --- | --- | --- | --- |"]
    for rule in RULES:
        own = [run for run in runs if run["rule"] == rule]
        reached = [100 * run["summary"]["accuracy"] for run in own]
        last = [_smooth(run["losses"])[-1][1] for run in own]
        lines.append(f"| {rule} | {', '.join(f'{value:.2f}' for value in reached)} | {sum(reached) / len(reached):.2f} | "
                     f"{sum(last) / len(last):.3f} |")
    return lines


def _bench(options: argparse.Namespace, command: str) -> str:
    document = ["# The rules' accuracy", "",
                f"`{command}` made this: ResNet-20 (width 8) on Fashion-MNIST, SGD with momentum 0.9, four workers; "
                "one thin line per seed.", ""]
    everything = []
    for rate in options.rate or [None]:
        runs = []
        for seed in range(1, options.seeds + 1):
            for rule, settings in RULES.items():
                more = {} if rate is None else {"optimizer.params.lr": rate}
                summary, losses = train(options.program, options.config, {**settings, **more, "seed": seed})
                say(f"rate {rate or 'of the config'}, seed {seed}, {rule}: {100 * summary['accuracy']:.2f} %")
                runs.append({"rate": rate, "seed": seed, "rule": rule, "summary": summary, "losses": losses})
        name = "rules.svg" if rate is None else f"rules-{rate:g}.svg"
        title = "the rules" if rate is None else f"learning rate {rate:g}"
        _draw(os.path.join(options.out, name), f"ResNet-20 on Fashion-MNIST, {title}", runs)
        document += [f"## {title[0].upper()}{title[1:]}", "", *_table(runs), "", f"![accuracy and loss]({name})", ""]
        everything += runs
    with open(os.path.join(options.out, "rules.json"), "w", encoding="utf-8") as file:
        json.dump({"command": command, "runs": everything}, file)
    return write_page(options.out, "rules.md", document)


if __name__ == "__main__":
    sys.exit(run_command("rules", _parse, _bench, sys.argv[1:]))
