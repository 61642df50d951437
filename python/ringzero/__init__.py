"""RingZero: ZeRO on a ring.

    engine, optimizer, loader, scheduler = ringzero.initialize(model=model, config="config.json", training_data=data)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(engine(x), y)
        engine.backward(loss)
        engine.step()
    engine.close()
"""
import torch as _torch  # first: its libraries are ours, too

from ringzero import _version

_version.check(_torch.__version__)

from ringzero.engine import Engine, initialize  # noqa: E402
from ringzero.errors import InputError, NotFinite, RingZeroError, WaitTimeout, WorkerLost  # noqa: E402

__version__ = _version.RINGZERO
__all__ = ["Engine", "InputError", "NotFinite", "RingZeroError", "WaitTimeout", "WorkerLost", "initialize"]
