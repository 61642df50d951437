"""DeepSpeed ZeRO stage 3, with its defaults but for clipping."""
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read when deepspeed is imported

import deepspeed
import deepspeed.ops
import torch
from torch import nn

from peers.gpt import Gpt, loss_of
from peers.parameters import fill
from peers.spec import RunSpec
from peers.wrappings import Step, make_adamw

# Only for inference, and compiled on the spot: nothing here uses it.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def _put_gathered(parameter: nn.Parameter, values: torch.Tensor) -> None:
    with deepspeed.zero.GatheredParameters(parameter, modifier_rank=0):
        if torch.distributed.get_rank() == 0:
            parameter.copy_(values)


def build(spec: RunSpec, worker: int) -> Step:
    del worker
    config = {
        "train_micro_batch_size_per_gpu": spec.case.micro_batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0,  # its default is 1, and nobody else here clips
        "zero_optimization": {"stage": 3},
    }
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = Gpt(spec.case.shape)
    with torch.no_grad():
        fill(model, spec.initial, _put_gathered)
    # DeepSpeed's own CPU Adam would be compiled here first, with what happens to be installed: torch's it is, for all.
    engine, *_ = deepspeed.initialize(model=model, config=config,
                                      optimizer=make_adamw(model.parameters(), spec.case.optimizer))

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = loss_of(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        return loss.detach()

    return step
