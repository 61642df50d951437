"""What all benchmarks share: their command line, rounds, runs of `ringzero train`, and the page of results."""
import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

_Run = TypeVar("_Run", bound=Hashable)
_Result = TypeVar("_Result")


class BenchError(Exception):
    pass


def positive(text: str) -> int:
    """For argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"wanted 1 or more, found {value}")
    return value


def bench_parser(name: str, about: str, *, config: str = "", rounds: int = 0, workers: int = 0) -> argparse.ArgumentParser:
    """Of `./rz bench NAME`. `about`: its module's text. Where there is a default: --config (below bench/), --rounds, --workers."""
    parser = argparse.ArgumentParser(prog=f"./rz bench {name}", allow_abbrev=False, description=about.splitlines()[0])
    if config:
        parser.add_argument("--config", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), config))
    if workers:
        parser.add_argument("--workers", type=positive, default=workers, metavar="N", help=f"[{workers}]")
    if rounds:
        parser.add_argument("--rounds", type=positive, default=rounds, metavar="N", help=f"everything runs once in each [{rounds}]")
    out = f"build/bench-{name}"
    parser.add_argument("--out", default=out, metavar="DIR", help=f"[{out}]")
    parser.add_argument("--program", default="", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # only say whether these arguments do
    return parser


def _leave(number: int, _: object) -> None:
    """As an exception, so that all processes, hosts and files are gone on the way out."""
    sys.exit(128 + number)


def run_command(parser: argparse.ArgumentParser, bench: Callable[[argparse.Namespace, str], list[str]],
                words: list[str] | None = None) -> int:
    """The exit code of a benchmark. `bench(options, the command as typed)` returns the lines of its page NAME.md, which --out gets.
    `words`: else those of the command line."""
    words = sys.argv[1:] if words is None else words
    name = parser.prog.split()[-1]
    options = parser.parse_args(words)
    if options.check:
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    shown = [word for i, word in enumerate(words) if word != "--program" and (i == 0 or words[i - 1] != "--program")]
    try:
        os.makedirs(options.out, exist_ok=True)
        print(write_page(bench(options, " ".join([parser.prog, *shown])), options.out, f"{name}.md"))
    except BenchError as error:
        print(f"rz: bench {name}: {error}", file=sys.stderr)
        return 1
    return 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def rotated(runs: Sequence[_Run], number: int) -> list[_Run]:
    """The order of a round: each begins with another one, so that none always follows the same state of the machine."""
    at = number % len(runs)
    return [*runs[at:], *runs[:at]]


def take_turns(runs: Sequence[_Run], rounds: int, do: Callable[[_Run], _Result]) -> list[dict[_Run, _Result]]:
    """The results of each round, in which all runs are done."""
    found: list[dict[_Run, _Result]] = []
    for number in range(rounds):
        found.append({})
        for each in rotated(runs, number):
            say(f"round {number + 1} of {rounds}: {', '.join(map(str, each)) if isinstance(each, tuple) else each}")
            found[-1][each] = do(each)
    return found


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Markdown, aligned, so that it reads as well on a screen; all columns but the first to the right."""
    cells = [list(titles), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["| " + " | ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) + " |" for row in cells]
    rule = ["-" * widths[0], *("-" * (max(width, 2) - 1) + ":" for width in widths[1:])]
    return [lines[0], f"| {' | '.join(rule)} |", *lines[1:]]


def run(command: list[str], environment: dict[str, str] | None = None, timeout_seconds: float | None = None) -> str:
    """What a command that must succeed prints. `environment`: on top of this one."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_seconds,
                              env={**os.environ, **(environment or {})})
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"'{shlex.join(command)}': not done within {timeout_seconds:g} s") from error
    if done.returncode != 0:
        raise BenchError(f"'{shlex.join(command)}' ended with exit code {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return done.stdout


def read_json(*path: str) -> dict:
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def write_json(value: object, *path: str) -> None:
    with open(os.path.join(*path), "w", encoding="utf-8") as file:
        file.write(json.dumps(value, indent=1) + "\n")


def write_page(lines: list[str], *path: str) -> str:
    page = "\n".join([*lines, ""])
    with open(os.path.join(*path), "w", encoding="utf-8") as file:
        file.write(page)
    return page


def set_words(settings: dict[str, object]) -> list[str]:
    """--set for each."""
    return [word for key, value in settings.items()
            for word in ("--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}")]


def train(program: str, config: str, settings: dict[str, object], words: Sequence[str] = ()) -> dict:
    """The summary of a run. `words`: more of its command line."""
    with tempfile.NamedTemporaryFile(suffix=".json") as summary:
        run([program, "train", config, "--summary", summary.name, *words, *set_words(settings)])
        return read_json(summary.name)


def train_traced(program: str, config: str, settings: dict[str, object]) -> tuple[dict, list[dict]]:
    """The summary, and the slices of the trace."""
    with tempfile.NamedTemporaryFile(suffix=".json") as trace:
        summary = train(program, config, settings, ["--trace", trace.name])
        return summary, [event for event in read_json(trace.name)["traceEvents"] if event["ph"] == "X"]


def train_with_metrics(program: str, config: str, settings: dict[str, object]) -> tuple[dict, list[dict]]:
    """The summary, and the scalars of each iteration that was trained, by name."""
    with tempfile.TemporaryDirectory() as folder:
        summary = train(program, config, settings, ["--metrics", folder])
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
            scalars = [json.loads(line)["scalars"] for line in file]
    return summary, [each for each in scalars if "Train/Samples/train_loss" in each]
