"""Trains one GPT on hosts whose links have a latency, with RingZero's rules and with FSDP2, interleaved.

The command: `./rz bench latency`. Exit codes: 0 done, 1 it failed or this machine has no hosts for it, 2 bad arguments.
"""
import argparse
import dataclasses
import os
import sys
import tempfile

import charts
from hosts import HostsError, Link, why_not
from peers import machine
from peers.losses import check_losses
from peers.results import rotated
from peers.spec import RunReport
from ring_run import BenchError, bench_parser, positive, run_command, say, write_json, write_page

from latency import table
from latency.runs import CASE, FSDP2, NAMES, Runner, Settings


def _parse(words: list[str]) -> argparse.Namespace:
    parser = bench_parser("latency", __doc__)
    parser.add_argument("--latency", type=float, action="append", metavar="MS", help="one way, repeatable [0, 1, 5, 20]")
    parser.add_argument("--gbit", type=float, default=10, metavar="G", help="Gbit/s of each host's line; 0: no limit [10]")
    parser.add_argument("--loss", type=float, default=0, metavar="P", help="probability that a frame is lost [0]")
    parser.add_argument("--rounds", type=positive, default=3, metavar="R",
                        help="in each, everything runs once, in an order that rotates [3]")
    parser.add_argument("--steps", type=positive, default=CASE.iterations, metavar="S",
                        help=f"measured in each run [{CASE.iterations}]")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=f"of {', '.join(NAMES)} [all]")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="of one run [600]")
    options = parser.parse_args(words)
    options.latency = sorted(set(options.latency or (0, 1, 5, 20)))
    options.only = [name for name in NAMES if name in (options.only or NAMES)]
    return options


def _check_losses(reports: dict[str, RunReport]) -> None:
    """The first loss of all; where the mathematics are the same, the last one too."""
    if len(reports) > 1:
        check_losses({name: report.losses[:1] for name, report in reports.items()})
    same = {name: report.losses[-1:] for name, report in reports.items() if name in ("dp", FSDP2)}
    if len(same) > 1:
        check_losses(same)


def _round(options: argparse.Namespace, runner: Runner, number: int) -> table.Round:
    found: table.Round = {}
    for delay_ms in options.latency:
        # Few frames, so that the machine's cores train instead of moving them; a lossy link has Ethernet's large ones.
        link = Link(delay_ms=delay_ms, gbit=options.gbit, loss=options.loss, frame_bytes=9000 if options.loss else 65000)
        for name in rotated(options.only, number):
            say(f"round {number + 1} of {options.rounds}: {name}, {delay_ms:g} ms")
            found[name, delay_ms] = runner.run(name, link, options.steps)
        _check_losses({name: found[name, delay_ms] for name in options.only})
    return found


def _bench(options: argparse.Namespace, command: str) -> str:
    reason = why_not()
    if reason is not None:
        raise BenchError(f"no hosts: {reason}")
    about = machine.describe()
    try:
        with tempfile.TemporaryDirectory(prefix="ringzero-latency-") as folder:
            runner = Runner(Settings(program=options.program, timeout_seconds=options.timeout), folder)
            rounds = [_round(options, runner, number) for number in range(options.rounds)]
    except HostsError as error:
        raise BenchError(str(error)) from error
    rate = f"lines of {options.gbit:g} Gbit/s" if options.gbit else "lines as fast as this machine"
    link = rate + (f", {100 * options.loss:g} % of all frames lost" if options.loss else "")
    write_json(options.out, "latency.json", {
        "command": command, "machine": about,
        "rounds": [[{"name": name, "delay_ms": delay_ms, **dataclasses.asdict(report)}
                    for (name, delay_ms), report in each.items()] for each in rounds]})
    charts.write(os.path.join(options.out, "latency.svg"), "What latency costs",
                 table.panels(rounds, options.only, options.latency))
    return write_page(options.out, "latency.md", table.document(
        command, about, CASE, link, rounds=rounds, names=options.only, delays_ms=options.latency))


def main(words: list[str]) -> int:
    return run_command("latency", _parse, _bench, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
