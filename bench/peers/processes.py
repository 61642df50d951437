"""Runs a group of processes to their end, or ends them all; and watches how much memory they take.

    watch = PeakWatch()
    run_group([Command("ddp worker 0", argv, environment, log), …], 1800, watch.sample)
    watch.peak_mib

While nothing is watched the caller sleeps until a process ends: it takes no time from what is
being measured.
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
from typing import NoReturn

from ring_run import BenchError

_WATCH_PERIOD_SECONDS = 0.1  # at least as long as a look takes: half of the time at most is looking
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Command:
    name: str
    argv: list[str]
    environment: dict[str, str]  # on top of this process's own
    log: str                     # file that gets its output


def _die_with_parent() -> None:
    """In the child, before it becomes the program: whatever ends this process ends it too."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for_any(processes: list[subprocess.Popen], seconds: float) -> None:
    poll = select.poll()
    with contextlib.ExitStack() as open_files:
        for process in processes:
            fd = os.pidfd_open(process.pid)
            open_files.callback(os.close, fd)
            poll.register(fd, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)


def _raise(name: str, what: str, log: str) -> NoReturn:
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = "".join(f"\n  | {line.rstrip()}" for line in file.readlines()[-12:])
    raise BenchError(f"{name}: {what}; its last lines:{lines}")


def run_group(commands: list[Command], timeout_seconds: float,
              watch: Callable[[list[int]], None] | None = None) -> None:
    """BenchError names the first process that failed, or says that it took too long. `watch` gets
    all process ids often."""
    running: list[tuple[Command, subprocess.Popen]] = []
    deadline = time.monotonic() + timeout_seconds
    try:
        for command in commands:
            with open(command.log, "wb") as log:
                running.append((command, subprocess.Popen(
                    command.argv, env=os.environ | command.environment, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                    preexec_fn=_die_with_parent)))
        while True:
            for command, process in running:
                if process.poll() not in (None, 0):
                    _raise(command.name, f"ended with exit code {process.returncode}", command.log)
            # Not polled again: what has not been reaped has its process id still.
            alive = [each for each in running if each[1].returncode is None]
            if not alive:
                return
            left = deadline - time.monotonic()
            if left <= 0:
                what = f"not done within {timeout_seconds:g} s: wanted an end, found it running"
                _raise(alive[0][0].name, what, alive[0][0].log)
            if watch is not None:
                begin = time.monotonic()
                watch([process.pid for _, process in alive])
                left = min(left, max(_WATCH_PERIOD_SECONDS, time.monotonic() - begin))
            _wait_for_any([process for _, process in alive], left)
    finally:
        for _, process in running:  # with all that it has started, unless it has ended by itself
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def pss_mib(pid: int) -> float:
    """Of one process; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            return sum(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1024
    except OSError:
        return 0.0


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class PeakWatch:
    """Proportional set sizes of the processes that it is given and of their children, summed: a
    page that n processes map is 1/n in each, so it counts once. Never in a run that is timed."""

    def __init__(self) -> None:
        self.peak_mib = 0.0

    def sample(self, pids: list[int]) -> None:
        everyone = [*pids, *(child for pid in pids for child in _children(pid))]
        try:  # all stand still meanwhile, so that what is read one after the other belongs together
            _signal_all(everyone, signal.SIGSTOP)
            self.look(everyone)
        finally:
            _signal_all(everyone, signal.SIGCONT)

    def look(self, pids: list[int]) -> None:
        self.peak_mib = max(self.peak_mib, sum(map(pss_mib, pids)))
