"""One run of RingZero or of a peer, which processes of their own train, and what they say of it.

    runner = Runner(program, folder, timeout_seconds=1800)
    runner.dump_initial(case)
    report = runner.run(CONFIGURATIONS["fsdp2"], case, iterations=18, left_out=LEFT_OUT)
"""
import contextlib
import dataclasses
import json
import os
import pickle
import re
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from peers.cases import Case, Configuration
from peers.processes import Command, run_group
from ring_run import BenchError, read_json, run, write_json

LEFT_OUT = 10  # iterations before those that are measured, as in `ringzero train`
Watch = Callable[[list[int]], None]

# What integrations/cli/main.cc tells jemalloc.
_JEMALLOC = {"LD_PRELOAD": "libjemalloc.so.2",
             "MALLOC_CONF": "thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:1"}


@dataclass(frozen=True)
class Saves:
    """Of a peer that saves while it trains."""
    every: int   # steps
    folder: str


@dataclass(frozen=True)
class RunSpec:
    """What a worker process of a peer (worker.py) is told."""
    wrapping: str    # function in wrappings.py
    case: Case
    iterations: int  # all of them
    left_out: int
    initial: str     # safetensors file with the initial parameters
    store: str       # file where the processes find each other; must not exist yet
    report: str      # written by worker 0 at the end: a pickled RunReport
    saves: Saves | None = None
    nvme: str = ""   # folder for optimizer states, of a peer that offloads them


@dataclass(frozen=True)
class RunReport:
    """Of one run, RingZero's or a peer's."""
    losses: list[float]           # by iteration, means over workers; RingZero: first and last
    step_median: float            # seconds, at worker 0, of the measured iterations
    step_min: float
    step_max: float
    step_mean: float
    cpu_seconds_per_step: float   # user and system, all threads of all workers
    minor_faults_per_step: float  # of all workers, too
    steps: list[float] = dataclasses.field(default_factory=list)  # seconds; RingZero tells none
    saves: list[float] = dataclasses.field(default_factory=list)  # seconds until durable; a peer's


@dataclass(frozen=True)
class Place:
    """Where a worker runs."""
    enter: list[str]  # what its command begins with there
    interface: str    # the network device that gloo takes
    environment: dict[str, str] = dataclasses.field(default_factory=dict)  # as of a launcher


_HERE = Place([], "lo")


def tensors_in(path: str) -> Iterator[tuple[str, tuple[int, ...], bytes]]:
    """Name, shape and values of each tensor of a safetensors file, one after the other. Only F32,
    which is all that `ringzero train --dump-parameters` writes for a GPT."""
    with open(path, "rb") as file:
        header = json.loads(file.read(*struct.unpack("<Q", file.read(8))))
        header.pop("__metadata__", None)
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = entry["data_offsets"]
            yield name, tuple(entry["shape"]), file.read(end - begin)


def forecast_in(plan: str) -> int:
    """Bytes of the whole host, of the table that `ringzero plan` prints."""
    found = re.search(r"^memory +bytes, host.*\n(?:.+\n)*?total +(\d+) ", plan, re.MULTILINE)
    if found is None:
        raise BenchError("`ringzero plan` printed no table of memory")
    return int(found[1])


@dataclass(frozen=True)
class Runner:
    program: str  # ringzero
    folder: str   # for what passes between processes; an earlier run's is replaced
    timeout_seconds: float

    @property
    def initial(self) -> str:
        """The file of initial parameters, with which all begin."""
        return self._path("initial.safetensors")

    def run(self, configuration: Configuration, case: Case, *, iterations: int, left_out: int = 0,
            watch: Watch | None = None, places: list[Place] | None = None,
            words: Sequence[str] = (), saves: Saves | None = None, nvme: str = "") -> RunReport:
        """`iterations`: all of them; RingZero itself leaves out the first where there are more.
        `places`: one per worker, which RingZero then connects by UCX; else all are here.
        `words`: more of RingZero's command line. `saves`, `nvme`: of a peer."""
        if not configuration.is_ring:
            return self._run_peer(configuration, case, iterations, left_out, watch,
                                  places or [_HERE] * case.workers, saves, nvme)
        cyclic = configuration.cyclic | ({"transport": "ucx"} if places else {})
        summary = self._train(f"{configuration.name} ({case.name})",
                              case.configuration(iterations, **cyclic), watch, places or [_HERE],
                              words)
        seconds, losses = summary["step_seconds"], (summary["loss"][at] for at in ("first", "last"))
        return RunReport(losses=[loss for loss in losses if loss is not None],
                         step_median=seconds["median"], step_min=seconds["min"],
                         step_max=seconds["max"],
                         step_mean=case.samples_per_step / summary["samples_per_second"],
                         cpu_seconds_per_step=summary["cpu_seconds_per_step"],
                         minor_faults_per_step=summary["minor_faults_per_step"])

    def dump_initial(self, case: Case) -> None:
        """RingZero's initial parameters. What it dumps is what it trained, so it trains one
        iteration with a rate of 0, which changes nothing (AdamW's decay is a share of the rate);
        they are keyed by (seed, name), so one worker is enough."""
        configuration = case.configuration(1, rule="dp", workers=1)
        configuration["optimizer"]["params"]["lr"] = 0
        self._train(f"initial parameters ({case.name})", configuration,
                    words=["--dump-parameters", self.initial])

    def forecast_bytes(self, configuration: Configuration, case: Case) -> int:
        """Of model states and buffers, by the plan alone."""
        config = self._path("config.json")
        write_json(case.configuration(1, **configuration.cyclic), config)
        plan = run([self.program, "plan", config], timeout_seconds=self.timeout_seconds)
        return forecast_in(plan)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _new_path(self, name: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path(name))
        return self._path(name)

    def _train(self, name: str, configuration: dict, watch: Watch | None = None,
               places: Sequence[Place] = (_HERE,), words: Sequence[str] = ()) -> dict:
        """The summary."""
        config, summary = self._path("config.json"), self._new_path("summary.json")
        write_json(configuration, config)
        words = [self.program, "train", config, "--summary", summary, *words]
        run_group([Command(name if len(places) == 1 else f"{name} worker {worker}",
                           [*place.enter, *words], place.environment,
                           self._path(f"worker{worker}.log"))
                   for worker, place in enumerate(places)], self.timeout_seconds, watch)
        return read_json(summary)

    def _run_peer(self, configuration: Configuration, case: Case, iterations: int, left_out: int,
                  watch: Watch | None, places: list[Place], saves: Saves | None,
                  nvme: str) -> RunReport:
        spec = RunSpec(configuration.name.removesuffix("+jemalloc"), case, iterations, left_out,
                       self.initial, self._new_path("store"), self._new_path("report"), saves,
                       nvme)
        with open(self._path("spec"), "wb") as file:
            pickle.dump(spec, file)
        words = [sys.executable, "-m", "peers.worker", self._path("spec")]
        commands = []
        for worker, place in enumerate(places):
            environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu",
                           "GLOO_SOCKET_IFNAME": place.interface,
                           # DeepSpeed reads these, though its process group is already there.
                           "WORLD_SIZE": str(case.workers), "RANK": str(worker),
                           "LOCAL_RANK": str(worker)}
            commands.append(Command(f"{configuration.name} worker {worker} ({case.name})",
                                    [*place.enter, *words, str(worker)],
                                    environment | (_JEMALLOC if configuration.jemalloc else {}),
                                    self._path(f"worker{worker}.log")))
        run_group(commands, self.timeout_seconds, watch)
        with open(spec.report, "rb") as file:
            return pickle.load(file)
