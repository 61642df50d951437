"""What ends a run, as exceptions. Each has the exit code that `ringzero train` would end with."""
import re
import sys


class RingZeroError(RuntimeError):
    """A run's end: `exit_code` as in the README, `worker` the number of the worker that failed."""
    exit_code = 5
    ringzero_code = 13  # absl::StatusCode: https://abseil.io/docs/cpp/guides/status-codes

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.ringzero_code = code or self.ringzero_code
        self.worker = next(map(int, re.findall(r"worker (\d+)", message)), None)


class InputError(RingZeroError, ValueError):
    """Bad input: the configuration, the model, the data, or a call in the wrong place."""
    exit_code = 2
    ringzero_code = 3


class WorkerLost(RingZeroError, ConnectionError):
    """A worker died, was interrupted, or was stopped for longer than `cyclic.peer_timeout`."""
    exit_code = 3


class WaitTimeout(RingZeroError, TimeoutError):
    """All workers live, but one wait took longer than `cyclic.wait_timeout`."""
    exit_code = 4


class NotFinite(RingZeroError, ArithmeticError):
    """Numbers that are not finite, and the configuration says that they end the run."""
    exit_code = 6


_CLASSES = {**dict.fromkeys((3, 5, 6, 7, 9, 12), InputError), 1: WorkerLost, 14: WorkerLost,
            4: WaitTimeout, 11: NotFinite}


def of_status(code: int, message: str) -> RingZeroError:
    """The exception for a status of C++."""
    return _CLASSES.get(code, RingZeroError)(message, code)


_print_error = sys.excepthook


def _exit_with_code(*error) -> None:
    _print_error(*error)
    if isinstance(error[1], RingZeroError):
        raise SystemExit(error[1].exit_code)


sys.excepthook = _exit_with_code
