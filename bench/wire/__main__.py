"""The command `./rz bench wire`: what a hop costs and what a link carries, each transport beside the tool that it is compared with.

Every case is a run of ring_perf with --compare, in which ours and the peer take turns. The cases take turns as well: this
machine may be slow for a minute, and a median over rounds forgets that.
"""
import argparse
import dataclasses
import json
import os
import shlex
import statistics
import sys
import tempfile

from ring_run import bench_parser, run, run_command, say, write_page


@dataclasses.dataclass(frozen=True)
class Case:
    title: str
    words: str  # ring_perf's
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


_PINGPONG = "--mode pingpong --pin"
_COPY = "--mode shift --workers 2 --copy -b 1M -e 64M -f 4 -n 40"
_STREAM = "--mode stream --poll --pin --cached -f 4"
_FEW = "--slots 8 -m 4"  # under way at once: the peer has as many (-O)
CASES = (
    Case("shm: a hop, its receiver asleep, beside a bare futex wake",
         f"--transport shm {_PINGPONG} -b 64 -e 64M -f 32 -n 2000"),
    Case("shm: a hop, both polling, beside a word that both spin on",
         f"--transport shm {_PINGPONG} --poll -b 64 -e 64M -f 32 -n 5000"),
    Case("shm: every worker copies what comes, beside a ring of memcpy", f"--transport shm {_COPY}"),
    Case("shm: the same, polling and pinned", f"--transport shm {_COPY} --poll --pin"),
    Case("ucx: a hop, both polling, beside ucx_perftest -t tag_lat",
         f"--transport ucx {_PINGPONG} --poll --cached -b 8 -e 4K -f 8 -n 60000 --rounds 12"),
    Case("ucx: one way, beside ucx_perftest -t tag_bw", f"--transport ucx {_STREAM} --slots 32 -m 16 -b 64K -e 4M -n 200"),
    Case("ucx: large messages", f"--transport ucx {_STREAM} {_FEW} -b 16M -e 64M -n 12"),
    Case("ucx over TCP: one way, beside ucx_perftest -t tag_bw", f"--transport ucx {_STREAM} {_FEW} -b 64K -e 16M -n 12",
         {"UCX_TLS": "tcp,self"}),
)


def _parse(words: list[str]) -> argparse.Namespace:
    parser = bench_parser("wire", __doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="[5]")
    options = parser.parse_args(words)
    if options.rounds < 1:
        parser.error("--rounds: wanted 1 or more")
    return options


def _run(program: str, case: Case) -> dict[int, dict]:
    """The results of one run by their sizes."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [program, *shlex.split(case.words), "--compare", "--skip_host", "-J", file.name]
        run(command, case.environment)
        return {result["size"]: result for result in json.load(open(file.name, encoding="utf-8"))["results"]}


def _size(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def _range(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _table(case: Case, rounds: list[dict[int, dict]]) -> list[str]:
    lines = [f"## {case.title[0].upper()}{case.title[1:]}", "",
             f"`{''.join(f'{name}={value} ' for name, value in case.environment.items())}"
             f"build/bin/ring_perf {case.words} --compare`", "",
             "| size | ours, µs | peer, µs | peer / ours | ours - peer, µs |", "| ---: | ---: | ---: | ---: | ---: |"]
    for size in rounds[0]:
        found = [each[size] for each in rounds]
        peers = [each["peer"] for each in found]
        lines.append(f"| {_size(size)} | {_range([statistics.median(peer['our_rounds_us']) for peer in peers])} | "
                     f"{_range([peer['time_us'] for peer in peers])} | {_range([peer['ratio'] for peer in peers])} | "
                     f"{_range([peer['difference_us'] for peer in peers])} |")
    return [*lines, ""]


def _bench(options: argparse.Namespace, command: str) -> str:
    program = os.path.join(os.path.dirname(options.program), "ring_perf")
    rounds: list[list[dict[int, dict]]] = []
    for number in range(options.rounds):
        found = []
        for case in CASES:
            say(f"round {number + 1} of {options.rounds}: {case.title}")
            found.append(_run(program, case))
        rounds.append(found)
    lines = ["# The wire", "", f"`{command}` made this on {os.cpu_count()} cores. Medians of {options.rounds} rounds (and the "
             "least and the most); in each round every case runs once, and in a case ours and its peer take turns. Times are of "
             "one message; `peer / ours`: 1 is as fast as the peer, 2 twice as fast. [ring_perf](../ring_perf.md) says what is "
             "measured, and how.", ""]
    for i, case in enumerate(CASES):
        lines += _table(case, [each[i] for each in rounds])
    return write_page(options.out, "wire.md", lines)


if __name__ == "__main__":
    sys.exit(run_command("wire", _parse, _bench, sys.argv[1:]))
