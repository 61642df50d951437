"""RingZero: ZeRO on a ring.

    engine, optimizer, loader, scheduler = ringzero.initialize(
        model=model, config="config.json", training_data=data)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(engine(x), y)
        engine.backward(loss)
        engine.step()
    engine.close()
"""
import torch as _torch  # first: its libraries are ours, too

from ringzero._version import RINGZERO as __version__, TORCH as _TORCH

if _torch.__version__.split("+")[0] != _TORCH:  # else: an undefined symbol, or worse
    raise ImportError(f"ringzero {__version__} was built with torch {_TORCH}, but torch "
                      f"{_torch.__version__} is installed: pip install torch=={_TORCH}")

from ringzero.engine import Engine, add_config_arguments, init_distributed, initialize
from ringzero.errors import InputError, NotFinite, RingZeroError, WaitTimeout, WorkerLost

__all__ = ["Engine", "InputError", "NotFinite", "RingZeroError", "WaitTimeout", "WorkerLost",
           "add_config_arguments", "init_distributed", "initialize"]
