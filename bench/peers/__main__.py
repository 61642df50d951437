"""The command: `./rz bench peers`. Exit codes: 0 done, 1 it failed, 2 bad arguments."""
import argparse
import dataclasses
import json
import os
import signal
import sys
import tempfile

from ring_run import BenchError, say

from peers import machine, markdown, picture
from peers.cases import CASES
from peers.configurations import CONFIGURATIONS
from peers.results import CaseResult, MemorySlope, make_rows
from peers.session import Session, Settings


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"wanted 1 or more, found {value}")
    return value


def _list_of(known: dict):
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(known)}")
        return [name for name in known if name in names]
    return parse


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./rz bench peers", allow_abbrev=False,
        description="Trains the same GPT with RingZero and with its peers, interleaved, and prints one table per case.")
    parser.add_argument("--case", type=_list_of(CASES), default=list(CASES), metavar="A,B",
                        help=f"of {', '.join(CASES)} [all]")
    parser.add_argument("--rounds", type=_positive, default=3, metavar="R",
                        help="in each, everything runs once, in an order that rotates [3]")
    parser.add_argument("--steps", type=_positive, metavar="S", help="measured in each run [as the case says]")
    parser.add_argument("--peers", type=_list_of(CONFIGURATIONS), default=list(CONFIGURATIONS), metavar="A,B",
                        help=f"what runs, of {', '.join(CONFIGURATIONS)} [all]")
    parser.add_argument("--no-memory", action="store_true", help="leave out the passes that measure memory")
    parser.add_argument("--timeout", type=_positive, default=1800, metavar="SECONDS", help="of one run [1800]")
    parser.add_argument("--out", default="build/bench-peers", metavar="DIR",
                        help="for peers.md, peers.json and a picture per case [build/bench-peers]")
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # only say whether these arguments do
    return parser.parse_args(words)


def _write(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def _save(options: argparse.Namespace, command: str, about: dict, results: list[CaseResult],
          slopes: dict[str, MemorySlope]) -> None:
    pictures = {}
    for result in results:
        pictures[result.case.name] = f"peers-{result.case.name}.svg"
        _write(options.out, pictures[result.case.name],
               picture.draw(f"{result.case.name}: {markdown.describe_case(result).partition(';')[0]}",
                            make_rows(result, slopes)))
    _write(options.out, "peers.md", markdown.document(command, about, results, slopes, pictures))
    raw = {"command": command, "machine": about, "cases": [dataclasses.asdict(result) for result in results],
           "memory": {name: dataclasses.asdict(slope) for name, slope in slopes.items()}}
    _write(options.out, "peers.json", json.dumps(raw, indent=1) + "\n")


def _bench(options: argparse.Namespace, command: str) -> None:
    os.makedirs(options.out, exist_ok=True)
    about = machine.describe()
    about["load_before"] = machine.load()
    if about["load_before"] > 0.5:
        say(f"warning: this machine is busy (load {about['load_before']:.1f} on {about['cores']} cores): "
            "times will be too long, and ratios wrong")
    settings = Settings(program=options.program, names=options.peers, rounds=options.rounds, iterations=options.steps,
                        memory=not options.no_memory, timeout_seconds=options.timeout)
    with tempfile.TemporaryDirectory(prefix="ringzero-peers-") as folder:
        session = Session(settings, folder)
        results = [session.run_case(CASES[name]) for name in options.case]
        slopes = session.measure_slopes()
    _save(options, command, about, results, slopes)
    for result in results:
        print(f"\n{result.case.name}: {markdown.describe_case(result)}\n\n{markdown.step_table(make_rows(result, slopes))}")
    if slopes:
        print(f"memory per parameter\n\n{markdown.memory_table(slopes)}")
    print(f"written: {options.out}/peers.md, peers.json and a picture per case")


def _leave(number: int, _: object) -> None:
    """As an exception, so that all processes are ended and all files removed on the way out."""
    sys.exit(128 + number)


def main(words: list[str]) -> int:
    options = _parse(words)
    if options.check:
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    given = words[2:] if words[:1] == ["--program"] else words
    try:
        _bench(options, " ".join(["./rz bench peers", *given]))
    except BenchError as error:
        print(f"bench peers: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
