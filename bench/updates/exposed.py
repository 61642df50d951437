"""From a trace: how much of its waiting a worker does because an update is not over yet."""
import re
from dataclasses import dataclass

_FIELD = re.compile(r"\b([stlvw])(-?\d+)\b")
WARM_UP = 2  # iterations, which are not counted


@dataclass
class Exposed:
    waits: float  # seconds per iteration, mean worker: of waits for an update or for what it made, until that update was over
    updates: float  # seconds per iteration, the whole ring: from each update's begin to its end


def _fields(op: str) -> dict[str, int]:
    return {name: int(value) for name, value in _FIELD.findall(op)}


def _made(op: str) -> tuple[int, int] | None:
    """The (stage, version) that a wait for `op` waits for; none: it is no update and no parameters."""
    fields = _fields(op)
    words = op.split()
    if words[0] == "Recv" and not {"forward", "backward", "inject"} & set(words):
        return None
    return (fields["s"], fields["v"]) if "s" in fields and "v" in fields else None


def exposed(trace: dict, iterations: int) -> Exposed:
    """`trace`: what `ringzero train --trace` writes, of a run of so many iterations."""
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    workers = {event["pid"] for event in slices}
    updates = [event for event in slices
               if event["cat"] == "updates" and _fields(event["args"]["op"])["t"] >= WARM_UP]
    ends: dict[tuple[int, int], float] = {}
    for event in slices:
        if event["cat"] == "updates":
            made = _made(event["args"]["op"])
            ends[made] = max(ends.get(made, 0.0), event["ts"] + event["dur"])
    waited = 0.0
    for event in slices:
        op = event["args"]["op"]
        if event["cat"] != "waits" or _fields(op).get("t", 0) < WARM_UP:
            continue
        made = _made(op)
        if made in ends:
            waited += min(max(ends[made] - event["ts"], 0.0), event["dur"])
    counted = iterations - WARM_UP
    return Exposed(waits=1e-6 * waited / len(workers) / counted,
                   updates=1e-6 * sum(event["dur"] for event in updates) / counted)
