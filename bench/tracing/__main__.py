"""The command `./rz bench tracing`: what the flight recorder and `--trace` add to a step.

Twice: as processor time of short runs of the engine with and without, which take turns (step_cost), and as nanoseconds per event
(recorder_bench) times the events of a step. Both beside a small GPT's step, which has as many stages and workers.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

from ring_run import bench_parser, run, run_command, say, train, write_page

LIMITS = {"recorded": 0.5, "traced": 2.0}  # percent of a step
NAMES = {"recorded": "flight recorder", "traced": "recorder and trace"}
ROWS = {"recorded": "BM_Record/", "traced": "BM_RecordAndTrace/"}


def _parse(words: list[str]) -> argparse.Namespace:
    parser = bench_parser("tracing", __doc__, os.path.join(os.path.dirname(__file__), "gpt.json"))
    parser.add_argument("--rounds", type=int, default=100, metavar="N", help="of step_cost [100]")
    return parser.parse_args(words)


def _json_of(program: str, name: str, *words: str) -> dict:
    path = os.path.join(os.path.dirname(program), name)
    say(f"{name} ...")
    return json.loads(run([path, *words]).stdout)


def _nanoseconds(program: str) -> dict[str, float]:
    """Of an event, by what is done with it."""
    rows = _json_of(program, "recorder_bench", "--benchmark_format=json")["benchmarks"]
    return {what: next(row["cpu_time"] for row in rows if row["name"].startswith(name)) for what, name in ROWS.items()}


def _events(trace: str, iterations: int) -> float:
    """That a worker records in an iteration, the most of all workers: a begin and an end of each slice."""
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    slices: dict[int, int] = {}
    for event in events:
        if event["ph"] == "X":
            slices[event["pid"]] = slices.get(event["pid"], 0) + 1
    return 2 * max(slices.values()) / iterations


def _bench(options: argparse.Namespace, command: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        say("a traced run ...")
        summary, _ = train(options.program, options.config, {}, ["--trace", trace])
        events = _events(trace, summary["iterations"])
    nanoseconds = _nanoseconds(options.program)
    costs = _json_of(options.program, "step_cost", str(options.rounds))
    step, used = summary["step_seconds"]["median"], summary["cpu_seconds_per_step"]
    document = ["# What recording and tracing cost", "",
                f"`{command}` made this. The step: `{os.path.basename(options.config)}`, {summary['workers']} workers, "
                f"{1000 * step:.1f} ms that take {1000 * used:.1f} ms of processor time (all workers), {events:.0f} events a worker.", "",
                "Added: what a step of the engine (2 workers, 8 stages, nothing to compute) takes more processor time than without, median "
                f"of {options.rounds} rounds with its quartiles; and that as a share of the step's processor time.", "",
                "| | ns an event | ns x events, of a step | added, microseconds a step | of a step | at most |",
                "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for what, limit in LIMITS.items():
        low, added, high = statistics.quantiles([1e6 * (on - off) for on, off in zip(costs[what], costs["neither"])], n=4)
        share = 100 * 1e-9 * nanoseconds[what] * events / step
        document.append(f"| {NAMES[what]} | {nanoseconds[what]:.0f} | {share:.3f} % | {added:.1f} ({low:.1f} to {high:.1f}) | "
                        f"{100 * 1e-6 * added / used:.3f} % | {limit} % |")
    document.append("")
    return write_page(options.out, "tracing.md", document)


if __name__ == "__main__":
    sys.exit(run_command("tracing", _parse, _bench, sys.argv[1:]))
