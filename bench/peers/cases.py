"""What is trained, and everything that trains it side by side: values only, no torch.

    case = CASES["8x512"]
    case.configuration(iterations=13, rule="dp")    # for `ringzero train`
    CONFIGURATIONS["fsdp2"].label
"""
import dataclasses
from dataclasses import dataclass, field

from ring_run import PAPER


@dataclass(frozen=True)
class Shape:
    """Of a GPT (integrations/torch/models/models.h); the head is not tied to the embedding."""
    layers: int
    dim: int
    sequence: int
    vocabulary: int = 256

    @property
    def heads(self) -> int:
        return max(1, self.dim // 64)

    @property
    def parameters(self) -> int:
        d = self.dim
        block = (4 * d * d + 4 * d) + (8 * d * d + 5 * d) + 4 * d  # attention, MLP, two norms
        return (2 * self.vocabulary + self.sequence) * d + self.layers * block + 2 * d


@dataclass(frozen=True)
class Case:
    """One GPT, one micro-batch per worker and step."""
    name: str
    shape: Shape
    micro_batch: int
    iterations: int  # measured in one run, unless the command line says otherwise
    workers: int = 4
    samples: int = 4096  # of the random data; an epoch is longer than any run here
    seed: int = 1

    @property
    def samples_per_step(self) -> int:
        return self.micro_batch * self.workers

    def configuration(self, iterations: int, **cyclic: object) -> dict:
        """RingZero's configuration of this case; `cyclic`: rule, exchange."""
        shape = self.shape
        return {
            "model": {"type": "gpt", "layers": shape.layers, "dim": shape.dim, "heads": shape.heads,
                      "vocab": shape.vocabulary, "seq": shape.sequence},
            "data": {"type": "random", "samples": self.samples},
            "train_micro_batch_size_per_gpu": self.micro_batch,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": 0,
            "optimizer": {"type": "AdamW", "params": dict(ADAMW)},
            "iterations": iterations,
            "evaluation": {"every": 0},
            "seed": self.seed,
            "cyclic": {"workers": self.workers, "transport": "shm", "threads": 1, **PAPER,
                       **cyclic},
        }

    @property
    def python_configuration(self) -> dict:
        """The same for a loop in Python, which brings model and data."""
        left_out = ("model", "data", "iterations", "evaluation")
        whole = self.configuration(0, rule="dp")
        return {key: value for key, value in whole.items() if key not in left_out}


ADAMW = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
CASES = {case.name: case for case in (
    Case("8x512", Shape(layers=8, dim=512, sequence=128), micro_batch=4, iterations=8),
    Case("8x512-small", Shape(layers=8, dim=512, sequence=64), micro_batch=1, iterations=20),
    Case("12x1024", Shape(layers=12, dim=1024, sequence=64), micro_batch=1, iterations=8),
)}

# What a step costs in Python where layers are small; no part of a run of all cases.
SMALL_CASES = {case.name: case for case in (
    Case("4x128", Shape(layers=4, dim=128, sequence=128), micro_batch=4, iterations=100, workers=2),
    Case("12x256", Shape(layers=12, dim=256, sequence=128), micro_batch=4, iterations=20,
         workers=2),
)}

# For memory alone: few tokens, so that activations do not count. The first is next to nothing but
# the processes themselves; in the other two every matrix is either smaller or larger than what
# glibc's malloc ever keeps (32 MiB), so that it treats both alike.
MEMORY_CASES = tuple(Case(f"memory-8x{dim}", Shape(layers=8, dim=dim, sequence=4), micro_batch=1,
                          iterations=8) for dim in (64, 896, 1152))


@dataclass(frozen=True)
class Configuration:
    name: str  # a peer's: its function in wrappings.py
    label: str
    cyclic: dict = field(default_factory=dict)  # RingZero's section `cyclic`; empty: a peer
    jemalloc: bool = False  # of a peer: with the program's allocator and its settings
    losses: str = "dp"      # as dp's: "dp" all, "first" the first only, "none" it tells none

    @property
    def is_ring(self) -> bool:
        return bool(self.cyclic)

    def variants(self) -> list["Configuration"]:
        """A peer with either allocator."""
        if self.is_ring:
            return [self]
        return [self, dataclasses.replace(self, name=self.name + "+jemalloc",
                                          label=self.label + ", jemalloc", jemalloc=True)]


CONFIGURATIONS = {each.name: each for configuration in (
    Configuration("floor", "floor (RingZero alone)", {"rule": "dp", "exchange": False},
                  losses="none"),
    Configuration("cdp_v1", "RingZero cdp_v1", {"rule": "cdp_v1"}, losses="first"),
    Configuration("cdp_v2", "RingZero cdp_v2", {"rule": "cdp_v2"}, losses="first"),
    Configuration("dp", "RingZero dp", {"rule": "dp"}),
    Configuration("python", "RingZero dp, from Python"),
    Configuration("compute", "compute (PyTorch alone)", losses="first"),
    Configuration("ddp", "DDP"),
    Configuration("ddp_bucket_view", "DDP, gradient_as_bucket_view"),
    Configuration("zero1", "DDP, ZeroRedundancyOptimizer"),
    Configuration("fsdp2", "FSDP2"),
    Configuration("deepspeed_zero3", "DeepSpeed ZeRO-3"),
) for each in configuration.variants()}
