"""Runs `ringzero train` and returns what it says of itself."""
import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable

_LOSS = re.compile(r"iteration (\d+)/\d+  loss (\S+)")


class BenchError(Exception):
    pass


def run_command(name: str, parse: Callable[[list[str]], argparse.Namespace],
                bench: Callable[[argparse.Namespace, str], str], words: list[str]) -> int:
    """`./rz bench NAME`: makes --out, prints what `bench(options, the command as typed)` returns; the exit code."""
    options = parse(words)
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


def run(command: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command that must succeed. `environment`: on top of this one."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise BenchError(f"'{shlex.join(command)}' ended with exit code {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return done


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
