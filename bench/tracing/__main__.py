"""The command `./rz bench tracing`: what the flight recorder and `--trace` add to a step.

Twice: as processor time of whole runs with and without (which take turns; each is compared with the run without of its round), and
as nanoseconds per event (recorder_bench) times the events that a worker records in a step.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from ring_run import BenchError, run_command, say, train

OFF, RECORDED, TRACED = "neither", "flight recorder", "and trace"
LIMITS = {RECORDED: 0.5, TRACED: 2.0}  # percent of a step
ROWS = {RECORDED: "BM_Record/", TRACED: "BM_RecordAndTrace/"}


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./rz bench tracing", allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--config", default=os.path.join(os.path.dirname(__file__), "gpt.json"))
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="[15]")
    parser.add_argument("--out", default="build/bench-tracing", metavar="DIR", help="[build/bench-tracing]")
    parser.add_argument("--program", required=True, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def _nanoseconds(program: str) -> dict[str, float]:
    """Of an event, by what is done with it."""
    bench = os.path.join(os.path.dirname(program), "recorder_bench")
    done = subprocess.run([bench, "--benchmark_format=json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{bench} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    found = {}
    for row in json.loads(done.stdout)["benchmarks"]:
        for what, name in ROWS.items():
            if row["name"].startswith(name):
                found[what] = row["cpu_time"]
    return found


def _events(trace: str, iterations: int) -> float:
    """That a worker records in an iteration, the most of all workers: two of each slice, and of each send and receive."""
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    slices: dict[int, int] = {}
    for event in events:
        if event["ph"] == "X":
            slices[event["pid"]] = slices.get(event["pid"], 0) + 1
    return 2 * max(slices.values()) / iterations


def _used(rounds: list[dict], what: str) -> list[float]:
    """Seconds of processor time of a step, by round."""
    return [each[what]["cpu_seconds_per_step"] for each in rounds]


def _bench(options: argparse.Namespace, command: str) -> str:
    runs, rounds = [OFF, RECORDED, TRACED], []
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        for number in range(options.rounds):
            results = {}
            for what in runs[number % len(runs):] + runs[:number % len(runs)]:
                say(f"round {number + 1} of {options.rounds}: {what}")
                settings = {"cyclic.flight_recorder": "false" if what == OFF else "true"}
                results[what], _ = train(options.program, options.config, settings, ["--trace", trace] if what == TRACED else [])
            rounds.append(results)
        events = _events(trace, rounds[0][TRACED]["iterations"])
    nanoseconds = _nanoseconds(options.program)
    step = statistics.median(each[OFF]["step_seconds"]["median"] for each in rounds)
    used = statistics.median(_used(rounds, OFF))
    document = ["# What recording and tracing cost", "",
                f"`{command}` made this: `{os.path.basename(options.config)}`, {options.rounds} rounds, a step of {1000 * step:.1f} ms "
                f"that takes {1000 * used:.1f} ms of processor time (all workers), {events:.0f} events a step and worker.", "",
                "Processor time: the least of all rounds beside the least without, and, to show how much the machine itself changes, "
                "the rounds' own differences.", "",
                "| | ns an event | ns x events, of a step | processor time added, least | each round's, lowest and highest | at most |",
                "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for what, limit in LIMITS.items():
        added = sorted(100 * (on / off - 1) for on, off in zip(_used(rounds, what), _used(rounds, OFF)))
        least = 100 * (min(_used(rounds, what)) / min(_used(rounds, OFF)) - 1)
        share = 100 * 1e-9 * nanoseconds[what] * events / step
        document.append(f"| {what} | {nanoseconds[what]:.0f} | {share:.3f} % | {least:+.2f} % | "
                        f"{added[0]:+.2f} to {added[-1]:+.2f} % | {limit} % |")
    document.append("")
    with open(os.path.join(options.out, "tracing.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(document))
    return "\n".join(document)


if __name__ == "__main__":
    sys.exit(run_command("tracing", _parse, _bench, sys.argv[1:]))
