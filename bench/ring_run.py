"""Runs `ringzero train` and returns what it says of itself."""
import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

_Run = TypeVar("_Run", bound=Hashable)
_Result = TypeVar("_Result")
_LOSS = re.compile(r"iteration (\d+)/\d+  loss (\S+)")


class BenchError(Exception):
    pass


def positive(text: str) -> int:
    """For argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"wanted 1 or more, found {value}")
    return value


def bench_parser(name: str, about: str, config: str | None = None) -> argparse.ArgumentParser:
    """Of `./rz bench NAME`: --out, --program and, if there is a default for it, --config. `about`: its module's text."""
    parser = argparse.ArgumentParser(prog=f"./rz bench {name}", allow_abbrev=False, description=about.splitlines()[0])
    if config is not None:
        parser.add_argument("--config", default=config)
    out = f"build/bench-{name}"
    parser.add_argument("--out", default=out, metavar="DIR", help=f"[{out}]")
    parser.add_argument("--program", default="", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # only say whether these arguments do
    return parser


def _leave(number: int, _: object) -> None:
    """As an exception, so that all processes, hosts and files are gone on the way out."""
    sys.exit(128 + number)


def run_command(name: str, parse: Callable[[list[str]], argparse.Namespace],
                bench: Callable[[argparse.Namespace, str], str], words: list[str]) -> int:
    """`./rz bench NAME`: makes --out, prints what `bench(options, the command as typed)` returns; the exit code."""
    options = parse(words)
    if options.check:
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    shown = [word for i, word in enumerate(words) if word != "--program" and (i == 0 or words[i - 1] != "--program")]
    try:
        os.makedirs(options.out, exist_ok=True)
        print(bench(options, " ".join([f"./rz bench {name}", *shown])))
    except BenchError as error:
        print(f"rz: bench {name}: {error}", file=sys.stderr)
        return 1
    return 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def take_turns(runs: Sequence[_Run], rounds: int, do: Callable[[_Run, str], _Result]) -> list[dict[_Run, _Result]]:
    """The results of each round, in which all runs are done, beginning with another one each time. `do` is given the run and the
    name of the round."""
    found = []
    for number in range(rounds):
        first = number % len(runs)
        found.append({each: do(each, f"round {number + 1} of {rounds}") for each in (*runs[first:], *runs[:first])})
    return found


def run(command: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command that must succeed. `environment`: on top of this one."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise BenchError(f"'{shlex.join(command)}' ended with exit code {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return done


def write_json(folder: str, name: str, value: object) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(json.dumps(value, indent=1) + "\n")


def write_page(folder: str, name: str, lines: list[str]) -> str:
    """The page, which is then in `folder`, too."""
    page = "\n".join(lines)
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(page)
    return page


def train(program: str, config: str, settings: dict[str, object],
          words: list[str] | None = None) -> tuple[dict, list[tuple[int, float]]]:
    """The summary, and the (iteration, loss) lines that it printed. `words`: more of the command line."""
    with tempfile.NamedTemporaryFile(suffix=".json") as summary:
        command = [program, "train", config, "--summary", summary.name, *(words or [])]
        for key, value in settings.items():
            command += ["--set", f"{key}={json.dumps(value) if not isinstance(value, str) else value}"]
        done = run(command)
        losses = [(int(number), float(loss)) for number, loss in _LOSS.findall(done.stdout + done.stderr)]
        return json.load(open(summary.name, encoding="utf-8")), losses
