"""From raw numbers to what the page says: whether all train the same, medians, ratios, slopes,
tables, pictures. Pure."""
import math
import statistics
from dataclasses import dataclass

from charts import Bar, Panel
from peers.cases import CONFIGURATIONS, Case
from peers.runs import RunReport
from ring_run import BenchError, table

# Relative. Orders of addition differ (all-reduce, reduce-scatter, the ring), which shows in the
# seventh digit; a missing update, a clipped gradient or another batch shows in the third.
TOLERANCE = 1e-5


def check_losses(losses: dict[str, list[float]]) -> float:
    """Lists may be of different lengths; each iteration is compared among those that have it, at
    least two. The greatest relative distance from the median, or BenchError naming all that are too
    far from it."""
    worst = 0.0
    for iteration in range(max(map(len, losses.values()), default=0)):
        found = {name: each[iteration] for name, each in losses.items() if len(each) > iteration}
        if len(found) < 2:
            raise BenchError(f"losses: only {', '.join(found)} has one of iteration {iteration}: "
                             "nobody to compare with")
        middle = statistics.median_low(found.values())
        distances = {name: abs(value - middle) / abs(middle) for name, value in found.items()}
        # Written so that a NaN is too far.
        if bad := [name for name in found if not distances[name] <= TOLERANCE]:
            told = ", ".join(f"{name} {found[name]:.9g}" for name in found)
            raise BenchError(f"losses differ in iteration {iteration}: {' and '.join(bad)} should "
                             f"be within {TOLERANCE:g} of {middle:.9g} ({told}); no time is told "
                             "of what does not train the same")
        worst = max(worst, *distances.values())
    return worst


@dataclass(frozen=True)
class CaseResult:
    case: Case
    iterations: int                     # measured in each run
    losses: dict[str, list[float]]      # of the first iterations, by configuration
    worst_loss_difference: float        # relative
    rounds: list[dict[str, RunReport]]  # in order; each in the order in which it ran
    pss_mib: dict[str, float]           # peak of all processes together; empty: not measured


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


_COLUMNS = (  # title, field of a row, format
    ("", "label", ""), ("step, median s", "step_median", ".3f"), ("min", "step_min", ".3f"),
    ("max", "step_max", ".3f"), ("tokens/s", "tokens_per_second", ".0f"),
    ("CPU s/step", "cpu_seconds", ".2f"), ("faults", "faults", ".0f"),
    ("over floor", "over_floor", ".2f"), ("FSDP2 over this", "fsdp2_over_this", ".2f"),
    ("DDP over this", "ddp_over_this", ".2f"), ("peak PSS, MiB", "pss_mib", ".0f"),
    ("of training", "training_mib", ".0f"), ("bytes/parameter", "bytes_per_parameter", ".1f"))


def paired_ratio(rounds: list[dict[str, RunReport]], above: list[str], below: str) -> float | None:
    """Median over rounds of two steps' ratio within a round: what slows a whole round drops out.
    `above`: the fastest of these that ran, round by round. None if one side is absent."""
    ratios = []
    for reports in rounds:
        steps = [reports[name].step_median for name in above if name in reports]
        if steps and below in reports:
            ratios.append(min(steps) / reports[below].step_median)
    return statistics.median(ratios) if ratios else None


def _row(name: str, result: CaseResult, slopes: dict[str, MemorySlope]) -> Row:
    reports = [r[name] for r in result.rounds]

    def median(field: str) -> float:
        return statistics.median(getattr(report, field) for report in reports)

    def peer_over_this(peer: str) -> float | None:
        variants = [each.name for each in CONFIGURATIONS[peer].variants()]
        return paired_ratio(result.rounds, variants, name)

    case, slope, pss_mib = result.case, slopes.get(name), result.pss_mib.get(name)
    return Row(label=CONFIGURATIONS[name].label,
               step_median=median("step_median"),
               step_min=min(report.step_min for report in reports),
               step_max=max(report.step_max for report in reports),
               tokens_per_second=case.samples_per_step * case.shape.sequence / median("step_mean"),
               cpu_seconds=median("cpu_seconds_per_step"),
               faults=median("minor_faults_per_step") / case.workers,
               over_floor=paired_ratio(result.rounds, [name], "floor"),
               fsdp2_over_this=peer_over_this("fsdp2"),
               ddp_over_this=peer_over_this("ddp"),
               pss_mib=pss_mib,
               training_mib=pss_mib - slope.base_mib if slope and pss_mib else None,
               bytes_per_parameter=slope.bytes_per_parameter if slope else None)


def make_rows(result: CaseResult, slopes: dict[str, MemorySlope]) -> list[Row]:
    """In the order of CONFIGURATIONS."""
    return [_row(name, result, slopes) for name in CONFIGURATIONS if name in result.rounds[0]]


