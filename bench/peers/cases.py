"""What is trained in each case, and how both sides are told: values only, no torch.

    case = CASES["8x512"]
    case.configuration(iterations=13, rule="dp")    # for `ringzero train`
"""
import dataclasses
from dataclasses import dataclass

VOCABULARY = 256


@dataclass(frozen=True)
class Shape:
    """Of a GPT (integrations/torch/models/models.h); the head is not tied to the embedding."""
    layers: int
    dim: int
    sequence: int
    vocabulary: int = VOCABULARY

    @property
    def heads(self) -> int:
        return max(1, self.dim // 64)

    @property
    def parameters(self) -> int:
        d = self.dim
        block = (4 * d * d + 4 * d) + (8 * d * d + 5 * d) + 4 * d  # attention, MLP, two norms
        return (2 * self.vocabulary + self.sequence) * d + self.layers * block + 2 * d


@dataclass(frozen=True)
class AdamW:
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1


@dataclass(frozen=True)
class Case:
    """One GPT, one micro-batch per worker and step."""
    name: str
    shape: Shape
    micro_batch: int
    iterations: int  # measured in one run, unless the command line says otherwise
    workers: int = 4
    optimizer: AdamW = AdamW()
    samples: int = 4096  # of the random data; an epoch is longer than any run here
    seed: int = 1

    @property
    def samples_per_step(self) -> int:
        return self.micro_batch * self.workers

    @property
    def tokens_per_step(self) -> int:
        return self.samples_per_step * self.shape.sequence

    def configuration(self, iterations: int, **cyclic: object) -> dict:
        """RingZero's configuration of this case; `cyclic`: rule, exchange."""
        return {
            "model": {"type": "gpt", "layers": self.shape.layers, "dim": self.shape.dim, "heads": self.shape.heads,
                      "vocab": self.shape.vocabulary, "seq": self.shape.sequence},
            "data": {"type": "random", "samples": self.samples},
            "train_micro_batch_size_per_gpu": self.micro_batch,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": 0,
            "optimizer": {"type": "AdamW", "params": dataclasses.asdict(self.optimizer)},
            "iterations": iterations,
            "evaluation": {"every": 0},
            "seed": self.seed,
            "cyclic": {"workers": self.workers, "transport": "shm", "threads": 1, **cyclic},
        }


CASES = {case.name: case for case in (
    Case("8x512", Shape(layers=8, dim=512, sequence=128), micro_batch=4, iterations=8),
    Case("8x512-small", Shape(layers=8, dim=512, sequence=64), micro_batch=1, iterations=20),
    Case("12x1024", Shape(layers=12, dim=1024, sequence=64), micro_batch=1, iterations=8),
)}

# For memory alone: few tokens, so that activations do not count. The first is next to nothing but the processes themselves;
# in the other two every matrix is either smaller or larger than what glibc's malloc ever keeps (32 MiB), so that it treats
# both alike.
MEMORY_CASES = tuple(Case(f"memory-{layers}x{dim}", Shape(layers=layers, dim=dim, sequence=4), micro_batch=1, iterations=8)
                     for layers, dim in ((8, 64), (8, 896), (8, 1152)))
