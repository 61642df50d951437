"""Micro-batches by number: which samples, in which order, whichever worker computes them."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from ringzero.errors import refuse


@dataclass(frozen=True)
class Length:
    """Of a run, in iterations."""
    iterations: int
    per_epoch: int = 0      # 0: no data is known
    epoch_samples: int = 0  # if an epoch's last batch is incomplete, and trained on


def length_of(config: Any, data: Any, iterations: int | None) -> Length:
    """By `iterations`, else by the configuration: its iterations, or its epochs of the data."""
    iterations = iterations if iterations is not None else config.iterations
    per_epoch = epoch_samples = 0
    if data is not None:
        if isinstance(data, IterableDataset) or not isinstance(data, Sized):
            raise refuse("training_data: wanted a dataset with a length; batches of an iterable one can be given to the engine "
                         "without training_data=, with iterations=")
        if len(data) < config.train_batch:
            raise refuse(f"training_data has {len(data)} samples, but an update takes {config.train_batch} (train_batch_size)")
        per_epoch, rest = divmod(len(data), config.train_batch)
        if rest and not config.drop_last:
            per_epoch, epoch_samples = per_epoch + 1, len(data)
    if iterations is None and config.epochs is not None and per_epoch:
        iterations = config.epochs * per_epoch
    if iterations is None:
        raise refuse("a run's length must be known before it begins: give iterations=, or in the configuration `iterations`, or "
                     "`epochs` with training_data=")
    if iterations < 1:
        raise refuse(f"iterations={iterations}: wanted at least 1")
    return Length(iterations, per_epoch, epoch_samples)


class _MicroBatches(Sampler[list[int]]):
    """Sample numbers of this worker's micro-batches, from the next one to the end of its epoch."""

    def __init__(self, samples: int, config: Any, worker: int, length: Length, done: Callable[[], int]) -> None:
        self._samples, self._config, self._worker, self._length, self._done = samples, config, worker, length, done

    def _order(self, epoch: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed((self._config.seed * 1_000_003 + epoch) % (1 << 63))
        return torch.randperm(self._samples, generator=generator)

    def __iter__(self) -> Iterator[list[int]]:
        config, length = self._config, self._length
        first, lap = divmod(self._done(), config.laps)
        if first >= length.iterations:
            return
        epoch = first // length.per_epoch
        order = self._order(epoch)
        for iteration in range(first, min(length.iterations, (epoch + 1) * length.per_epoch)):
            for each in range(lap, config.laps):
                micro_batch = each * config.workers + self._worker
                begin = iteration % length.per_epoch * config.train_batch + micro_batch * config.micro_batch
                if begin < self._samples:
                    yield order[begin:begin + config.micro_batch].tolist()
            lap = 0

    def __len__(self) -> int:
        return self._length.per_epoch * self._config.laps


def loader_of(data: Dataset, config: Any, worker: int, length: Length, done: Callable[[], int], collate: Callable | None,
              processes: int) -> DataLoader:
    """One pass is an epoch, or what is left of it. done(): micro-batches that this worker has had."""
    batches = _MicroBatches(len(data), config, worker, length, done)
    return DataLoader(data, batch_sampler=batches, collate_fn=collate, num_workers=processes)
