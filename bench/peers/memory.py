"""Memory of several processes at one moment: proportional set sizes, summed.

    watch = PeakWatch();  watch.sample([pid, …])    # often
    watch.peak_mib

Pss counts a page that n processes map as 1/n in each, so the sum counts every page once.
"""
import contextlib
import os
import signal
from collections.abc import Iterator


def pss_mib(pid: int) -> float:
    """Of one process; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            return sum(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1024
    except OSError:
        return 0.0


def children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


@contextlib.contextmanager
def _stopped(pids: list[int]) -> Iterator[None]:
    """All stand still meanwhile, so that what is read one after the other belongs together."""
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class PeakWatch:
    """Samples the processes that it is given and their children. Costs time: never in a run that is timed."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self.samples = 0

    def sample(self, pids: list[int]) -> None:
        everyone = list(pids)
        for pid in pids:
            everyone += children(pid)
        with _stopped(everyone):
            self.peak_mib = max(self.peak_mib, sum(map(pss_mib, everyone)))
        self.samples += 1
