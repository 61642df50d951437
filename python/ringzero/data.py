"""Micro-batches by number: which samples, in which order, whichever worker computes them."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, default_collate

from ringzero.errors import refuse


@dataclass(frozen=True)
class Length:
    """Of a run, in iterations."""
    data: "Data"
    iterations: int
    per_epoch: int = 0       # 0: no data is known
    epoch_samples: int = 0   # if an epoch's last batch is incomplete, and trained on
    evaluate_every: int = 0  # 0: never
    evaluation_laps: int = 0


class Data:
    """The datasets of a run. `training` and `evaluation` may be None."""

    def __init__(self, config: Any, training: Any, evaluation: Any, collate: Callable | None) -> None:
        self._config, self._training, self._evaluation = config, training, evaluation
        self._collate = collate or default_collate
        for name, data in {"training_data": training, "evaluation_data": evaluation}.items():
            if data is not None and (isinstance(data, IterableDataset) or not isinstance(data, Sized) or len(data) == 0):
                raise refuse(f"{name}: wanted a dataset with a length above 0; batches of an iterable one can be given to the "
                             "engine without training_data=, with iterations=")

    def example(self) -> Any:
        """What the model is called with for one sample: the first part of a collated one, or all of a dict."""
        if self._training is None:
            raise refuse("example=: missing; what one sample is called with, to find what the parts of the model cost")
        batch = self._collate([self._training[0]])
        if isinstance(batch, (dict, torch.Tensor)):
            return batch
        return tuple(batch[:-1]) if len(batch) > 1 else batch[0]

    def length(self, iterations: int | None) -> Length:
        """By `iterations`, else by the configuration: its iterations, or its epochs of the data."""
        config, per_epoch, epoch_samples = self._config, 0, 0
        iterations = iterations if iterations is not None else config.iterations
        if self._training is not None:
            samples = len(self._training)
            if samples < config.train_batch:
                raise refuse(f"training_data has {samples} samples, but an update takes {config.train_batch} (train_batch_size)")
            per_epoch, rest = divmod(samples, config.train_batch)
            if rest and not config.drop_last:
                per_epoch, epoch_samples = per_epoch + 1, samples
        if iterations is None and config.epochs is not None and per_epoch:
            iterations = config.epochs * per_epoch
        if iterations is None:
            raise refuse("a run's length must be known before it begins: give iterations=, or in the configuration `iterations`, "
                         "or `epochs` with training_data=")
        if iterations < 1:
            raise refuse(f"iterations={iterations}: wanted at least 1")
        every = iterations if config.evaluate_every is None else config.evaluate_every
        if self._evaluation is None or every == 0:
            return Length(self, iterations, per_epoch, epoch_samples)
        laps = -(-len(self._evaluation) // (config.evaluation_batch * config.workers))
        return Length(self, iterations, per_epoch, epoch_samples, min(every, iterations), laps)

    def loader(self, engine: Any, processes: int) -> DataLoader | None:
        """One pass is an epoch, or what is left of it."""
        if self._training is None:
            return None
        return DataLoader(self._training, batch_sampler=_MicroBatches(len(self._training), self._config, engine),
                          collate_fn=self._collate, num_workers=processes)

    def evaluation(self, first: int, laps: int) -> Iterator[tuple[Any, int]]:
        """(batch, samples) of this worker's micro-batches first, first + N, …; where there are none, a stand-in of 0 samples."""
        size, count = self._config.evaluation_batch, len(self._evaluation)
        for lap in range(laps):
            begin = (first + lap * self._config.workers) * size
            chosen = range(begin, min(begin + size, count))
            yield self._collate([self._evaluation[i] for i in chosen or [0]]), len(chosen)


class _MicroBatches(Sampler[list[int]]):
    """Sample numbers of a worker's micro-batches, from its next one to the end of that one's epoch."""

    def __init__(self, samples: int, config: Any, engine: Any) -> None:
        self._samples, self._config, self._engine = samples, config, engine

    def __iter__(self) -> Iterator[list[int]]:
        config, length = self._config, self._engine._length
        first, lap = divmod(self._engine.micro_steps + (self._engine._lap is not None), config.laps)
        epoch = first // length.per_epoch
        generator = torch.Generator().manual_seed((config.seed * 1_000_003 + epoch) % (1 << 63))
        order = torch.randperm(self._samples, generator=generator)
        for iteration in range(first, min(length.iterations, (epoch + 1) * length.per_epoch)):
            for each in range(lap, config.laps):
                micro_batch = each * config.workers + self._engine.global_rank
                begin = iteration % length.per_epoch * config.train_batch + micro_batch * config.micro_batch
                if begin < self._samples:
                    yield order[begin:begin + config.micro_batch].tolist()
            lap = 0

    def __len__(self) -> int:
        return self._engine._length.per_epoch * self._config.laps
