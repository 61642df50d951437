"""One file per peer: build(spec, worker) makes the model as that peer wants it and returns its step.

A step runs forward, backward, exchange and update on one micro-batch and returns its loss, detached and unread.
"""
from collections.abc import Callable, Iterable

import torch
from torch import nn

from peers.cases import AdamW
from peers.gpt import loss_of

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def adamw_options(options: AdamW) -> dict:
    """For torch.optim.AdamW. `fused`: one pass over memory, the fastest that PyTorch has on a CPU."""
    return {"lr": options.lr, "betas": options.betas, "eps": options.eps, "weight_decay": options.weight_decay,
            "fused": True}


def make_adamw(parameters: Iterable[nn.Parameter], options: AdamW) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, **adamw_options(options))


def ordinary_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """The loop that PyTorch's documentation teaches."""

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
