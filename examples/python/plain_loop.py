"""The loop of PyTorch's own tutorials. Three lines differ: the import, initialize, and the engine that is called.

    torchrun --nproc-per-node 2 examples/python/plain_loop.py
"""
import torch
from torch import nn

import ringzero

ITERATIONS = 200


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Points of the plane, and whether they lie in the ring between two circles."""
    points = 2 * torch.rand(64, 2) - 1
    radius = points.norm(dim=1)
    return points, ((0.4 < radius) & (radius < 0.8)).long()


def main() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    config = {"train_micro_batch_size_per_gpu": 64, "optimizer": {"type": "Adam", "params": {"lr": 0.01}}}
    engine, optimizer, _, _ = ringzero.initialize(model=model, config=config, iterations=ITERATIONS, example=torch.zeros(1, 2))
    torch.manual_seed(engine.global_rank)  # each worker has points of its own
    for _ in range(ITERATIONS):
        points, inside = batch()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(engine(points), inside)
        loss.backward()
        optimizer.step()
    engine.close(values=True)
    if engine.global_rank == 0:
        points, inside = batch()
        right = (model(points).argmax(1) == inside).float().mean()
        print(f"{100 * right:.0f} % of new points are right")


if __name__ == "__main__":
    main()
