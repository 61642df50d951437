"""The command `./rz bench activations`: bytes of activations of all workers together over time,
with and without stagger.

A worker's bytes are its live tensors after each stage (integrations/torch/measurements.h), without
gradients that it has handed over. Unit: the peak of one worker's micro-batch, so that data
parallelism peaks at the number of workers.
"""

import charts
from ring_run import Options, bench_parser, main, of_rule, say, table, train

VARIANTS = {"dp": of_rule("dp", stagger=False),
            "cdp_v1, stagger": of_rule("cdp_v1", stagger=True),
            "cdp_v2, stagger": of_rule("cdp_v2", stagger=True),
            "cdp_v2, no stagger": of_rule("cdp_v2", stagger=False)}
STAGES = 32


def course_of(workers: list[list[list[float]]]) -> list[tuple[float, float]]:
    """All workers together: (seconds, units), from when all are in their fourth iteration."""
    one = max(bytes_held for _, bytes_held, _ in workers[0])
    changes = []
    for points in workers:
        before = 0.0
        for seconds, bytes_held, _ in points:
            changes.append((seconds, bytes_held - before))
            before = bytes_held
    total, points = 0.0, []
    for seconds, change in sorted(changes):
        total += change
        points.append((seconds, total / one))
    begin = max(points_of[len(points_of) * 3 // 16][0] for points_of in workers)
    end = min(points_of[len(points_of) * 15 // 16][0] for points_of in workers)
    return [(seconds - begin, units) for seconds, units in points if begin <= seconds <= end]


def _quantile(held: list[tuple[float, float]], seconds: float) -> float:
    """Units that are not exceeded for so many seconds."""
    for units, duration in sorted(held):
        seconds -= duration
        if seconds < 0:
            return units
    return max(held)[0]


def _row(name: str, course: list[tuple[float, float]], dp_peak: float, step: float) -> list[str]:
    held = [(units, after - at) for (at, units), (after, _) in zip(course, course[1:])]
    peak, total = max(units for _, units in course), course[-1][0] - course[0][0]
    mean = sum(units * seconds for units, seconds in held) / total
    near = sum(seconds for units, seconds in held if abs(units - mean) <= 0.1 * mean) / total
    low, high = (_quantile(held, share * total) for share in (0.05, 0.95))
    return [name, f"{peak:.2f}", f"{peak / (dp_peak or peak):.3f}", f"{mean:.2f}",
            f"{low:.2f} to {high:.2f}", f"{near:.1%}", f"{step:.2f} s"]


def _bench(options: Options, command: str) -> list[str]:
    document = ["# Activations of all workers over time", "",
                f"`{command}` made this. Unit: one worker's peak in one micro-batch."]
    panels = []
    for workers in (4, 2):
        title, target = f"{workers} workers, {STAGES} stages", (workers + 1) / (2 * workers)
        series, rows, dp_peak = [], [], 0.0
        for name, settings in VARIANTS.items():
            settings = {**settings, "cyclic.workers": workers, "cyclic.stages": STAGES}
            summary = train(options, settings)
            course, step = course_of(summary["activations"]), summary["step_seconds"]["median"]
            rows.append(_row(name, course, dp_peak, step))
            say(" ".join(rows[-1]))
            dp_peak = dp_peak or max(units for _, units in course)
            series.append(charts.Series(name, [point for point in course if point[0] <= 5 * step]))
        document += ["", f"## {title}", "",
                     f"The paper's spacing holds (N+1)/2N = {target:.3f} of dp's peak.", "",
                     *table(["rule", "peak", "of dp's peak", "mean", "90 % of the time",
                             "within 10 % of the mean", "median step"], rows)]
        panels.append(charts.Panel(title, "seconds", series, y_range=(0, workers + 0.2),
                                   marks=[("(N+1)/2", target * workers)]))
    charts.write(f"{options.out}/activations.svg",
                 "Activations of all workers together, in micro-batches' peaks", panels)
    return [*document, "", "![activations over time](activations.svg)"]


if __name__ == "__main__":
    PARSER = bench_parser("activations", __doc__, config="activations/gpt.json")
    main(PARSER, _bench)
