"""The command: `./rz bench latency`. Exit codes: 0 done, 1 it failed or this machine has no hosts for it, 2 bad arguments."""
import argparse
import dataclasses
import json
import os
import signal
import sys
import tempfile

from hosts import HostsError, Link, why_not
from peers import machine
from peers.losses import check_losses
from peers.results import rotated
from peers.spec import RunReport
from ring_run import BenchError, say

from latency import table
from latency.runs import CASE, FSDP2, NAMES, Runner, Settings


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./rz bench latency", allow_abbrev=False,
        description="Trains one GPT on hosts whose links have a latency, with RingZero's rules and with FSDP2, interleaved.")
    parser.add_argument("--latency", type=float, action="append", metavar="MS", help="one way, repeatable [0, 1, 5, 20]")
    parser.add_argument("--gbit", type=float, default=10, metavar="G", help="Gbit/s of each host's line; 0: no limit [10]")
    parser.add_argument("--loss", type=float, default=0, metavar="P", help="probability that a frame is lost [0]")
    parser.add_argument("--rounds", type=int, default=3, metavar="R",
                        help="in each, everything runs once, in an order that rotates [3]")
    parser.add_argument("--steps", type=int, default=CASE.iterations, metavar="S",
                        help=f"measured in each run [{CASE.iterations}]")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=f"of {', '.join(NAMES)} [all]")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="of one run [600]")
    parser.add_argument("--out", default="build/bench-latency", metavar="DIR",
                        help="for latency.md, latency.svg and latency.json [build/bench-latency]")
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # only say whether these arguments do
    options = parser.parse_args(words)
    options.latency = sorted(set(options.latency or (0, 1, 5, 20)))
    options.only = [name for name in NAMES if name in (options.only or NAMES)]
    if options.rounds < 1 or options.steps < 1:
        parser.error("--rounds and --steps: wanted 1 or more")
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


def _bench(options: argparse.Namespace, command: str) -> None:
    reason = why_not()
    if reason is not None:
        raise BenchError(f"no hosts: {reason}")
    os.makedirs(options.out, exist_ok=True)
    about = machine.describe()
    about["load_before"] = machine.load()
    if about["load_before"] > 0.5:
        say(f"warning: this machine is busy (load {about['load_before']:.1f} on {about['cores']} cores): "
            "times will be too long, and ratios wrong")
    with tempfile.TemporaryDirectory(prefix="ringzero-latency-") as folder:
        runner = Runner(Settings(program=options.program, timeout_seconds=options.timeout), folder)
        rounds = [_round(options, runner, number) for number in range(options.rounds)]
    rate = f"lines of {options.gbit:g} Gbit/s" if options.gbit else "lines as fast as this machine"
    link = rate + (f", {100 * options.loss:g} % of all frames lost" if options.loss else "")
    page = table.document(command, about, CASE, link, rounds=rounds, names=options.only, delays_ms=options.latency)
    raw = {"command": command, "machine": about,
           "rounds": [[{"name": name, "delay_ms": delay_ms, **dataclasses.asdict(report)}
                       for (name, delay_ms), report in each.items()] for each in rounds]}
    for name, text in (("latency.md", page), ("latency.json", json.dumps(raw, indent=1) + "\n"),
                       ("latency.svg", table.picture(rounds, options.only, options.latency))):
        with open(os.path.join(options.out, name), "w", encoding="utf-8") as file:
            file.write(text)
    print(page)


def _leave(number: int, _: object) -> None:
    """As an exception, so that all processes, hosts and files are gone on the way out."""
    sys.exit(128 + number)


def main(words: list[str]) -> int:
    options = _parse(words)
    if options.check:
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    given = words[2:] if words[:1] == ["--program"] else words
    try:
        _bench(options, " ".join(["./rz bench latency", *given]))
    except (BenchError, HostsError) as error:
        print(f"bench latency: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
