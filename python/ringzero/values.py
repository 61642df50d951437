"""The values of a module's parameters, which it has within a micro-batch only."""
from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import nn

from ringzero.errors import refuse


def _refuse_copy(*_: Any, **__: Any) -> NoReturn:
    raise refuse("the parameters of this module have values within a micro-batch only. After the "
                 "last iteration engine.state_dict() gives them, engine.save_pretrained(folder) "
                 "writes them, and engine.close(values=True) leaves them in the module")


_REFUSED = ("state_dict", "_apply", "__reduce_ex__")  # saving, to(), copying and pickling


class Values:
    """Outside of a micro-batch parameters are meta tensors: shapes and types can be read, values
    cannot. What would copy them without an error is refused."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._places: list[tuple[dict, str, nn.Parameter, nn.Parameter]] = []
        self._shown = True
        metas: dict[int, nn.Parameter] = {}
        for part in module.modules():
            part.__dict__.update(dict.fromkeys(_REFUSED, _refuse_copy))
            for name, real in part._parameters.items():
                if real is not None and id(real) not in metas:
                    meta = nn.Parameter(torch.empty_like(real, device="meta"), real.requires_grad)
                    meta.__deepcopy__ = meta.__reduce_ex__ = _refuse_copy
                    metas[id(real)] = meta
                if real is not None:
                    self._places.append((part._parameters, name, real, metas[id(real)]))
        self.show(False)

    def show(self, on: bool) -> None:
        if on != self._shown:
            self._shown = on
            for holder, name, real, meta in self._places:
                holder[name] = real if on else meta

    def fill(self, state: dict[str, torch.Tensor]) -> None:
        """The run is over, and the module holds these values."""
        for part in self._module.modules():
            for name in _REFUSED:
                part.__dict__.pop(name, None)
        members = [*self._module.named_parameters(), *self._module.named_buffers()]
        for name, tensor in members:
            if name in state:
                tensor.data = state[name]
