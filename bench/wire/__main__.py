"""The command `./rz bench wire`: what a hop costs and what a link carries, each transport beside
the tool that it is compared with.

Every case is a run of ring_perf with --compare, in which ours and the peer take turns. The cases
take turns as well: this machine may be slow for a minute, and a median over rounds forgets that.
"""
import os
import shlex
import statistics
import tempfile

from ring_run import Options, bench_parser, main, read_json, run, table, take_turns

_HOP = "--mode pingpong --pin"
_COPY = "--mode shift --workers 2 --copy -b 1M -e 64M -f 4 -n 40"
# Two slots stay in a cache, as the peer's one buffer does; the peer has as many under way (-O).
_STREAM = "--mode stream --poll --pin --cached -f 4 --slots 2"
_SHM = "build/bin/ring_perf --transport shm"
_UCX = "build/bin/ring_perf --transport ucx"
_ONE_WAY = "one way, beside ucx_perftest -t tag_bw"
CASES = {
    "Shm: a hop, its receiver asleep, beside a bare futex wake":
        f"{_SHM} {_HOP} -b 64 -e 64M -f 32 -n 2000",
    "Shm: a hop, both polling, beside a word that both spin on":
        f"{_SHM} {_HOP} --poll -b 64 -e 64M -f 32 -n 5000",
    "Shm: every worker copies what comes, beside a ring of memcpy": f"{_SHM} {_COPY}",
    "Shm: the same, polling and pinned": f"{_SHM} {_COPY} --poll --pin",
    "Ucx: a hop, both polling, beside ucx_perftest -t tag_lat":
        f"{_UCX} {_HOP} --poll --cached -b 8 -e 4K -f 8 -n 60000 --rounds 12",
    f"Ucx: {_ONE_WAY}": f"{_UCX} {_STREAM} -m 16 -b 64K -e 4M -n 200",
    "Ucx: large messages": f"{_UCX} {_STREAM} -m 4 -b 16M -e 64M -n 12",
    f"Ucx over TCP: {_ONE_WAY}":
        f"UCX_TLS=tcp,self {_UCX} {_STREAM} -m 4 -b 64K -e 16M -n 12",
}


def _size(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def _row(results: list[dict]) -> list[str]:
    """`results`: of one size, by round."""
    peers = [each["peer"] for each in results]
    columns = [[statistics.median(peer["our_rounds_us"]) for peer in peers],
               *([peer[name] for peer in peers] for name in ("time_us", "ratio", "difference_us"))]
    return [_size(results[0]["size"]),
            *(f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
              for values in columns)]


def _bench(options: Options, command: str) -> list[str]:
    def one(title: str) -> list[dict]:
        folder = os.path.dirname(options.program)
        words = [word.replace("build/bin", folder) for word in shlex.split(CASES[title])]
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            run(["env", *words, "--compare", "--skip_host", "-J", file.name])
            return read_json(file.name)["results"]

    rounds = take_turns(list(CASES), options.rounds, one)
    lines = ["# The wire", "",
             f"`{command}` made this on {os.cpu_count()} cores. Medians of {options.rounds} rounds "
             "(and the least and the most); in each round every case runs once, and in a case ours "
             "and its peer take turns. Times are of one message; `peer / ours`: 1 is as fast as "
             "the peer, 2 twice as fast. [ring_perf](../ring_perf.md) says what is measured, and "
             "how."]
    for title, words in CASES.items():
        lines += ["", f"## {title}", "", f"`{words} --compare`", "",
                  *table(["size", "ours, µs", "peer, µs", "peer / ours", "ours - peer, µs"],
                         map(_row, zip(*(each[title] for each in rounds))))]
    return lines


if __name__ == "__main__":
    main(bench_parser("wire", __doc__, rounds=5), _bench)
