"""Trains the same GPT with RingZero and with its peers, interleaved, and prints one table per case.

The command: `./rz bench peers`. Exit codes: 0 done, 1 it failed, 2 bad arguments.
"""
import argparse
import dataclasses
import os
import sys
import tempfile

import charts
from ring_run import bench_parser, positive, run_command, write_json, write_page

from peers import machine, markdown
from peers.cases import CASES
from peers.configurations import CONFIGURATIONS
from peers.results import CaseResult, MemorySlope, make_rows
from peers.session import Session, Settings


def _list_of(known: dict):
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(known)}")
        return [name for name in known if name in names]
    return parse


def _parse(words: list[str]) -> argparse.Namespace:
    parser = bench_parser("peers", __doc__)
    parser.add_argument("--case", type=_list_of(CASES), default=list(CASES), metavar="A,B",
                        help=f"of {', '.join(CASES)} [all]")
    parser.add_argument("--rounds", type=positive, default=3, metavar="R",
                        help="in each, everything runs once, in an order that rotates [3]")
    parser.add_argument("--steps", type=positive, metavar="S", help="measured in each run [as the case says]")
    parser.add_argument("--peers", type=_list_of(CONFIGURATIONS), default=list(CONFIGURATIONS), metavar="A,B",
                        help=f"what runs, of {', '.join(CONFIGURATIONS)} [all]")
    parser.add_argument("--no-memory", action="store_true", help="leave out the passes that measure memory")
    parser.add_argument("--timeout", type=positive, default=1800, metavar="SECONDS", help="of one run [1800]")
    return parser.parse_args(words)


def _save(options: argparse.Namespace, command: str, about: dict, results: list[CaseResult],
          slopes: dict[str, MemorySlope]) -> None:
    pictures = {}
    for result in results:
        pictures[result.case.name] = f"peers-{result.case.name}.svg"
        charts.write(os.path.join(options.out, pictures[result.case.name]),
                     f"{result.case.name}: {markdown.describe_case(result).partition(';')[0]}",
                     markdown.panels(make_rows(result, slopes)))
    write_page(options.out, "peers.md", [markdown.document(command, about, results, slopes, pictures)])
    write_json(options.out, "peers.json", {
        "command": command, "machine": about, "cases": [dataclasses.asdict(result) for result in results],
        "memory": {name: dataclasses.asdict(slope) for name, slope in slopes.items()}})


def _bench(options: argparse.Namespace, command: str) -> str:
    about = machine.describe()
    settings = Settings(program=options.program, names=options.peers, rounds=options.rounds, iterations=options.steps,
                        memory=not options.no_memory, timeout_seconds=options.timeout)
    with tempfile.TemporaryDirectory(prefix="ringzero-peers-") as folder:
        session = Session(settings, folder)
        results = [session.run_case(CASES[name]) for name in options.case]
        slopes = session.measure_slopes()
    _save(options, command, about, results, slopes)
    parts = [f"\n{result.case.name}: {markdown.describe_case(result)}\n\n{markdown.step_table(make_rows(result, slopes))}"
             for result in results]
    if slopes:
        parts.append(f"memory per parameter\n\n{markdown.memory_table(slopes)}")
    return "\n".join([*parts, f"written: {options.out}/peers.md, peers.json and a picture per case"])


def main(words: list[str]) -> int:
    return run_command("peers", _parse, _bench, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
