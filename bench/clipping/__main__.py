"""The command `./rz bench clipping`: what exact clipping by the global norm adds under cdp_v1, as waits and processor time.

Without clipping and with it take turns; a difference is of two runs of one round, and of these the median is shown. Where forward and
backward take a few percent more or less from run to run, whatever clips, the processor time of a whole run says little: so what the
trace has of all other operations (updates, sums, squares, norms, copies) is shown, too.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

from ring_run import BenchError, bench_parser, run_command, say, take_turns, train, write_page

# A norm that every iteration exceeds: what is not clipped costs the same.
FORMS = {"off": {"gradient_clipping": 0},
         "exact": {"gradient_clipping": 0.01, "cyclic.clipping": "exact"},
         "previous": {"gradient_clipping": 0.01, "cyclic.clipping": "previous"},
         "per_stage": {"gradient_clipping": 0.01, "cyclic.clipping": "per_stage"}}
CAUSES = ("parameters", "gradient_sums", "update")


def _parse(words: list[str]) -> argparse.Namespace:
    parser = bench_parser("clipping", __doc__, os.path.join(os.path.dirname(__file__), "..", "waits", "gpt.json"))
    parser.add_argument("--rule", choices=("dp", "cdp_v1"), default="cdp_v1", help="[cdp_v1]")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="[2]")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="[5]")
    parser.add_argument("--forms", nargs="+", choices=[form for form in FORMS if form != "off"], default=[*FORMS][1:], help="[all]")
    return parser.parse_args(words)


def _step(summary: dict) -> float:
    return summary["step_seconds"]["median"]


def _waits(summary: dict) -> float:
    """Percent of a step, mean over workers."""
    return 100 * sum(summary["waits_seconds_per_step"][cause] for cause in CAUSES) / _step(summary)


def _operations(summary: dict) -> float:
    """Seconds of a step, all workers together, in which anything but forward and backward was done."""
    return summary["other_operations_seconds"]


def _processor(summary: dict) -> float:
    return summary["cpu_seconds_per_step"]


def _middle_half(values: list[float], unit: str) -> str:
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{median:+.1f} ({low:+.1f} to {high:+.1f}){unit}"


def _row(rounds: list[dict], form: str) -> str:
    def median(of) -> float:
        return statistics.median(of(each[form]) for each in rounds)

    def added(of, whole, unit: str = " %") -> str:
        """In percent of what `whole` is without clipping."""
        if form == "off":
            return ""
        return _middle_half([100 * (of(each[form]) - of(each["off"])) / whole(each["off"]) for each in rounds], unit)

    cells = [form, f"{median(_step):.3f}", added(_step, _step), f"{median(_waits):.1f}", added(_waits, lambda _: 100, " points"),
             f"{median(_processor):.3f}", added(_processor, _processor),
             f"{1e3 * median(_operations):.0f}", added(_operations, _processor),
             f"{rounds[0][form]['memory']['allocated']['taken'] / 2**20:.1f}"]
    return f"| {' | '.join(cells)} |"


def _other_operations(trace: str, steps: int) -> float:
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    return sum(event["dur"] for event in events if event.get("ph") == "X" and event["cat"] not in ("compute", "waits")) / steps / 1e6


def _bench(options: argparse.Namespace, command: str) -> str:
    def one(form: str, turn: str) -> dict:
        say(f"{turn}: {form}")
        settings = {**FORMS[form], "cyclic.rule": options.rule, "cyclic.workers": options.workers}
        with tempfile.NamedTemporaryFile(suffix=".json") as trace:
            summary, _ = train(options.program, options.config, settings, ["--trace", trace.name])
            return {**summary, "other_operations_seconds": _other_operations(trace.name, summary["iterations"])}

    if options.rounds < 2:
        raise BenchError("--rounds: wanted at least 2")
    forms = ["off", *options.forms]
    rounds = take_turns(forms, options.rounds, one)
    document = ["# What clipping costs", "",
                f"`{command}` made this: {options.rule}, {options.workers} workers with one thread each, "
                f"`{os.path.basename(options.config)}`, {options.rounds} rounds. Waits in percent of a step (mean over workers), "
                "of all causes; processor time of all workers together; other operations: all but forward and backward, in "
                "milliseconds of a step. Added: on top of the same round without clipping, median and middle half of the rounds; "
                "operations in percent of the processor time.", "",
                "| clipping | step, s | added | waits, % | added | processor time, s | added | other operations, ms | added | taken, MiB |",
                "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    document += [_row(rounds, form) for form in forms] + [""]
    return write_page(options.out, "clipping.md", document)


if __name__ == "__main__":
    sys.exit(run_command("clipping", _parse, _bench, sys.argv[1:]))
