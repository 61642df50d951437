"""The command `./rz bench curve`: the loss of examples/gpt_text.json under its own rule, under `dp`, and in plain PyTorch.

Plain PyTorch (plain.py) has the same initial parameters, batches and learning rates. The times are not looked at.
"""
import argparse
import json
import os
import re
import sys
import tempfile
from dataclasses import dataclass

import charts
from ring_run import bench_parser, run_command, say, train, write_page

EXAMPLE = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "gpt_text.json")
EARLY = 200  # the iteration of the first figure
EVERY = 50   # iterations between two evaluations


@dataclass
class Curve:
    losses: list[float]                   # training, one per iteration
    held_out: list[tuple[int, float]]     # (iteration, loss)
    rates: list[float]

    def at(self, iteration: int) -> float:
        return dict(self.held_out)[iteration]

    def rise(self) -> float:
        """How far a training loss lies above the lowest before it, at most."""
        return max(loss - min(self.losses[:i]) for i, loss in enumerate(self.losses) if i > 0)


def _parse(words: list[str]) -> argparse.Namespace:
    parser = bench_parser("curve", __doc__)
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="1 to N [3]")
    return parser.parse_args(words)


def _example() -> dict:
    with open(EXAMPLE, encoding="utf-8") as file:
        return json.loads(re.sub(r"//.*", "", file.read()))


def _ring(options: argparse.Namespace, settings: dict[str, object]) -> Curve:
    with tempfile.TemporaryDirectory() as folder:
        summary, _ = train(options.program, EXAMPLE, {"evaluation.every": EVERY, **settings}, ["--metrics", folder])
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
            scalars = [json.loads(line)["scalars"] for line in file]
    trained = [each for each in scalars if "Train/Samples/train_loss" in each]
    return Curve([each["Train/Samples/train_loss"] for each in trained],
                 [(point["iteration"], point["loss"]) for point in summary["evaluations"]],
                 [each["Train/Samples/lr"] for each in trained])


def _plain(options: argparse.Namespace, config: dict, seed: int, rates: list[float]) -> Curve:
    from curve import plain  # loads PyTorch

    with tempfile.TemporaryDirectory() as folder:
        initial = os.path.join(folder, "initial.safetensors")
        # One update by nothing.
        train(options.program, EXAMPLE, {"seed": seed, "iterations": 1, "evaluation.every": 0, "optimizer.params.lr": 0},
              ["--dump-parameters", initial])
        return Curve(*plain.train({**config, "seed": seed}, initial, rates, EVERY), rates)


def _table(curves: dict[str, list[Curve]], last: int) -> list[str]:
    lines = [f"| what | held-out loss after {EARLY} iterations, by seed | after {last:,} | greatest rise of a training loss |",
             "| --- | --- | --- | --- |"]
    for name, seeds in curves.items():
        def shown(value) -> str:
            return ", ".join(f"{value(curve):.3f}" for curve in seeds)
        lines.append(f"| {name} | {shown(lambda c: c.at(EARLY))} | {shown(lambda c: c.at(last))} | {shown(Curve.rise)} |")
    return lines


def _bench(options: argparse.Namespace, command: str) -> str:
    config = _example()
    own = config["cyclic"]["rule"]
    curves: dict[str, list[Curve]] = {f"`{own}`, the example's rule": [], "`dp`": [], "plain PyTorch": []}
    for seed in range(1, options.seeds + 1):
        found = [_ring(options, {"seed": seed}), _ring(options, {"seed": seed, "cyclic.rule": "dp"})]
        found.append(_plain(options, config, seed, found[1].rates))
        for seeds, curve in zip(curves.values(), found):
            seeds.append(curve)
        say(f"seed {seed}: " + ", ".join(f"{curve.held_out[-1][1]:.4f}" for curve in found))
    series = [charts.Series(name.replace("`", ""), curve.held_out, thin=True)
              for name, seeds in curves.items() for curve in seeds]
    charts.write(os.path.join(options.out, "curve.svg"), "examples/gpt_text.json", [
        charts.Panel("held-out loss, nats per byte", "iteration", series, y_range=(1.4, 3.4))])
    return write_page(options.out, "curve.md", [
        "# The first curve", "",
        f"`{command}` made this: `examples/gpt_text.json`, a GPT byte by byte on the King James Bible, four workers, losses in nats per "
        "byte. Plain PyTorch is one process with a loop of its own (`bench/curve/plain.py`): the same initial parameters, batches and "
        "learning rates, `torch.optim.AdamW` and `clip_grad_norm_`. The greatest rise is how far a training loss lies above the lowest "
        "loss before it.", "", *_table(curves, config["iterations"]), "", "![held-out loss](curve.svg)", ""])


if __name__ == "__main__":
    sys.exit(run_command("curve", _parse, _bench, sys.argv[1:]))
