"""The command `./rz bench activations`: bytes of activations of all workers together over time, with and without stagger.

A worker's bytes are its live tensors after each stage (integrations/torch/pass_memory.h), without gradients that it has
handed over. Unit: the peak of one worker's micro-batch, so that data parallelism peaks at the number of workers.
"""
import argparse
import os
import sys
from dataclasses import dataclass

import charts
from ring_run import bench_parser, run_command, say, train, write_page


@dataclass
class Variant:
    name: str
    rule: str
    stagger: bool


VARIANTS = [Variant("dp", "dp", False), Variant("cdp_v1, stagger", "cdp_v1", True),
            Variant("cdp_v2, stagger", "cdp_v2", True), Variant("cdp_v2, no stagger", "cdp_v2", False)]


@dataclass
class Course:
    """All workers together: (seconds, units), from the moment when all are in their fourth iteration."""
    points: list[tuple[float, float]]

    def peak(self) -> float:
        return max(units for _, units in self.points)

    def mean(self) -> float:
        return sum(units * seconds for units, seconds in self._held()) / (self.points[-1][0] - self.points[0][0])

    def _held(self) -> list[tuple[float, float]]:
        """(units, for how many seconds)."""
        return [(units, after - at) for (at, units), (after, _) in zip(self.points, self.points[1:])]

    def share_near_mean(self, distance: float) -> float:
        """The share of the time in which it is within `distance` of its mean, as a share of that."""
        mean, held = self.mean(), self._held()
        near = sum(seconds for units, seconds in held if abs(units - mean) <= distance * mean)
        return near / sum(seconds for _, seconds in held)

    def within(self, share: float) -> tuple[float, float]:
        """What it lies between for `share` of the time, the rarest highs and lows left out alike."""
        held = sorted(self._held())
        total = sum(seconds for _, seconds in held)
        low = high = held[0][0]
        passed = 0.0
        for units, seconds in held:
            if passed <= total * (1 - share) / 2:
                low = units
            passed += seconds
            high = units
            if passed >= total * (1 + share) / 2:
                break
        return low, high


def course_of(workers: list[list[list[float]]]) -> Course:
    one = max(bytes_held for _, bytes_held, _ in workers[0])
    changes = []
    for points in workers:
        before = 0.0
        for seconds, bytes_held, _ in points:
            changes.append((seconds, bytes_held - before))
            before = bytes_held
    changes.sort()
    total, points = 0.0, []
    for seconds, change in changes:
        total += change
        points.append((seconds, total / one))
    begin = max(points_of[len(points_of) * 3 // 16][0] for points_of in workers)
    end = min(points_of[len(points_of) * 15 // 16][0] for points_of in workers)
    return Course([(seconds - begin, units) for seconds, units in points if begin <= seconds <= end])


def _parse(words: list[str]) -> argparse.Namespace:
    parser = bench_parser("activations", __doc__, os.path.join(os.path.dirname(__file__), "gpt.json"))
    return parser.parse_args(words)


def _row(variant: Variant, course: Course, dp_peak: float, step_seconds: float) -> str:
    low, high = course.within(0.9)
    return (f"| {variant.name} | {course.peak():.2f} | {course.peak() / dp_peak:.3f} | {course.mean():.2f} | "
            f"{low:.2f} to {high:.2f} | {course.share_near_mean(0.1):.1%} | {step_seconds:.2f} s |")


def _bench(options: argparse.Namespace, command: str) -> str:
    document = ["# Activations of all workers over time", "",
                f"`{command}` made this. Unit: one worker's peak in one micro-batch.", ""]
    panels = []
    for workers, stages in ((4, 32), (2, 32)):
        target = (workers + 1) / (2 * workers)
        document += [f"## {workers} workers, {stages} stages", "",
                     f"The paper's spacing holds (N+1)/2N = {target:.3f} of dp's peak.", "",
                     "| rule | peak | of dp's peak | mean | 90 % of the time | within 10 % of the mean | median step |",
                     "| --- | --- | --- | --- | --- | --- | --- |"]
        series = []
        dp_peak = 0.0
        for variant in VARIANTS:
            summary, _ = train(options.program, options.config, {
                "cyclic.rule": variant.rule, "cyclic.stagger": variant.stagger, "cyclic.workers": workers,
                "cyclic.stages": stages})
            course = course_of(summary["activations"])
            dp_peak = dp_peak or course.peak()
            document.append(_row(variant, course, dp_peak, summary["step_seconds"]["median"]))
            say(document[-1])
            shown = [point for point in course.points if point[0] <= 5 * summary["step_seconds"]["median"]]
            series.append(charts.Series(variant.name, shown))
        document.append("")
        panels.append(charts.Panel(f"{workers} workers, {stages} stages", "seconds", series, y_range=(0, workers + 0.2),
                                       marks=[("(N+1)/2", target * workers)]))
    document += ["![activations over time](activations.svg)", ""]
    charts.write(os.path.join(options.out, "activations.svg"), "Activations of all workers together, in micro-batches' peaks",
                 panels)
    return write_page(options.out, "activations.md", document)


if __name__ == "__main__":
    sys.exit(run_command("activations", _parse, _bench, sys.argv[1:]))
