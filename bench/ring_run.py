"""What all benchmarks share: their command line, rounds, runs of `ringzero train`, the page of
results, and what the machine is."""
import argparse
import json
import math
import os
import platform
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from importlib import metadata
from typing import NoReturn, TypeVar

Options = argparse.Namespace
_Run = TypeVar("_Run", bound=Hashable)
_Result = TypeVar("_Result")
_HERE = os.path.dirname(os.path.abspath(__file__))

# The paper's rules: neither a warm-up nor predictions, of which a cyclic rule has some by default.
PAPER = {"warmup_updates": 0, "predict": False}


def of_rule(name: str, **settings: object) -> dict[str, object]:
    """The paper's rule, and further settings of [cyclic], as overrides."""
    found = {"rule": name, **({} if name == "dp" else PAPER), **settings}
    return {f"cyclic.{key}": value for key, value in found.items()}


# The rules that benchmarks compare, by name.
RULES = {"dp": of_rule("dp"), "cdp_v2, slack 0": of_rule("cdp_v2", slack=0),
         "cdp_v2, slack 1": of_rule("cdp_v2", slack=1), "cdp_v1": of_rule("cdp_v1")}


class BenchError(Exception):
    pass


def _at_least(least: int, text: str) -> int:
    value = int(text)
    if value < least:
        raise argparse.ArgumentTypeError(f"wanted {least} or more, found {value}")
    return value


def positive(text: str) -> int:
    """For argparse."""
    return _at_least(1, text)


def not_negative(text: str) -> int:
    """For argparse."""
    return _at_least(0, text)


def bench_parser(name: str, about: str, config: str = "",
                 **numbers: int) -> argparse.ArgumentParser:
    """Of `./rz bench NAME`. `about`: its module's text. Where there is a default: --config (below
    bench/), --rounds, --workers, --seeds."""
    parser = argparse.ArgumentParser(prog=f"./rz bench {name}", allow_abbrev=False,
                                     description=about.partition("\n\n")[0])
    if config:
        parser.add_argument("--config", default=os.path.join(_HERE, config))
    told = {"workers": "", "rounds": "everything runs once in each ", "seeds": "1 to N "}
    for flag, default in numbers.items():
        parser.add_argument(f"--{flag}", type=positive, default=default, metavar="N",
                            help=f"{told[flag]}[{default}]")
    out = f"build/bench-{name}"
    parser.add_argument("--out", default=out, metavar="DIR", help=f"[{out}]")
    parser.add_argument("--program", default="", help=argparse.SUPPRESS)
    # Only says whether these arguments do.
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    return parser


def _leave(number: int, _: object) -> None:
    """As an exception, so that all processes, hosts and files are gone on the way out."""
    sys.exit(128 + number)


def run_command(parser: argparse.ArgumentParser,
                bench: Callable[[Options, str], list[str]],
                words: list[str] | None = None) -> int:
    """The exit code of a benchmark. `bench(options, the command as typed)` returns the lines of its
    page NAME.md, which --out gets. `words`: else those of the command line."""
    words = sys.argv[1:] if words is None else words
    name = parser.prog.split()[-1]
    options = parser.parse_args(words)
    if options.check:
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    shown = [word for before, word in zip(["", *words], words) if "--program" not in (before, word)]
    try:
        os.makedirs(options.out, exist_ok=True)
        page = bench(options, " ".join([parser.prog, *shown]))
        print(write_page(page, options.out, f"{name}.md"))
    except BenchError as error:
        print(f"rz: bench {name}: {error}", file=sys.stderr)
        return 1
    return 0


def main(parser: argparse.ArgumentParser, bench: Callable[[Options, str], list[str]]) -> NoReturn:
    sys.exit(run_command(parser, bench))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def rotated(runs: Sequence[_Run], number: int) -> list[_Run]:
    """The order of a round: each begins with another one, so that none always follows the same
    state of the machine."""
    at = number % len(runs)
    return [*runs[at:], *runs[:at]]


