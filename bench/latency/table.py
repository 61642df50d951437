"""From reports to the page and its picture. Pure."""
import statistics

from charts import Panel, Series
from peers.cases import Case
from peers.configurations import CONFIGURATIONS
from peers.spec import RunReport

Round = dict[tuple[str, float], RunReport]  # by configuration and latency in ms


def step(rounds: list[Round], name: str, delay_ms: float) -> float:
    """Seconds: the median over rounds of the runs' medians."""
    return statistics.median(each[name, delay_ms].step_median for each in rounds)


def growth(rounds: list[Round], name: str, delay_ms: float, least_ms: float) -> float:
    """Of the step, over that with the least latency: a ratio within a round, and of these the median."""
    return statistics.median(each[name, delay_ms].step_median / each[name, least_ms].step_median for each in rounds)


def _label(name: str) -> str:
    return CONFIGURATIONS[name].label.removeprefix("RingZero ").removesuffix(", jemalloc")


def table(rounds: list[Round], names: list[str], delays_ms: list[float]) -> list[str]:
    lines = ["| | " + " | ".join(f"{delay:g} ms" for delay in delays_ms) + " | growth |",
             "| --- | " + "---: | " * len(delays_ms) + "---: |"]
    for name in names:
        steps = " | ".join(f"{step(rounds, name, delay):.3f}" for delay in delays_ms)
        lines.append(f"| {_label(name)} | {steps} | {growth(rounds, name, delays_ms[-1], delays_ms[0]):.2f} |")
    return lines


def document(command: str, about: dict, case: Case, link: str, *, rounds: list[Round], names: list[str],
             delays_ms: list[float]) -> str:
    shape = case.shape
    return "\n".join([
        "# Step time against the latency of the links", "",
        f"`{command}` made this, on {about['cores']} cores of {about['processor']}, PyTorch {about['torch']}, RingZero {about['revision']}: "
        f"{case.workers} hosts (network namespaces of this machine) with one worker of one thread each; {link}. GPT with "
        f"{shape.layers} layers, dim {shape.dim} ({shape.parameters / 1e6:.1f} M parameters), micro-batch "
        f"{case.micro_batch} × {shape.sequence} tokens, AdamW, float32; {len(rounds)} rounds, in each everything once; "
        "RingZero over UCX's TCP, FSDP2 over gloo. All begin with the same parameters, read the same batches, and the first "
        "losses agree.", "",
        "Seconds per step (median); latency is one way, from host to host. *Growth*: the last column over the first.", "",
        *table(rounds, names, delays_ms), "",
        "![seconds per step against latency](latency.svg)", "",
    ])


def panels(rounds: list[Round], names: list[str], delays_ms: list[float]) -> list[Panel]:
    steps = [Series(_label(name), [(delay, step(rounds, name, delay)) for delay in delays_ms]) for name in names]
    grown = [Series(_label(name), [(delay, growth(rounds, name, delay, delays_ms[0])) for delay in delays_ms]) for name in names]

    def panel(title: str, series: list[Series], marks: list[tuple[str, float]]) -> Panel:
        top = 1.1 * max(y for each in series for _, y in each.points)
        return Panel(title, "latency of a link, ms one way", series, (0, top), marks)

    return [panel("seconds per step", steps, []), panel("over the step without it", grown, [("1", 1.0)])]
