"""Trains the same GPT with RingZero and with its peers, interleaved, and prints one table per case.

The command: `./rz bench peers`. Exit codes: 0 done, 1 it failed, 2 bad arguments.
"""
import argparse
import dataclasses
import os
import sys
import tempfile

import charts
from peers import machine, results
from peers.cases import CASES, CONFIGURATIONS, SMALL_CASES
from peers.session import Session
from ring_run import bench_parser, positive, run_command, write_json


_ALL_CASES = CASES | SMALL_CASES


def _list_of(known: dict):
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(known)}")
        return [name for name in known if name in names]
    return parse


def parser() -> argparse.ArgumentParser:
    made = bench_parser("peers", __doc__, rounds=3)
    made.add_argument("--case", type=_list_of(_ALL_CASES), default=list(CASES), metavar="A,B",
                      help=f"of {', '.join(CASES)} [all of these], {', '.join(SMALL_CASES)}")
    made.add_argument("--steps", type=positive, metavar="S", help="measured in each run [as the case says]")
    made.add_argument("--peers", type=_list_of(CONFIGURATIONS), default=list(CONFIGURATIONS), metavar="A,B",
                      help=f"what runs, of {', '.join(CONFIGURATIONS)} [all]")
    made.add_argument("--no-memory", action="store_true", help="leave out the passes that measure memory")
    made.add_argument("--timeout", type=positive, default=1800, metavar="SECONDS", help="of one run [1800]")
    return made


def bench(options: argparse.Namespace, command: str) -> list[str]:
    about = machine.describe()
    with tempfile.TemporaryDirectory(prefix="ringzero-peers-") as folder:
        session = Session(options, folder)
        found = [session.run_case(_ALL_CASES[name]) for name in options.case]
        slopes = session.measure_slopes()
    for result in found:
        name = result.case.name
        charts.write(os.path.join(options.out, f"peers-{name}.svg"), f"{name}: {results.describe(result.case)}",
                     results.panels(results.make_rows(result, slopes)))
    write_json({"command": command, "machine": about, "cases": [dataclasses.asdict(result) for result in found],
                "memory": {name: dataclasses.asdict(slope) for name, slope in slopes.items()}}, options.out, "peers.json")
    return results.page(command, about, found, slopes)


if __name__ == "__main__":
    sys.exit(run_command(parser(), bench))
