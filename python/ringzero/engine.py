"""The engine: one worker of the ring behind DeepSpeed's calls."""
from __future__ import annotations

import argparse
import atexit
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from ringzero import _ringzero
from ringzero.cutting import CutModel
from ringzero.data import Data
from ringzero.errors import CANCELLED, UNKNOWN, NotFinite, RingZeroError, of_status, refuse
from ringzero.values import Values

_GETTERS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
            "gradient_clipping", "zero_optimization_stage")


class Engine:
    """Trains a model as one worker: engine(batch), engine.backward(loss) or loss.backward(), and
    engine.step(). It stands for the optimizer and the schedule of rates, too: both belong to the
    owners of the stages, and follow the configuration.

    Used by the thread that made it. A micro-batch ends with step() or with the next forward. At
    worker 0 `losses` has the mean loss of each iteration, and `evaluations` (iteration, loss) of
    each evaluation, a little behind the loop."""

    def __init__(self, model: Any, config: Any, data: Data, identity: Any, cut: Any,
                 example: Any) -> None:
        self._config, self.data, self._process = config, data, os.getpid()
        for name in _GETTERS:
            setattr(self, name, getattr(config, name))
        self._cut = CutModel(model, cut)
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                self._cut.trace(example)
            self._worker: Any = _ringzero.Worker(
                config=config, identity=identity, parts=self._cut.parts, run=self._cut.run,
                set_training=self._cut.set_training, length=data.length)
        except BaseException:
            if any(each.numel() and not each.data_ptr() for each in self._cut.module.parameters()):
                Values(self._cut.module)  # they have been taken
            self._cut.close()
            raise
        self._cut.settle()
        self.module, self.device = self._cut.module, torch.device("cpu")
        self._values = Values(self.module)
        self.global_rank, self.world_size = self._worker.self, config.workers
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.global_rank))
        self.losses: list[float] = []
        self.evaluations: list[tuple[int, float]] = []
        self.micro_steps = 0
        self._open = False  # a micro-batch
        self._loss: float | None = None
        self._final: dict[str, torch.Tensor] | None = None
        self._wakeup: int | None = None
        if threading.current_thread() is threading.main_thread():
            self._wakeup = signal.set_wakeup_fd(self._worker.signal_fd, warn_on_full_buffer=False)
        atexit.register(self._at_exit)
        if self.global_rank == 0:
            for note in data.length.notes:
                print("ringzero:", note, file=sys.stderr)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward("train", args, kwargs)

    forward = __call__

    def _forward(self, kind: str, args: tuple, kwargs: dict) -> Any:
        lap = self._next()
        if lap.kind != kind:
            words = {"train": "evaluate() before an evaluation is due (engine.evaluation_due)",
                     "evaluate": "an evaluation is due (engine.evaluation_due): call evaluate()"}
            over = f"a forward after the last of {self.data.length.iterations} iterations"
            raise refuse(words.get(lap.kind, over))
        inputs = self._cut.inputs(args, kwargs)
        self._values.show(True)
        self._open, self._loss = True, None
        return self._cut.outputs(self._run(lambda: self._worker.forward(inputs)))

    def backward(self, loss: torch.Tensor) -> torch.Tensor:
        """loss.backward(), and keeps the loss for the mean. The gradients' mean over micro-batches
        is the ring's work."""
        self._loss = loss.item()
        self._run(loss.backward)
        return loss

    def step(self, *_: Any) -> None:
        """Ends the micro-batch that is open, if one is."""
        self._end()

    def _end(self, samples: int | None = None) -> None:
        if self._open:
            self._open = False
            self._run(lambda: self._worker.end_micro_batch(self._loss, samples))
            self._values.show(False)
            self._hear(self._worker)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing: gradients are gone when a micro-batch ends."""

    def _next(self) -> Any:
        self._end()
        lap = self._run(self._running.next_lap)
        self.micro_steps = self._worker.micro_steps
        return lap

    def _hear(self, worker: Any) -> None:
        self.micro_steps = worker.micro_steps
        try:
            losses, evaluations = worker.take_reports()
        except NotFinite as error:
            raise self._fail(error)
        self.losses += losses
        self.evaluations += evaluations

    @property
    def evaluation_due(self) -> bool:
        return self._next().kind == "evaluate"

    def evaluate(self, loss_of: Callable[[Any], torch.Tensor]) -> None:
        """One evaluation, when it is due (`evaluation.every` in the configuration). All workers
        call it. loss_of(batch) calls engine.forward_only(...) once and gives the mean loss of a
        batch of evaluation_data."""
        for batch, samples in self.data.evaluation(self._next().micro_batch):
            with torch.no_grad():
                self._loss = loss_of(batch).item()
            self._end(samples)

    def forward_only(self, *args: Any, **kwargs: Any) -> Any:
        """In evaluate(): the model's output, in eval mode."""
        return self._forward("evaluate", args, kwargs)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """At worker 0, after the last iteration: the trained parameters and running statistics, by
        the model's names; {} at the others. All workers call it."""
        if self._final is None:
            lap = self._next()
            if lap.kind in ("train", "evaluate"):
                raise refuse(f"{self.global_steps} of {self.data.length.iterations} iterations are "
                             "done: parameters are collected after the last, and its evaluation")
            found: dict[str, torch.Tensor] = {}
            if lap.kind == "collect":
                self._run(lambda: self._worker.collect(
                    lambda name, values: found.update({self._cut.names.get(name, name): values})))
            self._final = {**self._cut.constants, **found} if found else {}
        shared = {name: self._final[known] for name, known in self._cut.aliases.items()
                  if known in self._final}
        return {**self._final, **shared}

    def save_pretrained(self, folder: str | os.PathLike) -> None:
        """Writes model.safetensors, and the configuration of a transformers model, as
        from_pretrained reads them. All workers call it after the last iteration; worker 0 writes.
        """
        from safetensors.torch import save_file
        self.state_dict()
        if self.global_rank == 0:
            os.makedirs(folder, exist_ok=True)
            save_file({name: values.contiguous() for name, values in self._final.items()},
                      os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
            if hasattr(getattr(self.module, "config", None), "save_pretrained"):
                self.module.config.save_pretrained(folder)

    def close(self, values: bool = False) -> None:
        """Ends the run: waits for what is under way, and for the other workers. An error says whose
        fault it was. With `values` the module of worker 0 holds the trained values afterwards."""
        if self._worker is not None:
            try:
                self.state_dict()
            except BaseException as error:
                raise self._fail(error)
            self._leave(0, "")
        if values and self._final:
            self._values.show(True)
            self._cut.close()  # ties what is tied once more
            self._values.fill(self.state_dict())

    destroy = close

    def _at_exit(self) -> None:
        if os.getpid() != self._process:  # a child of fork
            return
        if (error := getattr(sys, "last_value", None)) is not None:
            self._fail(error)
            return
        try:
            if self._next().kind not in ("train", "evaluate"):
                return self.close()  # as scripts of DeepSpeed end
            raise self._fail(refuse(f"the script ended after {self.global_steps} of "
                                    f"{self.data.length.iterations} iterations"))
        except RingZeroError as failure:
            print(f"ringzero: {failure}", file=sys.stderr, flush=True)
            atexit._run_exitfuncs()  # those of others; then with the failure's code
            sys.stdout.flush()
            os._exit(failure.exit_code)

    @property
    def _running(self) -> Any:
        if self._worker is None or os.getpid() != self._process:
            raise refuse("the run is over: the engine was closed, an error has ended it, or this "
                         "is a child of the worker's process")
        return self._worker

    def _run(self, work: Callable[[], Any]) -> Any:
        self._running
        try:
            return work()
        except BaseException as error:
            raise self._fail(error)

    def _fail(self, error: BaseException) -> BaseException:
        """Tells the other workers why this one ends. Returns what to raise: through torch's
        backward comes a RuntimeError alone."""
        if self._worker is None:
            return error
        code, words = self._worker.status()
        ours = isinstance(error, RingZeroError)
        if code != 0 and isinstance(error, RuntimeError) and not ours:
            error, ours = of_status(code, words).with_traceback(error.__traceback__), True
        words = str(error) if ours else f"{type(error).__name__}: {error}".split("\n")[0]
        code = CANCELLED if isinstance(error, KeyboardInterrupt) else UNKNOWN
        try:
            self._leave(getattr(error, "ringzero_code", code), words)
        except RingZeroError as cause:
            if str(error) not in str(cause):
                error.add_note(str(cause))
        return error

    def _leave(self, code: int, words: str) -> None:
        worker, self._worker, self._open = self._worker, None, False
        atexit.unregister(self._at_exit)
        try:
            worker.close(code, words)
        finally:
            if self._wakeup is not None:
                signal.set_wakeup_fd(self._wakeup)
            self._values.show(False)
            self._cut.close()
        self._hear(worker)

    # What the scripts of DeepSpeed ask besides.

    @property
    def global_steps(self) -> int:
        return self.micro_steps // self.gradient_accumulation_steps()

    @property
    def param_groups(self) -> list[dict]:
        return [{"lr": self.get_lr()[0], "params": list(self.module.parameters())}]

    def train(self, mode: bool = True) -> Engine:
        """Modes follow the plan: training, or evaluate()."""
        return self

    eval = train

    def is_gradient_accumulation_boundary(self) -> bool:
        return (self.micro_steps + 1) % self.gradient_accumulation_steps() == 0

    def get_lr(self) -> list[float]:
        """The rate of the next update."""
        return [self._running.rate(self.global_steps)]

    get_last_lr = get_lr

    def get_global_grad_norm(self) -> float | None:
        """Before clipping, of the third update before this; at worker 0, where the ring has a norm
        (clipping, fp16, or one worker). Else None."""
        known = self.global_steps - 3
        seen = self._running.has_norm and self.global_rank == 0 and known >= 0
        return self._worker.gradient_norm(known) if seen else None


def init_distributed(*_: Any, **__: Any) -> None:
    """Nothing: initialize() joins the job."""


def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds --deepspeed_config FILE, which initialize(args=…) reads, and DeepSpeed's --deepspeed."""
    parser.add_argument("--deepspeed", action="store_true", help="nothing")
    parser.add_argument("--deepspeed_config", help="the configuration")
    return parser


def initialize(args: Any = None, model: Any = None, optimizer: Any = None,
               model_parameters: Any = None, training_data: Any = None, lr_scheduler: Any = None,
               mpu: Any = None, collate_fn: Callable | None = None, config: Any = None, *,
               iterations: int | None = None, cut: Any = None, example: Any = None,
               evaluation_data: Any = None, num_workers: int = 0, config_params: Any = None,
               dist_init_required: Any = None) -> tuple:
    """(engine, optimizer, dataloader, lr_scheduler), as deepspeed.initialize.

    model: an nn.Module, or a list of layers. config: a dict or a file's name. iterations: updates
    of the run, unless the configuration says it. cut: before which submodules a module is cut.
    example: what the model is called with for one sample: a tensor, a tuple, or a dict of named
    arguments; else the first sample of training_data without its last part (the target).
    Under torchrun, mpirun or srun this process is one worker; else it is the only one.

    Raises InputError for what cannot be trained, with the key or name; WorkerLost, WaitTimeout for
    other workers.
    """
    for name, given in {"optimizer": optimizer, "lr_scheduler": lr_scheduler, "mpu": mpu}.items():
        if given is not None:
            raise refuse(f"{name}=: the configuration names it (optimizer.type, scheduler.type); "
                         "there is no model parallelism")
    identity = _ringzero.find_identity()
    given = config if config is not None else config_params
    given = given if given is not None else getattr(args, "deepspeed_config", None)
    if not isinstance(given, (str, os.PathLike, dict)):
        raise refuse(f"config: wanted a dict or a file's name, found {given!r}")
    text, file = (json.dumps(given), "config") if isinstance(given, dict) else ("", os.fspath(given))
    known = _ringzero.Config(text, file, 1 if identity is None else identity.workers)
    data = Data(known, training_data, evaluation_data, collate_fn, iterations)
    example = data.example() if example is None else example
    engine = Engine(model, known, data, identity, cut, example)
    loader = None if training_data is None else data.loader(engine, num_workers)
    return engine, engine, loader, engine
