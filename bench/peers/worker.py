"""A worker process of a peer: python3 -m peers.worker SPEC WORKER. All have this loop and clock."""
import os
import pickle
import resource
import statistics
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import distributed

from peers import wrappings
from peers.batches import tokens_of
from peers.runs import RunReport, RunSpec


Batches = list[tuple[torch.Tensor, torch.Tensor]]


def _batches(spec: RunSpec, worker: int) -> Batches:
    """Of all iterations, made before the first: K = 1, so worker w has micro-batch w."""
    lists = (tokens_of(spec.case, iteration, worker) for iteration in range(spec.iterations))
    return [(torch.tensor(inputs), torch.tensor(targets)) for inputs, targets in lists]


def _used() -> tuple[float, int]:
    """CPU seconds and minor faults of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_minflt


class _Saving:
    """Saves after every so many steps. A thread waits until a save is durable, and clocks it."""

    def __init__(self, spec: RunSpec, peer: wrappings.Peer) -> None:
        self.seconds: list[float] = []
        self._saves, self._save = spec.saves, peer.save
        self._clocks = ThreadPoolExecutor(1)
        self._last: Future | None = None

    def after(self, steps: int) -> None:
        if not self._saves or steps % self._saves.every:
            return
        self.finish()  # one at a time
        folder = os.path.join(self._saves.folder, f"{steps} steps")
        os.makedirs(folder, exist_ok=True)
        begin = time.perf_counter()
        written = self._save(folder)
        self._last = self._clocks.submit(self._clock, folder, written, begin)

    def finish(self) -> None:
        """Of the last save; what went wrong in it is raised here."""
        if self._last:
            self.seconds.append(self._last.result())
            self._last = None

    @staticmethod
    def _clock(folder: str, written: Future | None, begin: float) -> float:
        if written:
            written.result()
        if distributed.get_rank() == 0:  # whose save returns when all have written
            for place, _, names in os.walk(folder):
                for name in names:
                    with open(os.path.join(place, name), "rb") as file:
                        os.fsync(file.fileno())
        return time.perf_counter() - begin


def _run(spec: RunSpec, step: wrappings.Step, saving: _Saving,
         batches: Batches) -> tuple[torch.Tensor, list[float]]:
    """{losses…, CPU seconds, minor faults} of this worker in double; seconds of measured steps."""
    distributed.barrier()
    losses, ends = [], []
    before = _used()
    for iteration, (inputs, targets) in enumerate(batches):
        if iteration == spec.left_out:
            before = _used()
            ends.append(time.perf_counter())
        losses.append(step(inputs, targets))
        saving.after(iteration + 1)
        if iteration >= spec.left_out:
            ends.append(time.perf_counter())
    after = _used()
    saving.finish()
    numbers = [*map(float, losses), after[0] - before[0], after[1] - before[1]]
    steps = [end - begin for begin, end in zip(ends, ends[1:])]
    return torch.tensor(numbers, dtype=torch.float64), steps


def _report(spec: RunSpec, numbers: torch.Tensor, steps: list[float],
            saves: list[float]) -> RunReport:
    """`numbers`: summed over all workers."""
    *losses, cpu_seconds, faults = numbers.tolist()
    return RunReport(losses=[loss / spec.case.workers for loss in losses],
                     step_median=statistics.median(steps), step_min=min(steps), step_max=max(steps),
                     step_mean=statistics.fmean(steps), steps=steps,
                     cpu_seconds_per_step=cpu_seconds / len(steps),
                     minor_faults_per_step=faults / len(steps), saves=saves)


def _check_allocator() -> None:
    """The loader only warns of a library that it cannot preload."""
    wanted = os.environ.get("LD_PRELOAD")
    with open("/proc/self/maps", encoding="utf-8") as maps:
        if wanted and wanted not in maps.read():
            sys.exit(f"wanted the allocator {wanted}, found it not loaded: install it (Debian: "
                     "libjemalloc2)")


def main(spec_path: str, worker: int) -> None:
    _check_allocator()
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    with open(spec_path, "rb") as file:
        spec: RunSpec = pickle.load(file)
    distributed.init_process_group("gloo", init_method=f"file://{os.path.abspath(spec.store)}",
                                   rank=worker, world_size=spec.case.workers)
    peer = getattr(wrappings, spec.wrapping)(spec)
    saving = _Saving(spec, peer)
    numbers, steps = _run(spec, peer.step, saving, _batches(spec, worker))
    distributed.all_reduce(numbers)
    if worker == 0:
        with open(spec.report, "wb") as file:
            pickle.dump(_report(spec, numbers, steps, saving.seconds), file)
    distributed.barrier()
    # No shut-down: with FSDP2 one process in some ten ends it in std::terminate, long after all is
    # measured and written.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