def memory_slope(points: list[tuple[int, float]],
                 forecast_bytes: list[int] | None = None) -> MemorySlope:
    """`points`: (parameters, peak MiB) of three sizes in rising order; the first only says what the
    process itself takes. `forecast_bytes`: by the plan, of the same sizes."""
    (tiny, tiny_mib), (small, small_mib), (large, large_mib) = points
    slope = (large_mib - small_mib) / (large - small)
    forecast = (forecast_bytes[2] - forecast_bytes[1]) / (large - small) if forecast_bytes else None
    return MemorySlope(slope * 2**20, tiny_mib - slope * tiny, forecast)


def _interval(logarithms: list[float]) -> str:
    """Of ratios: their geometric mean, and where it lies with 95 %."""
    mean = statistics.fmean(logarithms)
    half = 1.96 * statistics.stdev(logarithms) / math.sqrt(len(logarithms))
    return "{:.3f} ({:.3f} to {:.3f})".format(*(math.exp(mean + each) for each in (0, -half, half)))


def over_program(rounds: list[dict[str, RunReport]]) -> list[str]:
    """Each over RingZero dp, round by round. Nothing without it, or with one round."""
    others = [name for name in CONFIGURATIONS if name in rounds[0] and name != "dp"]
    if "dp" not in rounds[0] or len(rounds) < 2 or not others:
        return []

    def over(name: str, field: str) -> str:
        return _interval([math.log(getattr(each[name], field) / getattr(each["dp"], field))
                          for each in rounds])
    fields = ("cpu_seconds_per_step", "step_median")
    return [*table(["over RingZero dp", "processor time of a step", "step by the clock"],
                   [[CONFIGURATIONS[name].label, *(over(name, field) for field in fields)]
                    for name in others]), ""]


def _shown(value: float | str | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def step_table(rows: list[Row]) -> list[str]:
    return table([title for title, *_ in _COLUMNS],
                 [[_shown(getattr(row, field), form) for _, field, form in _COLUMNS]
                  for row in rows])


def memory_table(slopes: dict[str, MemorySlope]) -> list[str]:
    rows = []
    for name, each in CONFIGURATIONS.items():
        if slope := slopes.get(name):
            ratio = slope.bytes_per_parameter / slope.forecast if slope.forecast else None
            rows.append([each.label, f"{slope.bytes_per_parameter:.1f}",
                         _shown(slope.forecast, ".1f"), _shown(ratio, ".2f"),
                         f"{slope.base_mib:.0f}"])
    titles = ["", "bytes per parameter", "by the plan", "ratio", "without parameters, MiB"]
    return table(titles, rows)


def panels(rows: list[Row]) -> list[Panel]:
    """Of one case: bars of seconds per step, and of memory if it was measured."""
    def kind(row: Row) -> str:
        if row.label.startswith("RingZero"):
            return "RingZero"
        return "computing alone" if "alone" in row.label else "peers"

    steps = [Bar(row.label, {kind(row): row.step_median}, f"{row.step_median:.2f}",
                 (row.step_min, row.step_max)) for row in rows]
    memory = [Bar(row.label, {kind(row): row.pss_mib}, f"{row.pss_mib:.0f}")
              for row in rows if row.pss_mib]
    shown = [Panel("seconds per step", "median, least and greatest", bars=steps)]
    if len(memory) == len(rows):
        shown.append(Panel("peak PSS of all processes", "MiB", bars=memory))
    return shown


def describe(case: Case) -> str:
    shape = case.shape
    return (f"{shape.layers} layers, dim {shape.dim} ({shape.parameters / 1e6:.1f} M parameters), "
            f"micro-batch {case.micro_batch} × {shape.sequence} tokens, {case.workers} workers")


def page(command: str, machine: dict, results: list[CaseResult],
         slopes: dict[str, MemorySlope]) -> list[str]:
    """README.md says what each column means and how it was measured."""
    lines = ["# RingZero and its peers", "",
             f"`{command}`, on {machine['cores']} cores of {machine['processor']}, PyTorch "
             f"{machine['torch']}, DeepSpeed {machine['deepspeed']}, RingZero "
             f"{machine['revision']}; float32, AdamW, one thread per worker, peers on gloo. What "
             "is measured and how: bench/peers/README.md."]
    for result in results:
        name = result.case.name
        lines += ["", f"## {name}", "",
                  f"{describe(result.case)}; {len(result.rounds)} rounds of {result.iterations} "
                  "measured iterations; first losses within "
                  f"{result.worst_loss_difference:.1g} of each other (relative).", "",
                  *step_table(make_rows(result, slopes)), "", *over_program(result.rounds),
                  f"![{name}: seconds per step and memory](peers-{name}.svg)"]
    if slopes:
        lines += ["", "## Memory per parameter", "",
                  "Peak PSS of all processes together, between two sizes of model with four tokens "
                  "per sample.", "", *memory_table(slopes)]
    return lines
