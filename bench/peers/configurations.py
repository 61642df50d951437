"""Everything that is run side by side, by name: the peers, RingZero's rules, and the two floors.

    CONFIGURATIONS["fsdp2"].label
"""
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Configuration:
    name: str
    label: str
    cyclic: dict = field(default_factory=dict)  # RingZero's section `cyclic`; empty: not RingZero
    wrapping: str = ""      # the peer's file in wrappings/; empty: not a peer
    jemalloc: bool = False  # of a peer: with the allocator and the settings that the program `ringzero` has
    losses: str = "dp"      # how they compare with dp's: "dp" all the same, "first" the first only, "none" it tells none

    @property
    def is_ring(self) -> bool:
        return bool(self.cyclic)


FLOOR = "floor"
JEMALLOC = "+jemalloc"  # ends the name of such a variant

_RING = (
    Configuration(FLOOR, "floor (RingZero alone)", {"rule": "dp", "exchange": False}, losses="none"),
    Configuration("cdp_v1", "RingZero cdp_v1", {"rule": "cdp_v1"}, losses="first"),
    Configuration("cdp_v2", "RingZero cdp_v2", {"rule": "cdp_v2"}, losses="first"),
    Configuration("dp", "RingZero dp", {"rule": "dp"}),
)
_PEERS = (
    Configuration("compute", "compute (PyTorch alone)", wrapping="compute", losses="first"),
    Configuration("ddp", "DDP", wrapping="ddp"),
    Configuration("ddp_bucket_view", "DDP, gradient_as_bucket_view", wrapping="ddp_bucket_view"),
    Configuration("zero1", "DDP, ZeroRedundancyOptimizer", wrapping="zero1"),
    Configuration("fsdp2", "FSDP2", wrapping="fsdp2"),
    Configuration("deepspeed_zero3", "DeepSpeed ZeRO-3", wrapping="deepspeed_zero3"),
)

CONFIGURATIONS = {c.name: c for ours_or_peer in (*_RING, *_PEERS) for c in (
    (ours_or_peer,) if ours_or_peer.is_ring else
    (ours_or_peer, replace(ours_or_peer, name=ours_or_peer.name + JEMALLOC, label=ours_or_peer.label + ", jemalloc",
                           jemalloc=True)))}


def variants(peer: str) -> tuple[str, str]:
    """Names of a peer with either allocator."""
    return peer, peer + JEMALLOC
