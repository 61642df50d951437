"""A GPT in torch.nn, trained; prints what came out. Arguments: JSON of Options."""
import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass

import torch
from torch import nn

import ringzero
import workers


@dataclass
class Options:
    rule: str = "dp"
    dropout: float = 0.1
    laps: int = 1
    iterations: int = 5
    fault: str = ""   # of worker 1, in iteration 3
    cut: str = ""
    zero_stage: int = 3
    seeded: bool = True
    dim: int = 32
    nvme: str = ""    # a folder for optimizer states
    hidden: float = 0  # GB/s of a disk that is to be hidden


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.heads, self.drop = heads, nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, length, dim = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(samples, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(mixed.transpose(1, 2).reshape(samples, length, dim)))
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.ln2(x)))))


class Gpt(nn.Module):
    """Tied head, and a parameter of the model itself."""

    def __init__(self, layers: int = 4, dim: int = 32, heads: int = 4, vocabulary: int = 40, length: int = 12, dropout: float = 0.1) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, dim)
        self.position = nn.Parameter(torch.randn(length, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, heads, dropout) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> dict:
        x = self.token(ids) + self.position[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln(x))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def samples(count: int = 128, vocabulary: int = 40, length: int = 12) -> list:
    generator = torch.Generator().manual_seed(9)
    return [tuple(torch.randint(0, vocabulary, (2, length), generator=generator)) for _ in range(count)]


def example() -> dict:
    return {"ids": torch.zeros(1, 12, dtype=torch.long), "labels": torch.zeros(1, 12, dtype=torch.long)}


def do(fault: str, model: nn.Module) -> None:
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "exit":
        sys.exit(3)
    if fault == "interrupt":  # while it waits for worker 0, which sleeps
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    if fault == "raise":
        def throw(*_: object) -> None:
            raise ValueError("my own error")
        model.blocks[2].register_forward_pre_hook(throw)


def main() -> None:
    options = Options(**json.loads(sys.argv[1]))
    torch.manual_seed(3 if options.seeded else int(os.environ.get("RANK", 0)))
    model = Gpt(dim=options.dim, dropout=options.dropout)
    offload = {"offload_optimizer": {"device": "nvme", "nvme_path": options.nvme}} if options.nvme else {}
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": options.laps, "seed": 5, "gradient_clipping": 1.0,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}},
              "zero_optimization": {"stage": options.zero_stage, **offload}, "cyclic": {"rule": options.rule, "warmup_updates": 0, "predict": False, "peer_timeout": 3}}
    if options.hidden:
        config["cyclic"]["offload"] = {"bandwidth": options.hidden, "require_hidden": True}
    engine, _, loader, _ = ringzero.initialize(model=model, config=config, training_data=samples(), iterations=options.iterations,
                                               cut=options.cut or None, example=example())
    for ids, labels in loader:
        if engine.global_steps == 3 and engine.global_rank == 1:
            if options.fault == "break":
                return
            do(options.fault, model)
        if engine.global_steps == 3 and engine.global_rank == 0 and options.fault == "interrupt":
            time.sleep(3)
        engine.backward(engine(ids, labels=labels)["loss"])
        engine.step()
    state = engine.state_dict()
    engine.close()
    print(json.dumps({"sha": workers.digest(state), "losses": engine.losses, "names": sorted(state)}))


if __name__ == "__main__":
    main()
