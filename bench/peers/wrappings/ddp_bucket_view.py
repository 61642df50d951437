"""DistributedDataParallel whose gradients live in its buckets: one copy less of all of them, in time and in memory."""
from torch.nn.parallel import DistributedDataParallel

from peers.gpt import Gpt
from peers.parameters import fill_whole
from peers.spec import RunSpec
from peers.wrappings import Step, make_adamw, ordinary_step


def build(spec: RunSpec, worker: int) -> Step:
    del worker
    model = Gpt(spec.case.shape)
    fill_whole(model, spec.initial)
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return ordinary_step(wrapped, make_adamw(model.parameters(), spec.case.optimizer))
