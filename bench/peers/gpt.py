"""The GPT of integrations/torch/models/gpt.cc, in PyTorch: the same layers, operators and names.

Parameters are made empty: their values come from a file of `ringzero train --dump-parameters`.
"""
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from peers.cases import Shape
from peers.runs import tensors_in


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.utils.skip_init(nn.Linear, inputs, outputs)


class Embedding(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.empty(shape.vocabulary, shape.dim))
        self.position = nn.Parameter(torch.empty(shape.sequence, shape.dim))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return functional.embedding(tokens, self.token) + self.position[: tokens.shape[1]]


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.dim)
        self.qkv = _linear(shape.dim, 3 * shape.dim)
        self.project = _linear(shape.dim, shape.dim)
        self.heads = shape.heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, dim = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        return x + self.project(mixed.transpose(1, 2).reshape(batch, length, dim))


class Mlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.dim)
        self.expand = _linear(shape.dim, 4 * shape.dim)
        self.project = _linear(4 * shape.dim, shape.dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.project(functional.gelu(self.expand(self.norm(x)), approximate="tanh"))


class Block(nn.Module):
    """What FSDP2 shards as one unit."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention = Attention(shape)
        self.mlp = Mlp(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp(self.attention(x))


class Head(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.dim)
        self.weight = nn.Parameter(torch.empty(shape.vocabulary, shape.dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(self.norm(x), self.weight)


class Gpt(nn.Module):
    """int64 tokens {batch, sequence} -> logits {batch, sequence, vocabulary}."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = Embedding(shape)
        self.block_names = [f"block{i}" for i in range(shape.layers)]
        for name in self.block_names:
            self.add_module(name, Block(shape))
        self.head = Head(shape)

    def blocks(self) -> list[nn.Module]:
        return [self.get_submodule(name) for name in self.block_names]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks():
            x = block(x)
        return self.head(x)


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy over all tokens."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def fill(model: nn.Module, path: str, put: Callable[[nn.Parameter, torch.Tensor], None]) -> None:
    """Calls put(parameter, whole value) for each. The file and the model must have the same."""
    named = dict(model.named_parameters())
    for name, shape, values in tensors_in(path):
        if (parameter := named.pop(name, None)) is None:
            raise ValueError(f"{path}: the model has no parameter '{name}'")
        wanted = tuple(getattr(parameter, "ds_shape", parameter.shape))
        if shape != wanted:
            raise ValueError(f"{path}: '{name}' has the shape {shape}, wanted {wanted}")
        put(parameter, torch.frombuffer(bytearray(values), dtype=torch.float32).view(shape))
    if named:
        raise ValueError(f"{path} lacks {sorted(named)}")


def fill_whole(model: nn.Module, path: str) -> None:
    """For a model that every worker holds whole."""
    fill(model, path, lambda parameter, values: parameter.copy_(values))
