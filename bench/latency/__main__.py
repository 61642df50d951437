"""Trains one GPT on hosts whose links have a latency, with RingZero's rules and with FSDP2,
interleaved.

The command: `./rz bench latency`. Exit codes: 0 done, 1 it failed or this machine has no hosts for
it, 2 bad arguments.
"""
import argparse
import dataclasses
import os
import statistics
import tempfile

from charts import Panel, Series, write
from hosts import INTERFACE, Hosts, HostsError, Link, why_not
from hosts.crew import torchrun_environment
from peers.cases import CONFIGURATIONS, Case, Shape
from peers.results import check_losses, describe
from peers.runs import LEFT_OUT, Place, Runner, RunReport
from ring_run import (BenchError, Options, bench_parser, describe_machine, main, positive, rotated,
                      say, table, write_json)

# Enough computing to be worth a network: what is exchanged in a step takes less time on the line
# than the step.
CASE = Case("latency", Shape(layers=8, dim=128, sequence=128), micro_batch=4, iterations=20)
FSDP2 = "fsdp2+jemalloc"  # RingZero has this allocator too
NAMES = ("dp", "cdp_v1", "cdp_v2", FSDP2)
Round = dict[tuple[str, float], RunReport]  # by configuration and latency in ms


def parser() -> argparse.ArgumentParser:
    made = bench_parser("latency", __doc__, rounds=3)
    made.add_argument("--latency", type=float, action="append", metavar="MS",
                      help="one way, repeatable [0, 1, 5, 20]")
    made.add_argument("--gbit", type=float, default=10, metavar="G",
                      help="Gbit/s of each host's line; 0: no limit [10]")
    made.add_argument("--loss", type=float, default=0, metavar="P",
                      help="probability that a frame is lost [0]")
    made.add_argument("--steps", type=positive, default=CASE.iterations, metavar="S",
                      help=f"measured in each run [{CASE.iterations}]")
    made.add_argument("--only", action="append", choices=NAMES, metavar="NAME",
                      help=f"of {', '.join(NAMES)} [all]")
    made.add_argument("--timeout", type=float, default=600, metavar="SECONDS",
                      help="of one run [600]")
    return made


def check_all_losses(reports: dict[str, RunReport]) -> None:
    """The first loss of all; where the mathematics are the same, the last one too."""
    if len(reports) > 1:
        check_losses({name: report.losses[:1] for name, report in reports.items()})
    same = {name: report.losses[-1:] for name, report in reports.items() if name in ("dp", FSDP2)}
    if len(same) > 1:
        check_losses(same)


def _run(options: Options, runner: Runner, name: str, delay_ms: float) -> RunReport:
    # Few frames, so that the machine's cores train instead of moving them; a lossy link has
    # Ethernet's large ones.
    link = Link(delay_ms=delay_ms, gbit=options.gbit, loss=options.loss,
                frame_bytes=9000 if options.loss else 65000)
    with Hosts(CASE.workers, link) as hosts:
        places = [Place(host.enter, INTERFACE, torchrun_environment(hosts, worker))
                  for worker, host in enumerate(hosts)]
        return runner.run(CONFIGURATIONS[name], CASE, iterations=LEFT_OUT + options.steps,
                          left_out=LEFT_OUT, places=places)


def step(rounds: list[Round], name: str, delay_ms: float) -> float:
    """Seconds: the median over rounds of the runs' medians."""
    return statistics.median(each[name, delay_ms].step_median for each in rounds)


def growth(rounds: list[Round], name: str, delay_ms: float, least_ms: float) -> float:
    """Of the step, over that with the least latency: a ratio within a round, and of these the
    median."""
    return statistics.median(each[name, delay_ms].step_median / each[name, least_ms].step_median
                             for each in rounds)


def _label(name: str) -> str:
    return CONFIGURATIONS[name].label.removeprefix("RingZero ").removesuffix(", jemalloc")


def rows_of(rounds: list[Round], names: list[str], delays_ms: list[float]) -> list[str]:
    return table(["", *(f"{delay:g} ms" for delay in delays_ms), "growth"],
                 [[_label(name), *(f"{step(rounds, name, delay):.3f}" for delay in delays_ms),
                   f"{growth(rounds, name, delays_ms[-1], delays_ms[0]):.2f}"] for name in names])


def page(command: str, about: dict, link: str, rounds: list[Round], names: list[str],
         delays_ms: list[float]) -> list[str]:
    return ["# Step time against the latency of the links", "",
            f"`{command}` made this, on {about['cores']} cores of {about['processor']}, PyTorch "
            f"{about['torch']}, RingZero {about['revision']}: {CASE.workers} hosts (network "
            f"namespaces of this machine) with one worker of one thread each; {link}. GPT with "
            f"{describe(CASE)}, AdamW, float32; {len(rounds)} rounds, in each everything once; "
            "RingZero over UCX's TCP, FSDP2 over gloo. All begin with the same parameters, read "
            "the same batches, and the first losses agree.", "",
            "Seconds per step (median); latency is one way, from host to host. *Growth*: the last "
            "column over the first.", "",
            *rows_of(rounds, names, delays_ms), "",
            "![seconds per step against latency](latency.svg)"]


def panels(rounds: list[Round], names: list[str], delays_ms: list[float]) -> list[Panel]:
    def panel(title: str, value, marks: list[tuple[str, float]]) -> Panel:
        """`value`: of a configuration at a latency."""
        series = [Series(_label(name), [(delay, value(name, delay)) for delay in delays_ms])
                  for name in names]
        top = 1.1 * max(y for each in series for _, y in each.points)
        return Panel(title, "latency of a link, ms one way", series, (0, top), marks)

    return [panel("seconds per step", lambda name, delay: step(rounds, name, delay), []),
            panel("over the step without it",
                  lambda name, delay: growth(rounds, name, delay, delays_ms[0]), [("1", 1.0)])]


def bench(options: Options, command: str) -> list[str]:
    if (reason := why_not()) is not None:
        raise BenchError(f"no hosts: {reason}")
    delays_ms = sorted(set(options.latency or (0, 1, 5, 20)))
    names = [name for name in NAMES if name in (options.only or NAMES)]
    about = describe_machine()
    rounds: list[Round] = []
    try:
        with tempfile.TemporaryDirectory(prefix="ringzero-latency-") as folder:
            runner = Runner(options.program, folder, options.timeout)
            runner.dump_initial(CASE)
            for number in range(options.rounds):
                rounds.append({})
                for delay_ms in delays_ms:
                    for name in rotated(names, number):
                        say(f"round {number + 1} of {options.rounds}: {name}, {delay_ms:g} ms")
                        rounds[-1][name, delay_ms] = _run(options, runner, name, delay_ms)
                    check_all_losses({name: rounds[-1][name, delay_ms] for name in names})
    except HostsError as error:
        raise BenchError(str(error)) from error
    link = f"lines of {options.gbit:g} Gbit/s" if options.gbit else "lines as fast as this machine"
    if options.loss:
        link += f", {100 * options.loss:g} % of all frames lost"
    write_json({"command": command, "machine": about,
                "rounds": [[{"name": name, "delay_ms": delay_ms, **dataclasses.asdict(report)}
                            for (name, delay_ms), report in each.items()] for each in rounds]},
               options.out, "latency.json")
    write(os.path.join(options.out, "latency.svg"), "What latency costs",
          panels(rounds, names, delays_ms))
    return page(command, about, link, rounds, names, delays_ms)


if __name__ == "__main__":
    main(parser(), bench)
