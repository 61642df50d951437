"""The command `./rz bench disk`: how fast our I/O engine reads and writes a file, beside fio.

Both go past the page cache, with the same file, block and number of requests under way. They take
turns: on a shared machine the same disk is half as fast a minute later.
"""
import json
import os
import statistics

from ring_run import Options, bench_parser, main, run, table, take_turns

_MODES = {"read": "read", "write": "write", "both": "rw"}  # as fio says it
_ENGINES = ("fio", "uring", "threads")

Way = tuple[str, str]  # mode, engine


def _fio(options: Options, mode: str, file: str) -> float:
    words = ["fio", "--name=disk", f"--filename={file}", "--ioengine=io_uring", "--direct=1",
             f"--rw={_MODES[mode]}", f"--bs={options.block}", f"--iodepth={options.depth}",
             f"--size={options.bytes}", "--time_based", f"--runtime={options.seconds}",
             "--output-format=json"]
    job = json.loads(run(words))["jobs"][0]
    return job["read"]["bw_bytes"] + job["write"]["bw_bytes"]


def _ours(options: Options, mode: str, engine: str, file: str) -> float:
    program = os.path.join(os.path.dirname(options.program), "disk_perf")
    moved = json.loads(run([program, "--file", file, "--mode", mode, "--engine", engine,
                            "--bytes", str(options.bytes), "--block", str(options.block),
                            "--depth", str(options.depth), "--seconds", str(options.seconds)]))
    return moved["read"] + moved["write"]


def rows(found: list[dict[Way, float]]) -> list[list[str]]:
    """By mode and engine: GB/s, and the ratio to fio's of the same round."""
    lines = []
    for mode in _MODES:
        for engine in _ENGINES:
            speeds = [each[mode, engine] for each in found]
            ratios = sorted(each[mode, engine] / each[mode, "fio"] for each in found)
            lines.append([mode, engine, f"{statistics.median(speeds) / 1e9:.2f}",
                          f"{statistics.median(ratios):.2f}",
                          f"{ratios[0]:.2f} to {ratios[-1]:.2f}"])
    return lines


def _bench(options: Options, command: str) -> list[str]:
    file = os.path.join(os.path.abspath(options.folder or options.out), "disk.bin")

    def one(way: Way) -> float:
        mode, engine = way
        return (_fio(options, mode, file) if engine == "fio"
                else _ours(options, mode, engine, file))

    try:
        _ours(options, "write", "threads", file)  # the file is there, and its blocks
        found = take_turns([(mode, engine) for mode in _MODES for engine in _ENGINES],
                           options.rounds, one)
    finally:
        if os.path.exists(file):
            os.remove(file)
    return ["# The disk", "",
            f"`{command}` made this: a file of {options.bytes >> 20} MiB past the page cache, blocks "
            f"of {options.block >> 10} KiB, {options.depth} requests under way, "
            f"{options.seconds} s each, {options.rounds} rounds in which all take turns. GB/s: both "
            "directions together. Beside fio: the median, the least and the most of the rounds.", "",
            *table(["mode", "engine", "GB/s", "beside fio", "least to most"], rows(found))]


if __name__ == "__main__":
    PARSER = bench_parser("disk", __doc__, rounds=9)
    for flag, default, told in (("bytes", 512 << 20, "of the file"), ("block", 1 << 20, "of a request"),
                                ("depth", 8, "requests under way"), ("seconds", 3, "of each run")):
        PARSER.add_argument(f"--{flag}", type=int, default=default, metavar="N",
                            help=f"{told} [{default}]")
    PARSER.add_argument("--folder", default="", metavar="DIR", help="where the file is [--out]")
    main(PARSER, _bench)
