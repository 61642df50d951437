"""The command `./rz bench updates`: how much of a step is spent waiting for updates.

A wait counts from its begin to the end of the update that made what is waited for, also where the
copy came by way of others. Updates that are slowed (cyclic.inject.update_slowness) take so many
times as long, asleep: what hides them is the schedule.
"""
import itertools
import os
import re
import statistics
from dataclasses import dataclass

from ring_run import Options, bench_parser, main, of_rule, table, take_turns, train_traced

LIMIT = 2.0  # percent of a step, under cdp_v1
WARM_UP = 2  # iterations, which are not counted


@dataclass
class Exposed:
    """Seconds per iteration."""
    waits: float    # mean worker: for an update or for what it made, until that update was over
    updates: float  # the whole ring: from each update's begin to its end


def _fields(op: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"\b([stlvw])(-?\d+)\b", op)}


def _made(op: str) -> tuple[int, int] | None:
    """The (stage, version) that a wait for `op` waits for; none: no update and no parameters."""
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
        counts = event["cat"] == "waits" and _fields(op).get("t", 0) >= WARM_UP
        if counts and (made := _made(op)) in ends:
            waited += min(max(ends[made] - event["ts"], 0.0), event["dur"])
    counted = 1e6 * (iterations - WARM_UP)
    workers = len({event["pid"] for event in slices})
    return Exposed(waits=waited / workers / counted, updates=updating / counted)


def _row(rule: str, slowness: float, found: list[tuple[float, Exposed]]) -> list[str]:
    """`found`: of each round, seconds of a step and what of them is exposed."""
    shares = [100 * of.waits / step for step, of in found]
    step = statistics.median(step for step, _ in found)
    updates = statistics.median(of.updates for _, of in found)
    share = statistics.median(shares)
    verdict = "" if rule != "cdp_v1" else "holds" if share <= LIMIT else "does not hold"
    return [rule, f"{slowness:g}", f"{step:.3f}", f"{updates:.3f}", f"{share:.2f}",
            ", ".join(f"{value:.2f}" for value in shares), verdict]


def _bench(options: Options, command: str) -> list[str]:
    runs = list(itertools.product(("dp", "cdp_v1"), options.slowness or [1, 10]))

    def one(run: tuple[str, float]) -> tuple[float, Exposed]:
        name, slowness = run
        summary, slices = train_traced(options, {
            **of_rule(name, workers=options.workers), "cyclic.inject.update_slowness": slowness})
        return summary["step_seconds"]["median"], exposed(slices, summary["iterations"])

    rounds = take_turns(runs, options.rounds, one)
    return ["# Updates that nobody waits for", "",
            f"`{command}` made this: {options.workers} workers with one thread each, "
            f"`{os.path.basename(options.config)}`, {options.rounds} rounds. A wait counts until "
            "the update is over that made what is waited for (mean over workers, in percent of a "
            f"step; under cdp_v1 at most {LIMIT:g}).", "",
            *table(["rule", "updates take, times", "step, median s", "all updates of a step, s",
                    "exposed, %", "by round", f"at most {LIMIT:g} %"],
                   [_row(*run, [each[run] for each in rounds]) for run in runs])]


if __name__ == "__main__":
    PARSER = bench_parser("updates", __doc__, config="waits/gpt.json", workers=2, rounds=3)
    PARSER.add_argument("--slowness", type=float, action="append", metavar="TIMES",
                        help="how many times as long an update takes, repeatable [1 and 10]")
    main(PARSER, _bench)
