"""A small convolution net with BatchNorm on random images. Arguments: sequential, functions or modules; accumulation steps."""
import json
import sys

import torch
from torch import nn

import ringzero
import workers


def parts() -> list:
    return [lambda: nn.Conv2d(1, 4, 3), lambda: nn.BatchNorm2d(4), nn.ReLU, nn.Flatten, lambda: nn.Linear(4 * 36, 10)]


def samples(seed: int, count: int) -> list:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(1, 8, 8, generator=generator), int(torch.randint(0, 10, (), generator=generator))) for _ in range(count)]


def main() -> None:
    kind, laps = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(2)
    model = parts() if kind == "functions" else [part() for part in parts()]
    if kind == "sequential":
        model = nn.Sequential(*model)
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": laps, "epochs": 2, "evaluation": {"every": 3},
              "optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}}}
    # 21 samples: the third batch of an epoch has 5, and a micro-batch of it has 1, another none.
    engine, _, loader, _ = ringzero.initialize(model=model, config=config, training_data=samples(1, 21), evaluation_data=samples(4, 7))
    for _ in range(2):
        for images, labels in loader:
            engine.backward(nn.functional.cross_entropy(engine(images), labels))
            engine.step()
            if engine.evaluation_due:
                engine.evaluate(lambda batch: nn.functional.cross_entropy(engine(batch[0]), batch[1]))
    state = engine.state_dict()
    engine.close()
    print(json.dumps({"sha": workers.digest(state), "losses": engine.losses, "evaluations": engine.evaluations, "names": sorted(state)}))


if __name__ == "__main__":
    main()
