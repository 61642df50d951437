"""The floor of PyTorch: forward and backward, neither exchange nor optimizer."""
import torch

from peers.gpt import Gpt, loss_of
from peers.parameters import fill_whole
from peers.spec import RunSpec
from peers.wrappings import Step


def build(spec: RunSpec, worker: int) -> Step:
    del worker
    model = Gpt(spec.case.shape)
    fill_whole(model, spec.initial)

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        return loss.detach()

    return step
