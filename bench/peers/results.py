"""From raw numbers to what the table says: medians, ratios, slopes. Pure.

    rows = make_rows(result, slopes)
"""
import statistics
from dataclasses import dataclass

from peers.cases import Case
from peers.configurations import CONFIGURATIONS, FLOOR, variants
from peers.spec import RunReport


@dataclass(frozen=True)
class CaseResult:
    case: Case
    iterations: int                          # measured in each run
    losses: dict[str, list[float]]           # of the first iterations, by configuration
    worst_loss_difference: float             # relative
    rounds: list[dict[str, RunReport]]       # in the order of the rounds; each in the order in which it ran
    pss_mib: dict[str, float]                # peak of all processes together; empty: not measured


@dataclass(frozen=True)
class MemorySlope:
    bytes_per_parameter: float  # between the two larger sizes, all processes together
    base_mib: float             # what is left for a model without parameters
    forecast: float | None = None  # bytes per parameter by RingZero's plan, between the same sizes


@dataclass(frozen=True)
class Row:
    label: str
    step_median: float  # seconds: median over rounds of each run's median
    step_min: float     # of all measured iterations of all rounds
    step_max: float
    tokens_per_second: float
    cpu_seconds: float  # per step, all processes
    faults: float       # minor, per worker and step
    over_floor: float | None      # this one's step over the floor's
    fsdp2_over_this: float | None
    ddp_over_this: float | None
    pss_mib: float | None
    training_mib: float | None  # of that, without what the processes take before there is a model
    bytes_per_parameter: float | None


def paired_ratio(rounds: list[dict[str, RunReport]], above: tuple[str, ...], below: str) -> float | None:
    """Median over rounds of two steps' ratio within a round: what slows a whole round drops out. `above`: the fastest of
    these that ran, round by round. None if one side is absent."""
    ratios = []
    for reports in rounds:
        steps = [reports[name].step_median for name in above if name in reports]
        if steps and below in reports:
            ratios.append(min(steps) / reports[below].step_median)
    return statistics.median(ratios) if ratios else None


def make_row(name: str, result: CaseResult, slopes: dict[str, MemorySlope]) -> Row:
    reports = [r[name] for r in result.rounds]

    def median(field: str) -> float:
        return statistics.median(getattr(report, field) for report in reports)

    slope, pss_mib = slopes.get(name), result.pss_mib.get(name)
    return Row(label=CONFIGURATIONS[name].label,
               step_median=median("step_median"),
               step_min=min(report.step_min for report in reports),
               step_max=max(report.step_max for report in reports),
               tokens_per_second=result.case.tokens_per_step / median("step_mean"),
               cpu_seconds=median("cpu_seconds_per_step"),
               faults=median("minor_faults_per_step") / result.case.workers,
               over_floor=paired_ratio(result.rounds, (name,), FLOOR),
               fsdp2_over_this=paired_ratio(result.rounds, variants("fsdp2"), name),
               ddp_over_this=paired_ratio(result.rounds, variants("ddp"), name),
               pss_mib=pss_mib,
               training_mib=pss_mib - slope.base_mib if slope and pss_mib else None,
               bytes_per_parameter=slope.bytes_per_parameter if slope else None)


def make_rows(result: CaseResult, slopes: dict[str, MemorySlope]) -> list[Row]:
    """In the order of CONFIGURATIONS."""
    return [make_row(name, result, slopes) for name in CONFIGURATIONS if name in result.rounds[0]]


def memory_slope(points: list[tuple[int, float]], forecast_bytes: list[int] | None = None) -> MemorySlope:
    """`points`: (parameters, peak MiB) of three sizes in rising order; the first only says what the process itself takes.
    `forecast_bytes`: by the plan, of the same sizes."""
    (tiny, tiny_mib), (small, small_mib), (large, large_mib) = points
    mib_per_parameter = (large_mib - small_mib) / (large - small)
    forecast = (forecast_bytes[2] - forecast_bytes[1]) / (large - small) if forecast_bytes else None
    return MemorySlope(bytes_per_parameter=mib_per_parameter * 2**20, base_mib=tiny_mib - mib_per_parameter * tiny,
                       forecast=forecast)


def rotated(names: list[str], round_number: int) -> list[str]:
    """The order of a round: each begins with another, so that none always follows the same state of the machine."""
    at = round_number % len(names)
    return names[at:] + names[:at]
