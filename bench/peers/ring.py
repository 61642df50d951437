"""Runs RingZero: `ringzero train` with the case's configuration, and its summary as a report; `ringzero plan` for what it
forecasts."""
import json
import os
import re
from collections.abc import Callable

from peers.cases import Case
from peers.configurations import Configuration
from peers.processes import Command, run_group
from peers.spec import RunReport


def _train(program: str, configuration: dict, options: list[str], *, name: str, folder: str, timeout_seconds: float,
           watch: Callable[[list[int]], None] | None = None) -> dict:
    """The summary."""
    config, summary = os.path.join(folder, "config.json"), os.path.join(folder, "summary.json")
    with open(config, "w", encoding="utf-8") as file:
        json.dump(configuration, file, indent=1)
    argv = [program, "train", config, "--summary", summary, *options]
    run_group([Command(name, argv, {}, os.path.join(folder, "ringzero.log"))], timeout_seconds, watch)
    with open(summary, encoding="utf-8") as file:
        return json.load(file)


def report_of(summary: dict, case: Case) -> RunReport:
    seconds, loss = summary["step_seconds"], summary["loss"]
    return RunReport(losses=[value for value in (loss["first"], loss["last"]) if value is not None],
                     step_median=seconds["median"], step_min=seconds["min"], step_max=seconds["max"],
                     step_mean=case.samples_per_step / summary["samples_per_second"],
                     cpu_seconds_per_step=summary["cpu_seconds_per_step"],
                     minor_faults_per_step=summary["minor_faults_per_step"])


def run_ring(program: str, configuration: Configuration, case: Case, *, iterations: int, folder: str,
             timeout_seconds: float, watch: Callable[[list[int]], None] | None = None) -> RunReport:
    summary = _train(program, case.configuration(iterations, **configuration.cyclic), [],
                     name=f"{configuration.name} ({case.name})", folder=folder, timeout_seconds=timeout_seconds,
                     watch=watch)
    return report_of(summary, case)


def forecast_in(plan: str) -> int:
    """Bytes of the whole host, of the table that `ringzero plan` prints."""
    found = re.search(r"^memory +bytes, host.*\n(?:.+\n)*?total +(\d+) ", plan, re.MULTILINE)
    if found is None:
        raise ValueError("`ringzero plan` printed no table of memory")
    return int(found[1])


def forecast_bytes(program: str, configuration: Configuration, case: Case, *, folder: str, timeout_seconds: float) -> int:
    """Of model states and buffers, by the plan alone."""
    config, log = os.path.join(folder, "config.json"), os.path.join(folder, "plan.txt")
    with open(config, "w", encoding="utf-8") as file:
        json.dump(case.configuration(1, **configuration.cyclic), file, indent=1)
    run_group([Command(f"plan of {configuration.name} ({case.name})", [program, "plan", config], {}, log)], timeout_seconds)
    with open(log, encoding="utf-8") as file:
        return forecast_in(file.read())


def dump_initial(program: str, case: Case, path: str, *, folder: str, timeout_seconds: float) -> None:
    """RingZero's initial parameters. What it dumps is what it trained, so it trains one iteration with a rate of 0, which
    changes nothing (AdamW's decay is a share of the rate); they are keyed by (seed, name), so one worker is enough."""
    configuration = case.configuration(1, rule="dp", workers=1)
    configuration["optimizer"]["params"]["lr"] = 0
    _train(program, configuration, ["--dump-parameters", path], name=f"initial parameters ({case.name})",
           folder=folder, timeout_seconds=timeout_seconds)
