"""Do all train the same? Nobody's time is worth anything before their losses agree.

    check_losses({"dp": [5.63, 5.74, 5.73], "ddp": [5.63, 5.74, 5.73], "cdp_v1": [5.63]})
"""
import statistics

from ring_run import BenchError


# Relative. Orders of addition differ (all-reduce, reduce-scatter, the ring), which shows in the seventh digit; a missing
# update, a clipped gradient or another batch shows in the third.
TOLERANCE = 1e-5

ITERATIONS = 3


def check_losses(losses: dict[str, list[float]]) -> float:
    """Lists may be of different lengths; each iteration is compared among those that have it, at least two. The greatest
    relative distance from the median, or BenchError naming all that are too far from it."""
    worst = 0.0
    for iteration in range(max(map(len, losses.values()), default=0)):
        found = {name: values[iteration] for name, values in losses.items() if len(values) > iteration}
        if len(found) < 2:
            raise BenchError(f"losses: only {', '.join(found)} has one of iteration {iteration}: nobody to compare with")
        middle = statistics.median_low(found.values())
        distances = {name: abs(value - middle) / abs(middle) for name, value in found.items()}
        # Written so that a NaN is too far.
        if bad := [name for name in found if not distances[name] <= TOLERANCE]:
            told = ", ".join(f"{name} {found[name]:.9g}" for name in found)
            raise BenchError(f"losses differ in iteration {iteration}: {' and '.join(bad)} should be within "
                             f"{TOLERANCE:g} of {middle:.9g} ({told}); no time is told of what does not train the same")
        worst = max(worst, *distances.values())
    return worst
