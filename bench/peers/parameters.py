"""Initial parameters: RingZero's own, copied from the file into a model whose names are the same."""
from collections.abc import Callable

import torch
from torch import nn

from peers.safetensors_file import SafetensorsFile


def fill(model: nn.Module, path: str, put: Callable[[nn.Parameter, torch.Tensor], None]) -> None:
    """Calls put(parameter, whole value) for each. Every parameter must be in the file, and the other way round."""
    with SafetensorsFile(path) as file:
        shapes = {name: getattr(p, "ds_shape", p.shape) for name, p in model.named_parameters()}
        if unknown := set(file.names) ^ set(shapes):
            raise ValueError(f"{path}: the file and the model have different parameters: {sorted(unknown)}")
        for name, parameter in model.named_parameters():
            shape = tuple(shapes[name])
            values = torch.frombuffer(bytearray(file.floats(name, shape)), dtype=torch.float32).view(shape)
            put(parameter, values)


def fill_whole(model: nn.Module, path: str) -> None:
    """For a model that every worker holds whole."""
    with torch.no_grad():
        fill(model, path, lambda parameter, values: parameter.copy_(values))
