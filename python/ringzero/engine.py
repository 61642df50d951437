"""The engine: one worker of the ring behind DeepSpeed's calls."""
from __future__ import annotations

import atexit
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ringzero import _ringzero
from ringzero.cutting import Parameters, cut_model
from ringzero.data import Data, Length
from ringzero.errors import CANCELLED, RingZeroError, code_of, of_status, refuse

_REPLACED = {
    "optimizer": "the optimizer's states belong to the ring; name it in the configuration (optimizer.type, optimizer.params)",
    "lr_scheduler": "give the schedule in the configuration (scheduler.type, scheduler.params)",
    "mpu": "there is no model parallelism here",
}


class _Shown:
    """Stands where scripts expect an optimizer, or a schedule of rates. The owners of the stages update, by the
    configuration's schedule: nothing is left to do here."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self.get_lr = self.get_last_lr = engine.get_lr

    @property
    def param_groups(self) -> list[dict]:
        return [{"lr": self._engine.get_lr()[0], "params": list(self._engine.module.parameters())}]

    def zero_grad(self, set_to_none: bool = True) -> None: ...

    def step(self, *_: Any) -> None: ...


class _Interrupts:
    """Ctrl-C while C++ waits: a thread aborts the run, so that the wait ends, and Python raises KeyboardInterrupt."""

    def __init__(self, worker: Any) -> None:
        self._write: int | None = None
        if threading.current_thread() is not threading.main_thread():
            return
        read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

        def listen() -> None:
            while byte := os.read(read, 1):
                if byte[0] == signal.SIGINT:
                    worker.abort(CANCELLED, "interrupted by signal 2 (Interrupt)")
            os.close(read)
        self._thread = threading.Thread(target=listen, name="ringzero-signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._write is not None:
            signal.set_wakeup_fd(self._before)
            os.close(self._write)
            self._write = None
            self._thread.join()


class Engine:
    """Trains a model as one worker: engine(batch), engine.backward(loss) or loss.backward(), engine.step().

    Used by the thread that made it. A micro-batch ends with step() or with the next forward. At worker 0 `losses` has the
    mean loss of each iteration, and `evaluations` (iteration, loss) of each evaluation, a little behind the loop."""

    def __init__(self, model: Any, config: Any, length: Length, identity: Any, cut: Any, example: tuple[tuple, dict]) -> None:
        self._config, self._length, self._process = config, length, os.getpid()
        self._cut = cut_model(model, cut)
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                self._cut.trace(*example)
            self._worker: Any = _ringzero.Worker(config=config, identity=identity, layers=self._cut.layers, run=self._cut.run,
                                                 iterations=length.iterations, epoch_samples=length.epoch_samples,
                                                 evaluate_every=length.evaluate_every, evaluation_laps=length.evaluation_laps)
        except BaseException:
            self._cut.close()
            raise
        self._cut.layers = []
        self.global_rank, self.world_size = self._worker.self, config.workers
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.global_rank))
        self.device = torch.device("cpu")
        modules = self._cut.modules
        self.module = modules[0] if len(modules) == 1 else nn.ModuleList(modules)
        self._parameters = Parameters(modules)
        self._parameters.show(False)
        self._interrupts = _Interrupts(self._worker)
        self._lap: Any = None  # the micro-batch that is open
        self._loss = math.nan
        self.micro_steps = 0
        self.losses: list[float] = []
        self.evaluations: list[tuple[int, float]] = []
        self._final: dict[str, torch.Tensor] | None = None
        atexit.register(self._at_exit)

    # The loop ------------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward("train", args, kwargs)

    forward = __call__

    def _forward(self, kind: str, args: tuple, kwargs: dict) -> Any:
        self.step()
        lap = self._next_lap()
        if lap.kind != kind:
            raise refuse({"evaluate": "a forward of training, but an evaluation is due: engine.evaluate(loss_of)",
                          "train": "evaluate() before an evaluation is due (engine.evaluation_due)"}.get(
                              lap.kind, f"a forward after the last of the {self._length.iterations} iterations of this run"))
        inputs = self._cut.inputs(args, kwargs)
        self._parameters.show(True)
        self._lap, self._loss = lap, math.nan
        return self._cut.outputs(self._run(lambda: self._worker.forward(inputs)))

    def backward(self, loss: torch.Tensor) -> torch.Tensor:
        """loss.backward(), and keeps the loss for the mean. The gradients' mean over micro-batches is the ring's work."""
        self._require_worker()
        self._loss = loss.item()
        self._run(loss.backward)
        return loss

    def step(self) -> None:
        """Ends the micro-batch that is open, if one is."""
        self._require_worker()
        if self._lap is not None:
            weight = 0 if math.isnan(self._loss) else 1 if self._lap.samples is None else self._lap.samples
            self._end(weight)
            self.micro_steps += 1

    def _end(self, weight: float) -> None:
        self._lap = None
        self._run(lambda: self._worker.end_micro_batch([self._loss * weight if weight else 0.0, weight]))
        self._parameters.show(False)
        self._hear()

    def _hear(self) -> None:
        for evaluation, iteration, (total, weight) in self._worker.take_reports():
            mean = total / weight if weight else math.nan
            if evaluation:
                self.evaluations.append((iteration, mean))
            else:
                self.losses.append(mean)

    # Skips micro-batches without samples.
    def _next_lap(self) -> Any:
        while True:
            lap = self._run(self._worker.next_lap)
            if lap.kind != "train" or not lap.missing:
                return lap
            self._run(lambda: self._worker.skip_micro_batch([0.0, 0.0]))
            self.micro_steps += 1

    @property
    def evaluation_due(self) -> bool:
        self.step()
        return self._next_lap().kind == "evaluate"

    def evaluate(self, loss_of: Callable[[Any], torch.Tensor]) -> None:
        """One evaluation, when it is due (`evaluation.every` in the configuration). All workers call it. loss_of(batch) calls
        engine.forward_only(...) once and gives the mean loss of a batch of evaluation_data."""
        for batch, samples in self._length.data.evaluation(self._next_lap().micro_batch, self._length.evaluation_laps):
            with torch.no_grad():
                self._loss = loss_of(batch).item()
            self._end(samples)

    def forward_only(self, *args: Any, **kwargs: Any) -> Any:
        """In evaluate(): the model's output, in eval mode."""
        return self._forward("evaluate", args, kwargs)

    # How it ends ---------------------------------------------------------------------------------------------------------

    def _require_worker(self) -> None:
        if self._worker is None:
            raise refuse("the run is over: the engine was closed, or an error has ended it")

    def _run(self, work: Callable[[], Any]) -> Any:
        self._require_worker()
        try:
            return work()
        except BaseException as error:
            raise self._fail(error)

    # Tells the other workers why this one ends. Returns what to raise: through torch's backward comes a RuntimeError alone.
    def _fail(self, error: BaseException) -> BaseException:
        worker, self._worker = self._worker, None
        if worker is None:
            return error
        code, words = worker.status()
        if code != 0 and isinstance(error, RuntimeError) and not isinstance(error, RingZeroError):
            error = of_status(code, words).with_traceback(error.__traceback__)
        ours = isinstance(error, RingZeroError)
        try:
            self._leave(worker, code_of(error), str(error) if ours else f"{type(error).__name__}: {error}".split("\n")[0])
        except RingZeroError as cause:
            if str(error) not in str(cause):
                error.add_note(str(cause))
        return error

    def _leave(self, worker: Any, code: int, words: str) -> None:
        self._lap = None
        atexit.unregister(self._at_exit)
        self._interrupts.close()
        try:
            worker.close(code, words)
        finally:
            self._parameters.show(False)
            self._cut.close()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """At worker 0, after the last iteration: the trained parameters and running statistics, by the model's names; {} at
        the others. All workers call it."""
        if self._final is None:
            self.step()
            lap = self._next_lap()
            if lap.kind in ("train", "evaluate"):
                raise refuse(f"{self.global_steps} of {self._length.iterations} iterations are done: parameters are collected "
                             "after the last, and after its evaluation")
            found: dict[str, torch.Tensor] = {}

            def visit(kind: str, name: str, _: str, values: torch.Tensor) -> None:
                if kind in ("parameter", "statistic"):
                    found[self._cut.names.get(name, name)] = values
            if lap.kind == "collect":
                self._run(lambda: self._worker.collect(visit))
            self._final = found
        return {**self._final, **{name: self._final[known] for name, known in self._cut.aliases.items() if known in self._final}}

    def save_pretrained(self, folder: str | os.PathLike) -> None:
        """Writes model.safetensors, and the configuration of a transformers model, as from_pretrained reads them. All workers
        call it, after the last iteration; worker 0 writes."""
        from safetensors.torch import save_file
        state = self.state_dict()
        if self.global_rank == 0:
            os.makedirs(folder, exist_ok=True)
            save_file({name: values.contiguous() for name, values in state.items() if name not in self._cut.aliases},
                      os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
            if hasattr(getattr(self.module, "config", None), "save_pretrained"):
                self.module.config.save_pretrained(folder)

    def close(self) -> None:
        """Ends the run: waits for what is under way, and for the other workers. An error says whose fault it was."""
        if self._worker is None:
            return
        try:
            self.state_dict()
        except BaseException as error:
            raise self._fail(error)
        worker = self._worker
        try:
            self._leave(worker, 0, "")
        finally:
            self._hear()
            self._worker = None

    destroy = close

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if error is None:
            self.close()
        else:
            self._fail(error)

    def _at_exit(self) -> None:
        if os.getpid() == self._process:  # not a child of fork
            self._fail(getattr(sys, "last_value", None) or refuse(
                f"the loop ended at iteration {self.global_steps} of {self._length.iterations}, without engine.close()"))

    # What DeepSpeed's scripts ask ----------------------------------------------------------------------------------------

    @property
    def global_steps(self) -> int:
        return self.micro_steps // self._config.laps

    def train(self, mode: bool = True) -> "Engine":
        """Modes follow the plan: training, or evaluate()."""
        return self

    def eval(self) -> "Engine":
        return self

    def is_gradient_accumulation_boundary(self) -> bool:
        return (self.micro_steps + 1) % self._config.laps == 0

    def train_batch_size(self) -> int:
        return self._config.train_batch

    def train_micro_batch_size_per_gpu(self) -> int:
        return self._config.micro_batch

    def gradient_accumulation_steps(self) -> int:
        return self._config.laps

    def gradient_clipping(self) -> float:
        return self._config.clipping

    def zero_optimization_stage(self) -> int:
        return self._config.zero_stage

    def get_lr(self) -> list[float]:
        """The rate of the next update."""
        return [self._run(lambda: self._worker.rate(self.global_steps))]

    def get_global_grad_norm(self) -> float | None:
        """Before clipping, of the third update before this; at worker 0, where the ring has a norm (clipping, fp16, or one
        worker). Else None."""
        self._require_worker()
        known = self.global_steps - 3
        return self._worker.gradient_norm(known) if self._worker.has_norm and self.global_rank == 0 and known >= 0 else None


def _config_of(config: Any, workers: int) -> Any:
    environment = [f"cyclic.workers={workers}"]
    if isinstance(config, dict):
        return _ringzero.Config(json.dumps(config), "config", environment)
    if isinstance(config, (str, os.PathLike)):
        with open(config, encoding="utf-8") as file:
            return _ringzero.Config(file.read(), os.fspath(config), environment)
    raise refuse(f"config: wanted a dict or a file's name, found {config!r}")


def _example_of(example: Any, data: Data) -> tuple[tuple, dict]:
    if example is None:
        example = data.example()
    if isinstance(example, dict):
        return (), example
    return (example, {}) if isinstance(example, tuple) else ((example,), {})


def initialize(args: Any = None, model: Any = None, optimizer: Any = None, model_parameters: Any = None,
               training_data: Any = None, lr_scheduler: Any = None, mpu: Any = None, collate_fn: Callable | None = None,
               config: Any = None, *, iterations: int | None = None, cut: Any = None, example: Any = None,
               evaluation_data: Any = None, num_workers: int = 0) -> tuple:
    """(engine, optimizer, dataloader, lr_scheduler), as deepspeed.initialize.

    model: an nn.Module, or a list of layers. config: a dict or a file's name. iterations: how many updates the run has, if
    neither the configuration nor epochs of training_data say it. cut: before which submodules a module is cut. example: what
    one sample is called with (a tensor, a tuple of positional arguments, or a dict of named ones); unless given, the first
    sample of training_data without its last part. Under torchrun, mpirun or srun this process is one worker; else it is the
    only one. model_parameters is not used: what requires a gradient trains.

    Raises InputError for what cannot be trained, with the key or name; WorkerLost, WaitTimeout for other workers.
    """
    for name, given in {"optimizer": optimizer, "lr_scheduler": lr_scheduler, "mpu": mpu}.items():
        if given is not None:
            raise refuse(f"{name}=: {_REPLACED[name]}")
    identity = _ringzero.find_identity()
    given = config if config is not None else getattr(args, "deepspeed_config", None)
    config = _config_of(given, 1 if identity is None else identity.workers)
    data = Data(config, training_data, evaluation_data, collate_fn)
    engine = Engine(model, config, data.length(iterations), identity, cut, _example_of(example, data))
    loader = data.loader(engine, num_workers)
    return engine, _Shown(engine), loader, _Shown(engine)
