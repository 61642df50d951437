"""What one worker process of a peer is told and what it reports: values, written as JSON. No torch.

    write(path, RunSpec(wrapping="ddp", case=case, …));  spec = read(path)
"""
import dataclasses
import json
from dataclasses import dataclass

from peers.cases import AdamW, Case, Shape

LEFT_OUT = 10  # iterations before those that are measured, as in `ringzero train`


@dataclass(frozen=True)
class RunSpec:
    wrapping: str    # module in wrappings/
    case: Case
    iterations: int  # all of them
    left_out: int
    initial: str     # safetensors file with the initial parameters
    store: str       # file where the processes find each other; must not exist yet
    report: str      # written by worker 0 at the end


@dataclass(frozen=True)
class RunReport:
    """Of one run, RingZero's or a peer's."""
    losses: list[float]              # one per iteration, mean over all workers' micro-batches; RingZero: first and last
    step_median: float               # seconds, at worker 0, of the measured iterations
    step_min: float
    step_max: float
    step_mean: float
    cpu_seconds_per_step: float      # user and system, all threads of all workers
    minor_faults_per_step: float     # likewise
    steps: list[float] = dataclasses.field(default_factory=list)  # seconds; RingZero tells only what is above


def write_json(path: str, value: object) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(dataclasses.asdict(value), file)  # type: ignore[call-overload]


def read_spec(path: str) -> RunSpec:
    with open(path, encoding="utf-8") as file:
        raw = json.load(file)
    case = raw.pop("case")
    optimizer = case.pop("optimizer")
    optimizer["betas"] = tuple(optimizer["betas"])
    return RunSpec(case=Case(shape=Shape(**case.pop("shape")), optimizer=AdamW(**optimizer), **case), **raw)


def read_report(path: str) -> RunReport:
    with open(path, encoding="utf-8") as file:
        return RunReport(**json.load(file))
