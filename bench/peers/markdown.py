"""The table as Markdown, for docs/results/ and for the screen."""
from charts import Bar, Panel
from peers.configurations import CONFIGURATIONS
from peers.results import CaseResult, MemorySlope, Row, make_rows


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


_COLUMNS = (
    ("", lambda row: row.label),
    ("step, median s", lambda row: _seconds(row.step_median)),
    ("min", lambda row: _seconds(row.step_min)),
    ("max", lambda row: _seconds(row.step_max)),
    ("tokens/s", lambda row: f"{row.tokens_per_second:.0f}"),
    ("CPU s/step", lambda row: f"{row.cpu_seconds:.2f}"),
    ("faults", lambda row: f"{row.faults:.0f}"),
    ("over floor", lambda row: _or_dash(row.over_floor, ".2f")),
    ("FSDP2 over this", lambda row: _or_dash(row.fsdp2_over_this, ".2f")),
    ("DDP over this", lambda row: _or_dash(row.ddp_over_this, ".2f")),
    ("peak PSS, MiB", lambda row: _or_dash(row.pss_mib, ".0f")),
    ("of training", lambda row: _or_dash(row.training_mib, ".0f")),
    ("bytes/parameter", lambda row: _or_dash(row.bytes_per_parameter, ".1f")),
)


def _table(header: list[str], lines: list[list[str]]) -> str:
    """Aligned, so that it reads as well on a screen."""
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]

    def row(cells: list[str]) -> str:
        aligned = [cells[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:])]
        return "| " + " | ".join(aligned) + " |"

    rule = "| " + "-" * widths[0] + " | " + " | ".join("-" * (width - 1) + ":" for width in widths[1:]) + " |"
    return "\n".join([row(header), rule, *map(row, lines)]) + "\n"


def step_table(rows: list[Row]) -> str:
    return _table([title for title, _ in _COLUMNS], [[cell(row) for _, cell in _COLUMNS] for row in rows])


def panels(rows: list[Row]) -> list[Panel]:
    """Of one case: bars of seconds per step, and of memory if it was measured."""
    def kind(row: Row) -> str:
        if row.label.startswith("RingZero"):
            return "RingZero"
        return "computing alone" if "alone" in row.label else "peers"

    steps = [Bar(row.label, {kind(row): row.step_median}, f"{row.step_median:.2f}", (row.step_min, row.step_max)) for row in rows]
    memory = [Bar(row.label, {kind(row): row.pss_mib}, f"{row.pss_mib:.0f}") for row in rows if row.pss_mib]
    shown = [Panel("seconds per step", "median, least and greatest", bars=steps)]
    return [*shown, Panel("peak PSS of all processes", "MiB", bars=memory)] if len(memory) == len(rows) else shown


def describe_case(result: CaseResult) -> str:
    case = result.case
    return (f"{case.shape.layers} layers, dim {case.shape.dim} ({case.shape.parameters / 1e6:.1f} M parameters), "
            f"micro-batch {case.micro_batch} × {case.shape.sequence} tokens, {case.workers} workers; "
            f"{len(result.rounds)} rounds of {result.iterations} measured iterations; first losses within "
            f"{result.worst_loss_difference:.1g} of each other (relative)")


def memory_table(slopes: dict[str, MemorySlope]) -> str:
    def line(label: str, slope: MemorySlope) -> list[str]:
        ratio = slope.bytes_per_parameter / slope.forecast if slope.forecast else None
        return [label, f"{slope.bytes_per_parameter:.1f}", _or_dash(slope.forecast, ".1f"), _or_dash(ratio, ".2f"),
                f"{slope.base_mib:.0f}"]

    return _table(["", "bytes per parameter", "by the plan", "ratio", "without parameters, MiB"],
                  [line(c.label, slopes[name]) for name, c in CONFIGURATIONS.items() if name in slopes])


def document(command: str, machine: dict, results: list[CaseResult], slopes: dict[str, MemorySlope],
             pictures: dict[str, str]) -> str:
    """`pictures`: file by case. README.md says what each column means and how it was measured."""
    parts = ["# RingZero and its peers\n",
             f"`{command}`, on {machine['cores']} cores of {machine['processor']}, PyTorch {machine['torch']}, "
             f"DeepSpeed {machine['deepspeed']}, RingZero {machine['revision']}; float32, AdamW, one thread per worker, "
             "peers on gloo. What is measured and how: bench/peers/README.md.\n"]
    for result in results:
        parts += [f"## {result.case.name}\n", describe_case(result) + ".\n", step_table(make_rows(result, slopes))]
        if result.case.name in pictures:
            parts.append(f"![{result.case.name}: seconds per step and memory]({pictures[result.case.name]})\n")
    if slopes:
        parts += ["## Memory per parameter\n",
                  "Peak PSS of all processes together, between two sizes of model with four tokens per sample.\n",
                  memory_table(slopes)]
    return "\n".join(parts)
