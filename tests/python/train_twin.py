"""The GPT of `ringzero train` in torch.nn, on the same text from the same initial values. Arguments: JSON of a configuration
of `ringzero train`, and the file of initial values. Prints the SHA-256 of the trained parameters, as that program does."""
import hashlib
import json
import sys

import torch
from safetensors.torch import load_file
from torch import nn

import ringzero


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(dim), heads
        self.qkv, self.project = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, length, dim = x.shape
        q, k, v = self.qkv(self.norm(x)).view(samples, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.project(mixed.transpose(1, 2).reshape(samples, length, dim))


class Mlp(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.expand, self.project = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.project(nn.functional.gelu(self.expand(self.norm(x)), approximate="tanh"))


class Head(nn.Module):
    def __init__(self, vocab: int, dim: int) -> None:
        super().__init__()
        self.norm, self.weight = nn.LayerNorm(dim), nn.Parameter(torch.empty(vocab, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(self.norm(x), self.weight)


class Gpt(nn.Module):
    def __init__(self, layers: int, dim: int, heads: int, vocab: int, seq: int) -> None:
        super().__init__()
        self.token, self.position = nn.Parameter(torch.empty(vocab, dim)), nn.Parameter(torch.empty(seq, dim))
        self.parts = nn.ModuleList(part for _ in range(layers) for part in (Attention(dim, heads), Mlp(dim)))
        self.head = Head(vocab, dim)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = nn.functional.embedding(ids, self.token) + self.position[:ids.shape[1]]
        for part in self.parts:
            x = part(x)
        return self.head(x)

    @staticmethod
    def name_of(name: str) -> str:
        """That of `ringzero train`'s parameter in this model: block3.mlp.norm.weight is parts.7.norm.weight."""
        layer, _, rest = name.partition(".")
        if layer.startswith("block"):
            kind, _, rest = rest.partition(".")
            return f"parts.{2 * int(layer[5:]) + (kind == 'mlp')}.{rest}"
        return rest if layer == "embedding" else name


def samples(path: str, length: int) -> list:
    """Of the file's bytes but the last tenth; the targets are one byte further."""
    with open(path, "rb") as file:
        text = torch.tensor(list(file.read()))
    text = text[:len(text) - len(text) // 10]
    return [(text[i:i + length], text[i + 1:i + 1 + length]) for i in range(0, len(text) - length, length)]


def main() -> None:
    config = json.loads(sys.argv[1])
    shape, data = config.pop("model"), config.pop("data")
    del shape["type"]
    model = Gpt(**shape)
    model.load_state_dict({Gpt.name_of(name): values for name, values in load_file(sys.argv[2]).items()})
    cuts = [*(f"parts.{i}" for i in range(2 * shape["layers"])), "head"]
    engine, _, loader, _ = ringzero.initialize(model=model, config=config, cut=cuts,
                                               training_data=samples(data["path"], shape["seq"]))
    for ids, targets in loader:
        engine.backward(nn.functional.cross_entropy(engine(ids).flatten(0, 1), targets.flatten()))
        engine.step()
    state = engine.state_dict()
    engine.close()
    print(json.dumps(hashlib.sha256(b"".join(values.numpy().tobytes() for values in state.values())).hexdigest()))


if __name__ == "__main__":
    main()
