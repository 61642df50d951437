"""FSDP2: fully_shard on each block and on the rest, which is ZeRO stage 3; blocks are resharded after their forward."""
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from peers.gpt import Gpt
from peers.parameters import fill
from peers.spec import RunSpec
from peers.wrappings import Step, make_adamw, ordinary_step


def _put_shard(parameter: nn.Parameter, values: torch.Tensor) -> None:
    """Shards are cut along the first dimension, as torch.chunk cuts."""
    shards = values.chunk(parameter.device_mesh.size())
    worker = parameter.device_mesh.get_local_rank()
    if worker < len(shards):
        parameter.to_local().copy_(shards[worker])


def build(spec: RunSpec, worker: int) -> Step:
    del worker
    mesh = init_device_mesh("cpu", (spec.case.workers,))
    with torch.device("meta"):  # no worker ever holds the whole model
        model = Gpt(spec.case.shape)
    for block in model.blocks():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    with torch.no_grad():
        fill(model, spec.initial, _put_shard)
    return ordinary_step(model, make_adamw(model.parameters(), spec.case.optimizer))
