"""The engine: one worker of the ring behind DeepSpeed's calls."""
import atexit
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from ringzero import _ringzero
from ringzero.data import Data
from ringzero.errors import InputError, RingZeroError
from ringzero.model import CutModel, Values


class Engine:
    """Trains a model as one worker: engine(batch), engine.backward(loss) or loss.backward(), and
    engine.step(). It stands for the optimizer and the schedule of rates, too.

    Used by the thread that made it. A micro-batch ends with step() or with the next forward. At
    worker 0 `losses` has the mean loss of each iteration, and `evaluations` (iteration, loss) of
    each evaluation, a little behind the loop."""
    train_batch_size: Callable[[], int]
    train_micro_batch_size_per_gpu: Callable[[], int]
    gradient_accumulation_steps: Callable[[], int]
    gradient_clipping: Callable[[], float]
    zero_optimization_stage: Callable[[], int]

    def __init__(self, model: Any, config: Any, data: Data, cut: Any, example: Any,
                 state_dicts: bool) -> None:
        self._state_dicts = state_dicts
        for name in Engine.__annotations__:
            setattr(self, name, getattr(config, name))
        self.data, self._cut = data, CutModel(model, cut)
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                parts = self._cut.trace(example)
            self._worker = _ringzero.Worker(config, parts, self._cut.run, self._cut.set_training,
                                            data.length, state_dicts)
        except BaseException:
            if any(each.numel() and not each.data_ptr() for each in self._cut.module.parameters()):
                Values(self._cut.module)  # they have been taken
            self._cut.close()
            raise
        self.module, self.device = self._cut.module, torch.device("cpu")
        self._values = Values(self.module)
        self.global_rank, self.world_size = self._worker.self, config.workers
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.global_rank))
        self.losses: list[float] = []
        self.evaluations: list[tuple[int, float]] = []
        self._process: int | None = os.getpid()  # None: the run is over
        self._open = False  # a micro-batch
        self._said: tuple[float | None, int | None] = (None, None)  # its loss; samples that count
        self._final: Any = None  # the state, once collected
        atexit.register(self._at_exit)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's output for one micro-batch; in evaluate() that of its eval mode."""
        kind = self._next().kind
        if kind != ("train" if torch.is_grad_enabled() else "evaluate"):
            words = {"train": "evaluate() before an evaluation is due (engine.evaluation_due)",
                     "evaluate": "an evaluation is due (engine.evaluation_due): call evaluate()"}
            over = f"a forward after the last of {self.iterations} iterations"
            due = "a state_dict is due (engine.state_dict_due): call state_dict()"
            raise InputError(words.get(kind, due if self.state_dict_due else over))
        inputs = self._cut.inputs(args, kwargs)
        self._values.show(True)
        self._open, self._said = True, (None, None)
        outputs = self._run(lambda: self._worker.forward(inputs))
        self._values.show(False)
        for each in [each for each in outputs if each.requires_grad]:
            each.register_hook(self._in_backward)
        return self._cut.outputs(outputs)

    def _in_backward(self, _: torch.Tensor) -> None:
        self._values.show(True)  # layers may run once more (torch's checkpoint)
        torch.autograd.Variable._execution_engine.queue_callback(lambda: self._values.show(False))

    def backward(self, loss: torch.Tensor) -> torch.Tensor:
        """loss.backward(). The mean over micro-batches, of losses too, is the ring's work."""
        self._said = (loss.item(), None)
        self._run(loss.backward)
        return loss

    def step(self, *_: Any) -> None:
        """Ends the micro-batch that is open, if one is."""
        if self._open:
            self._open = False
            self._run(lambda: self._worker.end_micro_batch(*self._said))
            self._run(lambda: self._worker.take_reports(self.losses, self.evaluations))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing: gradients are gone when a micro-batch ends."""

    def _next(self) -> Any:
        self.step()
        return self._run(self._worker.next_lap)

    @property
    def over(self) -> bool:
        """Whether the last iteration is done, and the last evaluation."""
        lap = self._next()
        return lap.kind == "done" or lap.kind == "collect" and not self.state_dict_due

    def stop(self) -> int | None:
        """At worker 0: ends the run early, after the iteration whose number is returned. Loops go on
        until then: that is a few iterations, so that all workers hear of it. Then the loader ends,
        and `over` is true. Nothing at the other workers."""
        return self._worker.end()

    def request_evaluation(self) -> int | None:
        """At worker 0: a few iterations later, at the one returned, an evaluation is due at all
        workers. Nothing at the other workers."""
        if not self.data.length.evaluation_laps:
            raise InputError("request_evaluation: initialize needs evaluation_data=")
        return self._worker.evaluate()

    def request_state_dict(self) -> int | None:
        """At worker 0, where initialize had state_dicts=True: a few iterations later, at the one
        returned, state_dict_due is true there; of the last one the end shows the state. Nothing at
        the other workers."""
        if not self._state_dicts:
            raise InputError("request_state_dict: initialize needs state_dicts=True")
        return self._worker.show()

    def has_ended_before(self, step: int) -> bool:
        """Whether the run ends before this micro-batch of the worker, as far as it can be known
        while another is open."""
        if not self._open:
            return self.over
        return step >= self.iterations * self.gradient_accumulation_steps()

    @property
    def state_dict_due(self) -> bool:
        """Whether state_dict() shows what request_state_dict() has asked for."""
        lap = self._next()
        return lap.kind == "collect" and lap.iteration < self.iterations

    @property
    def evaluation_due(self) -> bool:
        return self._next().kind == "evaluate"

    def evaluate(self, loss_of: Callable[[Any], torch.Tensor]) -> None:
        """One evaluation, when it is due (`evaluation.every`, request_evaluation); by all workers.
        loss_of(batch) calls the engine once, and gives the mean loss of a batch of evaluation_data.
        """
        for batch, samples in self.data.evaluation(self._next().micro_batch):
            with torch.no_grad():
                self._said = (loss_of(batch).item(), samples)
            self.step()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """At worker 0, after the last iteration: the trained parameters and running statistics, by
        the model's names; {} at the others. All workers call it. Or, at worker 0 alone, those that
        request_state_dict() has asked for, when they are due."""
        state, aliases = self._state(), self._cut.aliases.items()
        return {**state, **{name: state[known] for name, known in aliases if known in state}}

    def _state(self) -> dict[str, torch.Tensor]:
        if self._final is None:
            due = self.state_dict_due
            if self._next().kind in ("train", "evaluate"):
                raise InputError(f"{self.global_steps} of {self.iterations} iterations are done: "
                                 "what is trained is collected after the whole run, or when "
                                 "request_state_dict() has asked for it")
            found = self._run(self._worker.collect)
            trained = {self._cut.names[name]: values for name, values in found}
            state = {**self._cut.constants, **trained} if found else {}
            if due:
                return state
            self._final = state
        return self._final

    def save_pretrained(self, folder: str | os.PathLike) -> None:
        """Worker 0 writes model.safetensors, and the configuration of a transformers model, for
        from_pretrained. All workers call it after the last iteration; or worker 0 when a state_dict
        is due."""
        from safetensors.torch import save_file
        state = self._state()
        if self.global_rank == 0:
            os.makedirs(folder, exist_ok=True)
            save_file({name: values.contiguous() for name, values in state.items()},
                      os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
            config: Any = getattr(self.module, "config", None)
            if hasattr(config, "save_pretrained"):
                config.save_pretrained(folder)

    def close(self, values: bool = False) -> None:
        """Ends the run: waits for what is under way, and for the other workers. An error says whose
        fault it was. With `values` the module of worker 0 holds the trained values afterwards."""
        if os.getpid() == self._process:
            if self.state_dict_due:
                raise self._fail(InputError(f"close() after {self.global_steps} of {self.iterations}"
                                            " iterations: a state_dict is due, call state_dict()"))
            self._run(self.state_dict)
            self._leave()
        if values and self._final:
            self._values.show(True)
            self._cut.close()  # ties what is tied once more
            self._values.fill(self.state_dict())

    def _at_exit(self) -> None:
        if os.getpid() != self._process:  # a child of fork
            return
        try:
            if (error := getattr(sys, "last_value", None)) is not None:
                self._fail(error)
            elif self._next().kind in ("train", "evaluate") or self.state_dict_due:
                raise self._fail(InputError(f"the script ended after {self.global_steps} of "
                                            f"{self.iterations} iterations"))
            else:
                self.close()  # as scripts of DeepSpeed end
        except RingZeroError as failure:
            print(f"ringzero: {failure}", file=sys.stderr, flush=True)
            atexit._run_exitfuncs()  # those of others; then with the failure's code
            sys.stdout.flush()
            os._exit(failure.exit_code)

    def _run(self, work: Callable[[], Any]) -> Any:
        if os.getpid() != self._process:
            raise InputError("the run is over: closed, ended by an error, or in another process")
        try:
            return work()
        except BaseException as error:
            raise self._fail(error)

    def _fail(self, error: BaseException) -> BaseException:
        """Tells the other workers why this one ends. Returns what to raise: through torch's
        backward comes a RuntimeError alone."""
        if os.getpid() != self._process:
            return error
        if type(error) is RuntimeError and (cause := self._worker.error) is not None:
            error = cause.with_traceback(error.__traceback__)
        try:
            self._leave(error)
        except RingZeroError as cause:
            if str(error) not in str(cause):
                error.add_note(str(cause))
        return error

    def _leave(self, error: BaseException | None = None) -> None:
        self._iterations = self._worker.iterations()
        self._process, self._open = None, False
        atexit.unregister(self._at_exit)
        try:
            self._worker.close(error)
        finally:
            self._values.show(False)
            self._cut.close()
        self._worker.take_reports(self.losses, self.evaluations)

    @property
    def micro_steps(self) -> int:
        return self._worker.micro_steps

    @property
    def iterations(self) -> int:
        """How many the run has, as far as this worker has heard: stop() makes it shorter."""
        return self._worker.iterations() if self._process else self._iterations

    @property
    def global_steps(self) -> int:
        return self.micro_steps // self.gradient_accumulation_steps()

    @property
    def param_groups(self) -> list[dict]:
        return [{"lr": self.get_lr()[0], "params": list(self.module.parameters())}]

    def train(self, mode: bool = True) -> "Engine":
        """Modes follow the plan: training, or evaluate()."""
        return self

    def is_gradient_accumulation_boundary(self) -> bool:
        return (self.micro_steps + 1) % self.gradient_accumulation_steps() == 0

    def get_lr(self) -> list[float]:
        """The rate of the next update."""
        return [self._worker.rate(self.global_steps)]

    def get_global_grad_norm(self) -> float | None:
        """Before clipping, of the third update before this; at worker 0, where the ring has a norm
        (clipping, fp16, or one worker). Else None."""
        return self._worker.gradient_norm(self.global_steps - 3)

    forward, destroy, eval, get_last_lr = __call__, close, train, get_lr


def init_distributed(*_: Any, **__: Any) -> None:
    """Nothing: initialize() joins the job."""


def add_config_arguments(parser: Any) -> Any:
    """Adds --deepspeed_config FILE, which initialize(args=…) reads, and DeepSpeed's --deepspeed."""
    parser.add_argument("--deepspeed", action="store_true", help="nothing")
    parser.add_argument("--deepspeed_config", help="the configuration")
    return parser


