"""A plain training loop in PyTorch, with RingZero's initial parameters, batches and rates.

    losses, held_out = train(config, "initial.safetensors", rates, every=50)
"""
import struct
import subprocess
import types

import torch

from peers.batches import epoch_order
from peers.gpt import Gpt, fill_whole, loss_of


def _bible(path: str) -> bytes:
    """The text in the package's file, whose parts are what compress(1) makes, without its head
    (integrations/data/dataset.cc)."""
    with open(path, "rb") as file:
        packed = file.read()
    (count,) = struct.unpack_from(">I", packed, 88)
    places = struct.unpack_from(f">{count + 1}I", packed, 92)
    parts = [b"\x1f\x9d\x90" + packed[begin:end] for begin, end in zip(places, places[1:])]
    return b"".join(subprocess.run(["gzip", "-dc"], input=part, capture_output=True,
                                   check=True).stdout for part in parts)


def _split(path: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes to train on, and the last tenth (integrations/data/dataset.cc)."""
    text = torch.frombuffer(bytearray(_bible(path)), dtype=torch.uint8).long()
    held_out = len(text) // 10
    return text[:-held_out], text[-held_out:]


def _samples(text: torch.Tensor, indices: range | tuple[int, ...],
             length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, {samples, length} each."""
    both = torch.stack([text[index * length:(index + 1) * length + 1] for index in indices])
    return both[:, :-1], both[:, 1:]


def train(config: dict, initial: str, rates: list[float], every: int,
          kind: type[torch.optim.Optimizer] = torch.optim.AdamW,
          **settings: object) -> tuple[list[float], list[tuple[int, float]]]:
    """The training losses, and (iteration, held-out loss) each `every` iterations. `config`: as in
    the example's file, but for the optimizer, which is of this `kind` with these `settings`, too."""
    described, adam = config["model"], config["optimizer"]["params"]
    length = described["seq"]
    model = Gpt(types.SimpleNamespace(**described, sequence=length, vocabulary=described["vocab"]))
    model.head.weight = model.embedding.token
    fill_whole(model, initial)
    optimizer = kind(model.parameters(), lr=rates[0], betas=tuple(adam["betas"]),
                     weight_decay=adam["weight_decay"], **settings)
    training, held_out = _split(config["data"]["path"])
    size = (len(training) - 1) // length
    batch = (config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
             * config["cyclic"]["workers"])
    per_epoch = -(-size // batch)
    losses, found = [], []
    for iteration, rate in enumerate(rates):
        first = iteration % per_epoch * batch
        order = epoch_order(config["seed"], iteration // per_epoch, size)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        inputs, targets = _samples(training, order[first:first + batch], length)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        if config["gradient_clipping"]:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config["gradient_clipping"])
        optimizer.step()
        losses.append(loss.item())
        if (iteration + 1) % every == 0:
            with torch.no_grad():
                inputs, targets = _samples(held_out, range(config["evaluation"]["samples"]), length)
                found.append((iteration + 1, loss_of(model(inputs), targets).item()))
    return losses, found
