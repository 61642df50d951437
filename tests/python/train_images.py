"""A small convolution net with BatchNorm on random images. Arguments: sequential, functions or modules; accumulation steps;
planned, asks (for an evaluation, and to stop), or the iterations of the run."""
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
    kind, laps, length = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.manual_seed(2)
    model = parts() if kind == "functions" else [part() for part in parts()]
    if kind == "sequential":
        model = nn.Sequential(*model)
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": laps, "epochs": 2, "evaluation": {"every": 3},
              "optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}}}
    if length != "planned":
        config.update({"iterations": 100 if length == "asks" else int(length), "evaluation": {"every": 0}})
        del config["epochs"]
    # 21 samples: the third batch of an epoch has 5, and a micro-batch of it has 1, another none.
    engine, _, loader, _ = ringzero.initialize(model=model, config=config, training_data=samples(1, 21), evaluation_data=samples(4, 7))
    asked = []
    while not engine.over:
        for images, labels in loader:
            engine.backward(nn.functional.cross_entropy(engine(images), labels))
            engine.step()
            if length == "asks" and engine.micro_steps == 2 * laps:
                asked = [engine.request_evaluation(), engine.stop()]
            if engine.evaluation_due:
                engine.evaluate(lambda batch: nn.functional.cross_entropy(engine(batch[0]), batch[1]))
    state = engine.state_dict()
    engine.close()
    print(json.dumps({"sha": workers.digest(state), "losses": engine.losses, "evaluations": engine.evaluations, "names": sorted(state), "asked": asked}))


if __name__ == "__main__":
    main()
