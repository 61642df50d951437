"""Micro-batches by number: which samples, in which order, whichever worker computes them."""
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from ringzero import _ringzero
from ringzero.errors import InputError


class _Loader(DataLoader):
    """Ends with the run, if that ends early. Processes of the loader may be ahead of it."""

    def __iter__(self) -> Iterator[Any]:
        engine = self.batch_sampler.engine
        engine.evaluation_due  # ends the micro-batch that is open
        for step, batch in enumerate(super().__iter__(), engine.micro_steps):
            if engine.has_ended_before(step):
                return
            yield batch


class Data:
    """The datasets of a run, and its length. `training` and `evaluation` may be None."""

    def __init__(self, config: Any, training: Any, evaluation: Any, collate: Callable | None,
                 iterations: int | None) -> None:
        self._config, self._training, self._evaluation = config, training, evaluation
        self._collate = collate or default_collate
        for name, data in {"training_data": training, "evaluation_data": evaluation}.items():
            sized = isinstance(data, Sized) and not isinstance(data, IterableDataset)
            if data is not None and not (sized and len(data)):
                raise InputError(f"{name}: wanted a dataset with a length above 0; without it, with"
                                 " iterations=, engine(...) takes batches from anywhere")
        samples, held_out = (None if each is None else len(each) for each in (training, evaluation))
        self.length = _ringzero.Length(config, iterations, samples, held_out or 0)
        self._numbers = _ringzero.SampleNumbers(config, self.length, samples or 0)

    def example(self) -> Any:
        """What the model is called with for one sample: a collated one without its last member (the
        target), or all of a dict."""
        if self._training is None:
            raise InputError("example=: missing; what the model is called with for one sample")
        batch = self._collate([self._training[0]])
        if isinstance(batch, (Mapping, torch.Tensor)):
            return batch
        return tuple(batch[:-1]) if len(batch) > 1 else batch[0]

    def loader(self, engine: Any, processes: int) -> DataLoader:
        """One pass is an epoch, or what is left of it."""
        self.engine = engine
        return _Loader(self._training, batch_sampler=self, collate_fn=self._collate,
                       num_workers=processes)

    def __iter__(self) -> Iterator[list[int]]:
        """The numbers of each micro-batch's samples, from the worker's next micro-batch to the end
        of its epoch. The order is that of `ringzero train`."""
        engine, config, per_epoch = self.engine, self._config, self.length.iterations_per_epoch
        laps, first = config.gradient_accumulation_steps(), engine.micro_steps
        end = min((first // laps // per_epoch + 1) * per_epoch, engine.iterations)
        if end * laps <= first and engine.evaluation_due:
            raise InputError("no iteration is left, but an evaluation is due "
                             "(engine.evaluation_due): call evaluate()")
        for step in range(first, end * laps):
            micro_batch = step % laps * config.workers + engine.global_rank
            if chosen := self._numbers.train(step // laps, micro_batch):
                yield chosen

    def __len__(self) -> int:
        return self.length.iterations_per_epoch * self._config.gradient_accumulation_steps()

    def evaluation(self, micro_batch: int) -> Iterator[tuple[Any, int]]:
        """(batch, samples) of a worker's micro-batches, the first of this number. Where there are
        no samples, a stand-in of 0 samples."""
        for lap in range(self.length.evaluation_laps):
            chosen = self._numbers.evaluate(micro_batch + lap * self._config.workers)
            yield self._collate([self._evaluation[i] for i in chosen or [0]]), len(chosen)

