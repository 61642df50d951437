"""Runs a group of processes to their end, or ends them all.

    run_group([Command("ddp worker 0", argv, environment, log), …], timeout_seconds=1800)

While nothing is watched the caller sleeps until a process ends: it takes no time from what is being measured.
"""
import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from ring_run import BenchError

_WATCH_PERIOD_SECONDS = 0.1  # and at least as long as a look takes: half of the time at most goes into looking
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Command:
    name: str
    argv: list[str]
    environment: dict[str, str]  # on top of this process's own
    log: str                     # file that gets its output


def _last_lines(path: str, count: int = 12) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join(f"\n  | {line.rstrip()}" for line in file.readlines()[-count:])


def _die_with_parent() -> None:
    """In the child, before it becomes the program: whatever ends this process ends it too."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process: subprocess.Popen) -> None:
    """With everything that it has started, unless it has ended by itself."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for_any(processes: list[subprocess.Popen], seconds: float) -> None:
    poll = select.poll()
    with contextlib.ExitStack() as open_files:
        for process in processes:
            fd = os.pidfd_open(process.pid)
            open_files.callback(os.close, fd)
            poll.register(fd, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)


def run_group(commands: list[Command], timeout_seconds: float,
              watch: Callable[[list[int]], None] | None = None) -> None:
    """BenchError names the first process that failed, or says that it took too long. `watch` gets all process ids often."""
    running: dict[str, subprocess.Popen] = {}
    deadline = time.monotonic() + timeout_seconds
    try:
        for command in commands:
            with open(command.log, "wb") as log:
                running[command.name] = subprocess.Popen(
                    command.argv, env=os.environ | command.environment, stdin=subprocess.DEVNULL, stdout=log,
                    stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_die_with_parent)
        logs = {command.name: command.log for command in commands}
        while True:
            _check(running, logs)
            # Not polled again: what has not been reaped has its process id still, even when it has just ended.
            alive = {name: process for name, process in running.items() if process.returncode is None}
            if not alive:
                return
            left = deadline - time.monotonic()
            if left <= 0:
                name = next(iter(alive))
                raise BenchError(f"{name}: not done within {timeout_seconds:g} s: wanted an end, found it running; "
                                 f"its last lines:{_last_lines(logs[name])}")
            if watch is not None:
                begin = time.monotonic()
                watch([process.pid for process in alive.values()])
                left = min(left, max(_WATCH_PERIOD_SECONDS, time.monotonic() - begin))
            _wait_for_any(list(alive.values()), left)
    finally:
        for process in running.values():
            _end(process)


def _check(running: dict[str, subprocess.Popen], logs: dict[str, str]) -> None:
    for name, process in running.items():
        if process.poll() not in (None, 0):
            raise BenchError(f"{name}: ended with exit code {process.returncode}; its last lines:{_last_lines(logs[name])}")
