"""The peers, a function each: it makes the model as that peer wants it and returns what trains it.

A step runs forward, backward, exchange and update on one micro-batch and returns its loss, detached
and unread. Each imports what it needs by itself, so that no peer holds the memory of another's.
"""
import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import torch
from torch import nn

from peers.cases import ADAMW
from peers.gpt import Gpt, fill, fill_whole, loss_of
from peers.runs import RunSpec

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Peer:
    """`save` writes parameters and optimizer into a folder, called by all workers. A Future: it is
    written in the background."""
    step: Step
    save: Callable[[str], Future | None] | None = None


_ADAMW = {**ADAMW, "fused": True}  # one pass over memory, the fastest that PyTorch has on a CPU


def _whole(spec: RunSpec) -> Gpt:
    model = Gpt(spec.case.shape)
    fill_whole(model, spec.initial)
    return model


def _ordinary_step(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> Step:
    """The loop that PyTorch's documentation teaches."""

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        (optimizer or model).zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        if optimizer:
            optimizer.step()
        return loss.detach()

    return step


def _adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), **_ADAMW)


def _engine_step(engine: Callable) -> Step:
    """The loop of DeepSpeed's engine, which RingZero's has, too."""

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = loss_of(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        return loss.detach()

    return step


def compute(spec: RunSpec) -> Peer:
    """The floor of PyTorch: forward and backward, neither exchange nor optimizer."""
    return Peer(_ordinary_step(_whole(spec), None))


def python(spec: RunSpec) -> Peer:
    """RingZero's Python package."""
    import ringzero
    os.environ["RINGZERO_RENDEZVOUS"] = f"file://{os.path.abspath(spec.store)}.ring"
    model = _whole(spec)
    example = torch.zeros(1, spec.case.shape.sequence).long()
    engine, *_ = ringzero.initialize(model=model, config=spec.case.python_configuration,
                                     iterations=spec.iterations,
                                     cut=[*model.block_names, "head"], example=example)
    return Peer(_engine_step(engine))


def ddp(spec: RunSpec, **options: bool) -> Peer:
    """DistributedDataParallel: gradients are copied into buckets, which are all-reduced while the
    backward goes on."""
    from torch.nn.parallel import DistributedDataParallel
    model = _whole(spec)
    optimizer = _adamw(model)

    def save(folder: str) -> None:
        """Worker 0 has everything. The others wait for it in their next all-reduce."""
        if torch.distributed.get_rank() == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()},
                       os.path.join(folder, "state.pt"))

    return Peer(_ordinary_step(DistributedDataParallel(model, **options), optimizer), save)


def ddp_bucket_view(spec: RunSpec) -> Peer:
    """Gradients live in the buckets: one copy less of all of them, in time and in memory."""
    return ddp(spec, gradient_as_bucket_view=True)


def zero1(spec: RunSpec) -> Peer:
    """DDP with ZeroRedundancyOptimizer (ZeRO stage 1): optimizer states are sharded."""
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel
    model = _whole(spec)
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW,
                                        parameters_as_bucket_view=True, **_ADAMW)
    return Peer(_ordinary_step(wrapped, optimizer))


def fsdp2(spec: RunSpec) -> Peer:
    """fully_shard on each block and on the rest, which is ZeRO stage 3; blocks are resharded after
    their forward."""
    from torch.distributed.checkpoint import async_save
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (spec.case.workers,))
    with torch.device("meta"):  # no worker ever holds the whole model
        model = Gpt(spec.case.shape)
    for block in model.blocks():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")

    def put_shard(parameter: nn.Parameter, values: torch.Tensor) -> None:
        """Shards are cut along the first dimension, as torch.chunk cuts."""
        shards, worker = values.chunk(mesh.size()), mesh.get_local_rank()
        if worker < len(shards):
            parameter.to_local().copy_(shards[worker])

    fill(model, spec.initial, put_shard)
    optimizer = _adamw(model)
    # Its collectives would meet those of training.
    group = torch.distributed.new_group() if spec.saves else None

    def save(folder: str) -> Future:
        """Copies the shards, and writes them while training goes on."""
        states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
        return async_save(states, checkpoint_id=folder, process_group=group)

    return Peer(_ordinary_step(model, optimizer), save)


def deepspeed_zero3(spec: RunSpec, **zero: object) -> Peer:
    """DeepSpeed ZeRO stage 3, with its defaults but for clipping. `zero`: more of its section."""
    import deepspeed
    import deepspeed.ops

    # Only for inference, and compiled on the spot: nothing here uses it.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    config = {
        "train_micro_batch_size_per_gpu": spec.case.micro_batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0,  # its default is 1, and nobody else here clips
        "zero_optimization": {"stage": 3, **zero},
        "zero_force_ds_cpu_optimizer": False,  # the same AdamW with states on NVMe as without
    }
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = Gpt(spec.case.shape)

    def put_gathered(parameter: nn.Parameter, values: torch.Tensor) -> None:
        with deepspeed.zero.GatheredParameters(parameter, modifier_rank=0):
            if torch.distributed.get_rank() == 0:
                parameter.copy_(values)

    fill(model, spec.initial, put_gathered)
    # DeepSpeed's own CPU Adam would be compiled here first, with what happens to be installed.
    engine, *_ = deepspeed.initialize(model=model, config=config, optimizer=_adamw(model))

    def save(folder: str) -> None:
        engine.save_checkpoint(folder)

    return Peer(_engine_step(engine), save)


def deepspeed_nvme(spec: RunSpec) -> Peer:
    """Optimizer states in files, with DeepSpeed's defaults: read before an update, written after."""
    offload = {"device": "nvme", "nvme_path": spec.nvme}
    return deepspeed_zero3(spec, offload_optimizer=offload)


def deepspeed_nvme_pipelined(spec: RunSpec) -> Peer:
    """The same in about four parts per worker: one is updated while others are read and written."""
    offload = {"device": "nvme", "nvme_path": spec.nvme, "pipeline_read": True,
               "pipeline_write": True, "buffer_count": 12}
    parts = spec.case.shape.parameters // (4 * spec.case.workers)
    return deepspeed_zero3(spec, offload_optimizer=offload, sub_group_size=parts)