def initialize(args: Any = None, model: Any = None, optimizer: Any = None,
               model_parameters: Any = None, training_data: Any = None, lr_scheduler: Any = None,
               mpu: Any = None, collate_fn: Callable | None = None, config: Any = None, *,
               iterations: int | None = None, cut: Any = None, example: Any = None,
               evaluation_data: Any = None, num_workers: int = 0, state_dicts: bool = False,
               config_params: Any = None, dist_init_required: Any = None) -> tuple:
    """(engine, optimizer, dataloader, lr_scheduler), as deepspeed.initialize.

    model: an nn.Module, or a list of layers. config: a dict or a file's name. iterations: updates
    of the run, unless the configuration says it. cut: before which submodules a module is cut.
    example: what the model is called with for one sample: a tensor, a tuple, or a dict of named
    arguments; else the first sample of training_data without its last part (the target).
    state_dicts: whether request_state_dict() may be called.
    Raises InputError for what cannot be trained, with its name; WorkerLost, WaitTimeout for others.
    """
    for name, given in {"optimizer": optimizer, "lr_scheduler": lr_scheduler, "mpu": mpu}.items():
        if given is not None:
            raise InputError(f"{name}=: the configuration says it (optimizer.type, scheduler.type);"
                             " there is no model parallelism")
    source: Any = config if config is not None else config_params
    source = source if source is not None else getattr(args, "deepspeed_config", None)
    if not isinstance(source, (str, os.PathLike, dict)):
        raise InputError(f"config: wanted a dict or a file's name, found {source!r}")
    file = "config" if isinstance(source, dict) else os.fspath(source)
    known = _ringzero.Config(json.dumps(source) if isinstance(source, dict) else "", file)
    data = Data(known, training_data, evaluation_data, collate_fn, iterations)
    example = data.example() if example is None else example
    engine = Engine(model, known, data, cut, example, state_dicts)
    loader = None if training_data is None else data.loader(engine, num_workers)
    return engine, engine, loader, engine
