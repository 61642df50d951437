"""A script as DeepSpeed's tutorials have it, with one import changed. It trains a small convolution net on Fashion-MNIST.

    torchrun --nproc-per-node 2 examples/python/fashion_deepspeed.py --deepspeed_config examples/python/fashion.json
"""
import argparse
import gzip

import torch
from torch import nn

import ringzero as deepspeed  # was: import deepspeed


def read(name: str, header: int) -> torch.Tensor:
    """An IDX file of Debian's package dataset-fashion-mnist."""
    with gzip.open(f"/usr/share/datasets/fashion-mnist/{name}.gz") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)[header:]


def fashion() -> torch.utils.data.Dataset:
    images = read("train-images-idx3-ubyte", 16).view(-1, 1, 28, 28).float() / 255 - 0.286
    return torch.utils.data.TensorDataset(images, read("train-labels-idx1-ubyte", 8).long())


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2),
                         nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    args = deepspeed.add_config_arguments(parser).parse_args()
    deepspeed.init_distributed()
    torch.manual_seed(1)
    model = net()
    engine, _, loader, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters(),
                                                training_data=fashion())
    criterion = nn.CrossEntropyLoss()
    for images, labels in loader:
        loss = criterion(engine(images.to(engine.device)), labels.to(engine.device))
        engine.backward(loss)
        engine.step()
        if engine.global_rank == 0 and engine.losses and engine.micro_steps % (50 * engine.gradient_accumulation_steps()) == 0:
            print(f"iteration {engine.global_steps}: loss {engine.losses[-1]:.3f}, rate {engine.get_lr()[0]:g}")


if __name__ == "__main__":
    main()
