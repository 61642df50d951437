"""The command `./rz bench clipping`: what exact clipping by the global norm adds under cdp_v1, as
waits and processor time.

A difference is of two runs of one round, and of these the median is shown. Where forward and
backward take a few percent more or less from run to run, whatever clips, the processor time of a
whole run says little: so what the trace has of all other operations (updates, sums, squares, norms,
copies) is shown, too.
"""
import os
import statistics

from ring_run import (BenchError, Options, bench_parser, main, of_rule, table, take_turns,
                      train_traced)

# A norm that every iteration exceeds: what is not clipped costs the same.
FORMS = {"off": {"gradient_clipping": 0},
         **{form: {"gradient_clipping": 0.01, "cyclic.clipping": form}
            for form in ("exact", "previous", "per_stage")}}


def _row(rounds: list[dict], form: str) -> list[str]:
    def median(name: str) -> float:
        return statistics.median(each[form][name] for each in rounds)

    def added(name: str, whole: str, unit: str = " %") -> str:
        """In percent of what `whole` is without clipping: median and middle half of the rounds."""
        if form == "off":
            return ""
        percent = [100 * (each[form][name] - each["off"][name]) / each["off"][whole]
                   for each in rounds]
        low, middle, high = statistics.quantiles(percent, n=4, method="inclusive")
        return f"{middle:+.1f} ({low:+.1f} to {high:+.1f}){unit}"

    return [form, f"{median('step'):.3f}", added("step", "step"),
            f"{100 * median('waits'):.1f}", added("waits", "one", " points"),
            f"{median('processor'):.3f}", added("processor", "processor"),
            f"{1e3 * median('others'):.0f}", added("others", "processor"),
            f"{rounds[0][form]['taken']:.1f}"]


def _bench(options: Options, command: str) -> list[str]:
    def one(form: str) -> dict[str, float]:
        summary, slices = train_traced(options, {
            **FORMS[form], **of_rule(options.rule, workers=options.workers)})
        step, waits = summary["step_seconds"]["median"], summary["waits_seconds_per_step"]
        others = sum(event["dur"] for event in slices if event["cat"] not in ("compute", "waits"))
        waited = sum(waits[cause] for cause in ("parameters", "gradient_sums", "update"))
        return {"step": step, "one": 1, "waits": waited / step,
                "processor": summary["cpu_seconds_per_step"],
                "others": others / summary["iterations"] / 1e6,
                "taken": summary["memory"]["allocated"]["taken"] / 2**20}

    if options.rounds < 2:
        raise BenchError("--rounds: wanted at least 2")
    forms = ["off", *options.forms]
    rounds = take_turns(forms, options.rounds, one)
    return ["# What clipping costs", "",
            f"`{command}` made this: {options.rule}, {options.workers} workers with one thread "
            f"each, `{os.path.basename(options.config)}`, {options.rounds} rounds. Waits in "
            "percent of a step (mean over workers), of all causes; processor time of all workers "
            "together; other operations: all but forward and backward, in milliseconds of a step. "
            "Added: on top of the same round without clipping, median and middle half of the "
            "rounds; operations in percent of the processor time.", "",
            *table(["clipping", "step, s", "added", "waits, %", "added", "processor time, s",
                    "added", "other operations, ms", "added", "taken, MiB"],
                   [_row(rounds, form) for form in forms])]


if __name__ == "__main__":
    PARSER = bench_parser("clipping", __doc__, config="waits/gpt.json", workers=2, rounds=5)
    PARSER.add_argument("--rule", choices=("dp", "cdp_v1"), default="cdp_v1", help="[cdp_v1]")
    CLIPPED = [*FORMS][1:]
    PARSER.add_argument("--forms", nargs="+", choices=CLIPPED, default=CLIPPED, help="[all]")
    main(PARSER, _bench)