def _seconds_of_others() -> float:
    """Processor time of the machine that this process and its children did not take; of children,
    what those had that are over."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    busy = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    return busy - sum(os.times()[:4])


_QUIET = 0.2  # cores: so much others may compute beside a benchmark


def take_turns(runs: Sequence[_Run], rounds: int,
               do: Callable[[_Run], _Result]) -> list[dict[_Run, _Result]]:
    """The results of each round, in which all runs are done. Says so where other processes compute
    beside a run."""
    found: list[dict[_Run, _Result]] = []
    for number in range(rounds):
        found.append({})
        for each in rotated(runs, number):
            name = ", ".join(map(str, each)) if isinstance(each, tuple) else each
            say(f"round {number + 1} of {rounds}: {name}")
            since, before = time.monotonic(), _seconds_of_others()
            found[-1][each] = do(each)
            took, others = time.monotonic() - since, _seconds_of_others() - before
            if took >= 1 and others > _QUIET * took:  # the kernel counts hundredths of a second
                say(f"  not alone: other processes took {others / took:.1f} cores meanwhile")
    return found


# Of Student's distribution, two-sided, 95 %: by differences less one.
_STUDENT = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 9: 2.262,
            19: 2.093}


def interval(differences: list[float]) -> tuple[float, float] | None:
    """The mean's 95 % interval; None: fewer than two, or one run diverged."""
    if len(differences) < 2 or not all(map(math.isfinite, differences)):
        return None
    middle = statistics.mean(differences)
    # Where it is not known for so many, that of fewer is wider.
    factor = _STUDENT[max(known for known in _STUDENT if known < len(differences))]
    half = factor * statistics.stdev(differences) / math.sqrt(len(differences))
    return middle - half, middle + half


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Markdown, aligned, so that it reads as well on a screen; all columns but the first to the
    right."""
    cells = [list(titles), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    rule = ["-" * widths[0], *("-" * (max(width, 2) - 1) + ":" for width in widths[1:])]
    aligned = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in cells]
    return [f"| {' | '.join(row)} |" for row in [aligned[0], rule, *aligned[1:]]]


def run(command: list[str], environment: dict[str, str] | None = None,
        timeout_seconds: float | None = None) -> str:
    """What a command that must succeed prints. `environment`: on top of this one."""
    words = shlex.join(command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=timeout_seconds, env={**os.environ, **(environment or {})})
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"'{words}': not done within {timeout_seconds:g} s") from error
    if done.returncode != 0:
        raise BenchError(f"'{words}' ended with exit code {done.returncode}:\n"
                         f"{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return done.stdout


def read_json(*path: str) -> dict:
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def read_config(path: str) -> dict:
    """A configuration's file, whose comments are // to the end of a line."""
    with open(path, encoding="utf-8") as file:
        return json.loads(re.sub(r"//.*", "", file.read()))


def write_json(value: object, *path: str) -> None:
    write_page([json.dumps(value, indent=1)], *path)


def write_page(lines: list[str], *path: str) -> str:
    page = "\n".join([*lines, ""])
    with open(os.path.join(*path), "w", encoding="utf-8") as file:
        file.write(page)
    return page


def set_words(settings: dict[str, object]) -> list[str]:
    """--set for each."""
    texts = {key: value if isinstance(value, str) else json.dumps(value)
             for key, value in settings.items()}
    return [word for key, text in texts.items() for word in ("--set", f"{key}={text}")]


def train(options: Options, settings: dict[str, object], words: Sequence[str] = (),
          config: str = "") -> dict:
    """The summary of a run of --program with --config. `words`: more of its command line.
    `config`: in place of --config."""
    with tempfile.NamedTemporaryFile(suffix=".json") as summary:
        run([options.program, "train", config or options.config, "--summary", summary.name, *words,
             *set_words(settings)])
        return read_json(summary.name)


def dump_initial(options: Options, config: str, seed: int, path: str) -> None:
    """The parameters with which the run of a configuration's file begins: those behind one update
    that changes nothing."""
    once = {"seed": seed, "iterations": 1, "evaluation.every": 0, "optimizer.params.lr": 0}
    train(options, once, ["--dump-parameters", path], config)


def train_traced(options: Options,
                 settings: dict[str, object]) -> tuple[dict, list[dict]]:
    """The summary, and the slices of the trace."""
    with tempfile.NamedTemporaryFile(suffix=".json") as trace:
        summary = train(options, settings, ["--trace", trace.name])
        events = read_json(trace.name)["traceEvents"]
        return summary, [event for event in events if event["ph"] == "X"]


def train_with_metrics(options: Options, settings: dict[str, object],
                       config: str = "") -> tuple[dict, list[dict]]:
    """The summary, and the scalars of each iteration that was trained, by name."""
    with tempfile.TemporaryDirectory() as folder:
        summary = train(options, settings, ["--metrics", folder], config)
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
            scalars = [json.loads(line)["scalars"] for line in file]
    return summary, [each for each in scalars if "Train/Samples/train_loss" in each]


def _field(path: str, name: str) -> str:
    with open(path, encoding="utf-8") as file:
        found = (line.partition(":")[2].strip() for line in file if line.startswith(name))
        return next(found, "unknown")


def describe_machine() -> dict:
    """What peers are measured on and with. Says a warning if other work runs: `load_before` is how
    many processes wanted to run in the last minute."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > 0.5:
        say(f"warning: this machine is busy (load {load:.1f} on {cores} cores): times will be too "
            "long, and ratios wrong")
    try:
        revision = run(["git", "-C", _HERE, "describe", "--always", "--dirty", "--abbrev=12"])
    except (OSError, BenchError):
        revision = "unknown"
    return {
        "processor": _field("/proc/cpuinfo", "model name"),
        "cores": cores,
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "revision": revision.strip(),
        # Of the packages in the module path; torch itself is never imported here.
        **{name: metadata.version(name) for name in ("torch", "deepspeed")},
        "load_before": load,
    }
