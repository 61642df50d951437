"""The command `./rz bench tracing`: what the flight recorder and `--trace` add to a step.

Twice, both by step_cost: as processor time of short runs of the engine with and without, which take
turns, and as nanoseconds per event times the events of a step. Both beside a small GPT's step,
which has as many stages and workers.
"""
import collections
import json
import os
import statistics

from ring_run import Options, bench_parser, main, run, say, table, train_traced

# What is added, its name, and at most so many percent of a step.
ADDED = (("recorded", "flight recorder", 0.5), ("traced", "recorder and trace", 2.0))


def _bench(options: Options, command: str) -> list[str]:
    say("a traced run ...")
    summary, slices = train_traced(options, {})
    # A begin and an end of each slice, of the worker that has the most.
    most = max(collections.Counter(event["pid"] for event in slices).values())
    events = 2 * most / summary["iterations"]
    say("step_cost ...")
    program = os.path.join(os.path.dirname(options.program), "step_cost")
    costs = json.loads(run([program, str(options.rounds)]))
    step, used = summary["step_seconds"]["median"], summary["cpu_seconds_per_step"]
    rows = []
    for what, name, limit in ADDED:
        pairs = zip(costs[what]["step"], costs["neither"]["step"])
        low, added, high = statistics.quantiles([1e6 * (on - off) for on, off in pairs], n=4)
        event = statistics.median(costs[what]["event"])
        rows.append([name, f"{1e9 * event:.0f}", f"{100 * event * events / step:.3f} %",
                     f"{added:.1f} ({low:.1f} to {high:.1f})",
                     f"{100 * 1e-6 * added / used:.3f} %", f"{limit} %"])
    return ["# What recording and tracing cost", "",
            f"`{command}` made this. The step: `{os.path.basename(options.config)}`, "
            f"{summary['workers']} workers, {1000 * step:.1f} ms that take {1000 * used:.1f} ms of "
            f"processor time (all workers), {events:.0f} events a worker.", "",
            "Added: what a step of the engine (2 workers, 8 stages, nothing to compute) takes more "
            f"processor time than without, median of {options.rounds} rounds with its quartiles; "
            "and that as a share of the step's processor time.", "",
            *table(["", "ns an event", "ns x events, of a step", "added, microseconds a step",
                    "of a step", "at most"], rows)]


if __name__ == "__main__":
    PARSER = bench_parser("tracing", __doc__, config="tracing/gpt.json", rounds=100)
    main(PARSER, _bench)
