"""Everything that is run side by side, by name: the peers, RingZero's rules, and the two floors.

    CONFIGURATIONS["fsdp2"].label
"""
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Configuration:
    name: str
    label: str
    cyclic: dict = field(default_factory=dict)  # RingZero's section `cyclic`; empty: a peer, wrappings/<name>.py
    losses: str = "dp"  # how its losses compare with dp's: "dp" all the same, "first" the first only, "none" not told

    @property
    def is_ring(self) -> bool:
        return bool(self.cyclic)


FLOOR = "floor"

CONFIGURATIONS = {c.name: c for c in (
    Configuration("compute", "compute (PyTorch alone)", losses="first"),
    Configuration(FLOOR, "floor (RingZero alone)", {"rule": "dp", "exchange": False}, losses="none"),
    Configuration("cdp_v1", "RingZero cdp_v1", {"rule": "cdp_v1"}, losses="first"),
    Configuration("cdp_v2", "RingZero cdp_v2", {"rule": "cdp_v2"}, losses="first"),
    Configuration("dp", "RingZero dp", {"rule": "dp"}),
    Configuration("ddp", "PyTorch DDP"),
    Configuration("zero1", "PyTorch DDP + ZeroRedundancyOptimizer"),
    Configuration("fsdp2", "PyTorch FSDP2"),
    Configuration("deepspeed_zero3", "DeepSpeed ZeRO-3"),
)}
