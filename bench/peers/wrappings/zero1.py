"""DistributedDataParallel with ZeroRedundancyOptimizer (ZeRO stage 1): optimizer states are sharded."""
import torch
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from peers.gpt import Gpt
from peers.parameters import fill_whole
from peers.spec import RunSpec
from peers.wrappings import Step, adamw_options, ordinary_step


def build(spec: RunSpec, worker: int) -> Step:
    del worker
    model = Gpt(spec.case.shape)
    fill_whole(model, spec.initial)
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW,
                                        parameters_as_bucket_view=True, **adamw_options(spec.case.optimizer))
    return ordinary_step(wrapped, optimizer)
