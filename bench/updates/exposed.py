"""From a trace: how much of its waiting a worker does because an update is not over yet."""
import re
from dataclasses import dataclass

WARM_UP = 2  # iterations, which are not counted


@dataclass
class Exposed:
    waits: float  # seconds per iteration, mean worker: of waits for an update or for what it made, until that update was over
    updates: float  # seconds per iteration, the whole ring: from each update's begin to its end


def _fields(op: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"\b([stlvw])(-?\d+)\b", op)}


def _made(op: str) -> tuple[int, int] | None:
    """The (stage, version) that a wait for `op` waits for; none: it is no update and no parameters."""
    fields, words = _fields(op), op.split()
    if words[0] == "Recv" and not {"forward", "backward", "inject"} & set(words):
        return None
    return (fields["s"], fields["v"]) if "s" in fields and "v" in fields else None


def exposed(slices: list[dict], iterations: int) -> Exposed:
    """`slices`: of the trace of a run of so many iterations."""
    ends: dict[tuple[int, int] | None, float] = {}
    updating = waited = 0.0
    for event in slices:
        if event["cat"] == "updates":
            op = event["args"]["op"]
            made = _made(op)
            ends[made] = max(ends.get(made, 0.0), event["ts"] + event["dur"])
            updating += event["dur"] if _fields(op)["t"] >= WARM_UP else 0
    for event in slices:
        op = event["args"]["op"]
        if event["cat"] == "waits" and _fields(op).get("t", 0) >= WARM_UP and (made := _made(op)) in ends:
            waited += min(max(ends[made] - event["ts"], 0.0), event["dur"])
    counted = 1e6 * (iterations - WARM_UP)
    return Exposed(waits=waited / len({event["pid"] for event in slices}) / counted, updates=updating / counted)
