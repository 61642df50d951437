"""The command `./rz bench curve`: the loss of examples/gpt_text.json under its own rule, under
`dp`, and in plain PyTorch.

Plain PyTorch (plain.py) has the same initial parameters, batches and learning rates. The times are
not looked at.
"""
import os
import tempfile
from dataclasses import dataclass

import charts
from ring_run import (Options, bench_parser, dump_initial, main, read_config, say, table,
                      train_with_metrics)

EXAMPLE = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "gpt_text.json")
EARLY = 200  # the iteration of the first figure
EVERY = 50   # iterations between two evaluations


@dataclass
class Curve:
    losses: list[float]                   # training, one per iteration
    held_out: list[tuple[int, float]]     # (iteration, loss)

    def rise(self) -> float:
        """How far a training loss lies above the lowest before it, at most."""
        return max(loss - min(self.losses[:i]) for i, loss in enumerate(self.losses) if i > 0)


def _ring(options: Options, settings: dict[str, object]) -> tuple[Curve, list[float]]:
    """And the learning rates."""
    settings = {"evaluation.every": EVERY, **settings}
    summary, scalars = train_with_metrics(options, settings, EXAMPLE)
    held_out = [(point["iteration"], point["loss"]) for point in summary["evaluations"]]
    losses, rates = ([each[f"Train/Samples/{name}"] for each in scalars]
                     for name in ("train_loss", "lr"))
    return Curve(losses, held_out), rates


def _plain(options: Options, config: dict, seed: int, rates: list[float]) -> Curve:
    from curve import plain  # loads PyTorch

    with tempfile.TemporaryDirectory() as folder:
        initial = os.path.join(folder, "initial.safetensors")
        dump_initial(options, EXAMPLE, seed, initial)
        return Curve(*plain.train({**config, "seed": seed}, initial, rates, EVERY))


def _bench(options: Options, command: str) -> list[str]:
    config = read_config(EXAMPLE)
    last = config["iterations"]
    curves: dict[str, list[Curve]] = {f"`{config['cyclic']['rule']}`, the example's rule": [],
                                      "`dp`": [], "plain PyTorch": []}
    for seed in range(1, options.seeds + 1):
        dp, rates = _ring(options, {"seed": seed, "cyclic.rule": "dp"})
        found = [_ring(options, {"seed": seed})[0], dp, _plain(options, config, seed, rates)]
        for seeds, curve in zip(curves.values(), found):
            seeds.append(curve)
        say(f"seed {seed}: " + ", ".join(f"{curve.held_out[-1][1]:.4f}" for curve in found))
    series = [charts.Series(name.replace("`", ""), curve.held_out, thin=True)
              for name, seeds in curves.items() for curve in seeds]
    charts.write(os.path.join(options.out, "curve.svg"), "examples/gpt_text.json", [
        charts.Panel("held-out loss, nats per byte", "iteration", series, y_range=(1.4, 3.4))])
    figures = (lambda curve: dict(curve.held_out)[EARLY], lambda curve: dict(curve.held_out)[last],
               Curve.rise)
    rows = [[name, *(", ".join(f"{figure(curve):.3f}" for curve in seeds) for figure in figures)]
            for name, seeds in curves.items()]
    return ["# The first curve", "",
            f"`{command}` made this: `examples/gpt_text.json`, a GPT byte by byte on the King "
            "James Bible, four workers, losses in nats per byte. Plain PyTorch is one process with "
            "a loop of its own (`bench/curve/plain.py`): the same initial parameters, batches and "
            "learning rates, `torch.optim.AdamW` and `clip_grad_norm_`. The greatest rise is how "
            "far a training loss lies above the lowest loss before it.", "",
            *table(["what", f"held-out loss after {EARLY} iterations, by seed", f"after {last:,}",
                    "greatest rise of a training loss"], rows),
            "", "![held-out loss](curve.svg)"]


if __name__ == "__main__":
    main(bench_parser("curve", __doc__, seeds=3), _bench)
