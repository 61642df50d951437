"""One worker per seat, as a launcher on several hosts would start them.

    with Crew([PROGRAM, "train", "run.json"], hosts, folder, per_host=2) as crew:
        crew.wait_for(0, "iteration 3/")
        hosts.cut(1)
        ended = crew.wait(30)      # of each worker: exit code, what it printed, when it ended
"""
import ctypes
import os
import signal
import subprocess
import time
from dataclasses import dataclass

from hosts import Hosts

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
MASTER_PORT = 29500


def torchrun_environment(hosts: Hosts, worker: int, per_host: int = 1) -> dict[str, str]:
    """What torchrun tells a worker (without an agent that keeps a store)."""
    workers = len(hosts) * per_host
    return {
        "RANK": str(worker), "WORLD_SIZE": str(workers),
        "LOCAL_RANK": str(worker % per_host), "LOCAL_WORLD_SIZE": str(per_host),
        "GROUP_RANK": str(worker // per_host), "GROUP_WORLD_SIZE": str(len(hosts)),
        "ROLE_RANK": str(worker), "ROLE_WORLD_SIZE": str(workers), "ROLE_NAME": "default",
        "MASTER_ADDR": hosts[0].address, "MASTER_PORT": str(MASTER_PORT),
        "TORCHELASTIC_RUN_ID": "hosts", "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: str
    stderr: str
    at: float  # time.monotonic()


class Crew:
    """All run the same command, in `folder`; the first `per_host` on the first host, and so on."""

    def __init__(self, argv: list[str], hosts: Hosts, folder: str, per_host: int = 1,
                 environment: dict[str, str] | None = None) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen] = []
        self._ended_at: dict[int, float] = {}
        try:
            for worker in range(len(hosts) * per_host):
                own = torchrun_environment(hosts, worker, per_host) | (environment or {})
                out, err = (open(self._path(worker, stream), "wb") for stream in ("out", "err"))
                with out, err:
                    self._processes.append(subprocess.Popen(
                        [*hosts[worker // per_host].enter, *argv], cwd=folder,
                        env=os.environ | own, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                        start_new_session=True, preexec_fn=_die_with_parent))
        except BaseException:
            self.close()
            raise

    def _path(self, worker: int, stream: str) -> str:
        return os.path.join(self._folder, f"worker{worker}.{stream}")

    def _read(self, worker: int, stream: str) -> str:
        with open(self._path(worker, stream), encoding="utf-8", errors="replace") as file:
            return file.read()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def pid(self, worker: int) -> int:
        return self._processes[worker].pid

    def _look(self) -> int:
        """How many still run; notes when others ended."""
        for worker, process in enumerate(self._processes):
            if worker not in self._ended_at and process.poll() is not None:
                self._ended_at[worker] = time.monotonic()
        return len(self._processes) - len(self._ended_at)

    def told(self) -> str:
        """All that all have said so far, for messages."""
        return "".join(f"\nworker {worker}: " + self._read(worker, "err")
                       for worker in range(len(self._processes)))

    def wait_for(self, worker: int, words: str, seconds: float = 60) -> None:
        """Until that worker has said so on its standard error."""
        deadline = time.monotonic() + seconds
        while words not in self._read(worker, "err"):
            if self._look() < len(self._processes) or time.monotonic() > deadline:
                raise AssertionError(f"worker {worker} never said '{words}':{self.told()}")
            time.sleep(0.01)

    def wait(self, seconds: float) -> list[Ended]:
        """Until all have ended."""
        deadline = time.monotonic() + seconds
        while self._look():
            if time.monotonic() > deadline:
                alive = set(range(len(self._processes))) - set(self._ended_at)
                raise AssertionError(f"workers {alive} still run after {seconds:g} s:{self.told()}")
            time.sleep(0.005)
        return [Ended(process.returncode, self._read(worker, "out"), self._read(worker, "err"),
                      self._ended_at[worker]) for worker, process in enumerate(self._processes)]
