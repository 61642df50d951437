"""The command `./rz bench clipping`: what exact clipping by the global norm adds under cdp_v1, as waits and processor time.

Without clipping and with it take turns; a difference is of two runs of one round, and of these the median is shown.
"""
import argparse
import os
import statistics
import sys

from ring_run import bench_parser, run_command, say, take_turns, train, write_page

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
    return parser.parse_args(words)


def _step(summary: dict) -> float:
    return summary["step_seconds"]["median"]


def _waits(summary: dict) -> float:
    """Percent of a step, mean over workers."""
    return 100 * sum(summary["waits_seconds_per_step"][cause] for cause in CAUSES) / _step(summary)


def _added(rounds: list[dict], form: str, of) -> float:
    """Percent on top of no clipping."""
    return 100 * (statistics.median(of(each[form]) / of(each["off"]) for each in rounds) - 1)


def _row(rounds: list[dict], form: str) -> str:
    waits = statistics.median(_waits(each[form]) for each in rounds)
    more = statistics.median(_waits(each[form]) - _waits(each["off"]) for each in rounds)
    step = statistics.median(_step(each[form]) for each in rounds)
    taken = rounds[0][form]["memory"]["allocated"]["taken"]
    added = ["", "", ""] if form == "off" else [f"{_added(rounds, form, _step):+.1f} %", f"{more:+.1f}",
                                                f"{_added(rounds, form, _processor):+.1f} %"]
    return f"| {form} | {step:.3f} | {added[0]} | {waits:.1f} | {added[1]} | {added[2]} | {taken / 2**20:.1f} |"


def _processor(summary: dict) -> float:
    return summary["cpu_seconds_per_step"]


def _bench(options: argparse.Namespace, command: str) -> str:
    def one(form: str, turn: str) -> dict:
        say(f"{turn}: {form}")
        settings = {**FORMS[form], "cyclic.rule": options.rule, "cyclic.workers": options.workers}
        return train(options.program, options.config, settings)[0]

    rounds = take_turns(list(FORMS), options.rounds, one)
    document = ["# What clipping costs", "",
                f"`{command}` made this: {options.rule}, {options.workers} workers with one thread each, "
                f"`{os.path.basename(options.config)}`, {options.rounds} rounds. Waits in percent of a step (mean over workers), "
                "of all causes; added: medians over rounds, on top of the same round without clipping.", "",
                "| clipping | step, median s | added | waits, % | added, points | processor time, added | taken, MiB |",
                "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    document += [_row(rounds, form) for form in FORMS] + [""]
    return write_page(options.out, "clipping.md", document)


if __name__ == "__main__":
    sys.exit(run_command("clipping", _parse, _bench, sys.argv[1:]))
