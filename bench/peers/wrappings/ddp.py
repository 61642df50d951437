"""DistributedDataParallel without options: gradients are copied into buckets, which are all-reduced while the backward goes on."""
from torch.nn.parallel import DistributedDataParallel

from peers.gpt import Gpt
from peers.parameters import fill_whole
from peers.spec import RunSpec
from peers.wrappings import Step, make_adamw, ordinary_step


def build(spec: RunSpec, worker: int) -> Step:
    del worker
    model = Gpt(spec.case.shape)
    fill_whole(model, spec.initial)
    return ordinary_step(DistributedDataParallel(model), make_adamw(model.parameters(), spec.case.optimizer))
