"""The command `./rz bench offload`: what optimizer states or parameters on NVMe cost a step, and
whether the plan says so before the run.

Each disk is made as slow as a part of what is needed: the bytes of a step, both ways, in the time
of a step whose states are in memory. All take turns. The machine's speed changes with time, so a
frozen profile of the layers is measured anew before each run in memory.
"""
import itertools
import os
import pathlib
import statistics
import tempfile

from ring_run import (Options, bench_parser, interval, main, of_rule, positive, run, say, set_words,
                      table, take_turns, train, write_json)

_MODEL = {"model.layers": 8, "model.dim": 512, "model.heads": 8, "evaluation.every": 0,
          "zero_optimization.stage": 3, "cyclic.transport": "shm"}
_SECTIONS = {"states": "zero_optimization.offload_optimizer",
             "parameters": "zero_optimization.offload_param"}
_RULES = ("dp", "cdp_v1", "cdp_v2")
_HIDDEN = 0.01  # of a step: waits that are no waits, and a step that is not longer


class _Bench:
    def __init__(self, options: Options, folder: str) -> None:
        self._options = options
        self._settings = {**_MODEL, "iterations": options.iterations,
                          "cyclic.workers": options.workers,
                          "train_micro_batch_size_per_gpu": options.micro_batch}
        self._profile = pathlib.Path(folder, "profile.json")
        say("a profile of the layers and a step of each rule ...")
        steps = {rule: self.one((rule, 0)) for rule in options.rules}
        self.needs = {rule: self._moved(rule) / found["step_seconds"]["median"]
                      for rule, found in steps.items()}

    def _moved(self, rule: str) -> float:
        """Bytes of a step, both ways."""
        disk = self._streams({}, rule)["disk"]
        return disk["needs"] * disk["step_in_memory"]

    def one(self, form: tuple[str, float]) -> dict:
        """The summary of a run of a rule, its disk so many times as fast as is needed; 0: in
        memory."""
        rule, factor = form
        if factor == 0:
            self._profile.unlink(missing_ok=True)
            run([self._options.program, "plan", self._options.config, "--profile",
                 str(self._profile), "--freeze", *set_words(self._settings)])
            return self._train(rule, {})
        each = factor * self.needs[rule] / self._options.workers
        return self._streams({"cyclic.offload.bandwidth": each / 1e9}, rule)

    def _streams(self, settings: dict[str, object], rule: str) -> dict:
        section = _SECTIONS[self._options.what]
        tier = {f"{section}.device": "nvme", f"{section}.nvme_path": self._options.folder}
        if self._options.what == "parameters":
            tier |= {f"{section}.max_in_cpu": 0, "cyclic.offload.slots": self._options.slots}
        return self._train(rule, {**tier, **settings})

    def _train(self, rule: str, settings: dict[str, object]) -> dict:
        """With the latest profile, which makes the plan: with a disk and without it is the same."""
        return train(self._options, {**self._settings, **of_rule(rule), **settings,
                                     "cyclic.profile": str(self._profile)})


def _row(form: tuple[str, float], rounds: list[dict], needs: float) -> list[str]:
    rule, factor = form

    def exposed(summary: dict) -> float:
        return sum(summary["waits_seconds_per_step"].values()) / summary["step_seconds"]["median"]

    pairs = [(found[form], found[rule, 0]) for found in rounds]
    step = [with_disk["step_seconds"]["median"] for with_disk, _ in pairs]
    ratios = [with_disk["step_seconds"]["median"] / without["step_seconds"]["median"]
              for with_disk, without in pairs]
    predicted = [with_disk["disk"]["step"] for with_disk, _ in pairs]
    words = [with_disk["disk"]["hidden"] for with_disk, _ in pairs]
    waits = [exposed(one) - exposed(other) for one, other in pairs]
    least, most = interval(waits) or (statistics.mean(waits),) * 2
    _, longest = interval(ratios) or (None, statistics.mean(ratios))
    hidden = most <= _HIDDEN or longest <= 1 + _HIDDEN
    return [rule, f"{factor:g} ({1e-9 * factor * needs:.2f} GB/s)",
            f"{statistics.mean(ratios):.3f}{_range(ratios)}",
            f"{100 * statistics.mean(waits):+.1f} %{_range([100 * each for each in waits], 1)}",
            f"{statistics.median(p / s for p, s in zip(predicted, step)):.3f}",
            "hidden" if hidden else "not hidden" if least > _HIDDEN else "not clear",
            f"{sum(words)} of {len(words)}"]


def _range(values: list[float], digits: int = 3) -> str:
    ends = interval(values)
    return "" if ends is None else f" [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]"


def _bench(options: Options, command: str) -> list[str]:
    os.makedirs(options.folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = _Bench(options, folder)
        forms = list(itertools.product(options.rules, [0, *options.factors]))
        rounds = take_turns(forms, options.rounds, bench.one)
    write_json([{", ".join(map(str, form)): found for form, found in each.items()}
                for each in rounds], options.out, "runs.json")
    rows = [_row(form, rounds, bench.needs[form[0]])
            for form in forms if form[1] > 0]
    title = {"states": "Optimizer states", "parameters": "Parameters"}[options.what]
    return [f"# {title} on NVMe: what a step waits for, and what the plan says", "",
            f"`{command}` made this, on {len(os.sched_getaffinity(0))} cores: a GPT of 25 million "
            f"parameters, {options.workers} workers with micro-batches of {options.micro_batch}, "
            f"{'all moments' if options.what == 'states' else 'parameters'} in files, each worker's "
            f"disk slowed. Everything runs once in each of {options.rounds} rounds. A disk of 1 "
            "gives what is needed: the bytes of a step, both ways, in a step that has all in "
            "memory. The step is over that of the same rule and round in memory, with its 95 % "
            "interval. Waits are a worker's for parameters, sums and updates, as a part of the "
            "step, above those in memory. The plan's step is from a simulation with a frozen "
            "profile, measured anew with each run in memory, and a probe of the disk. Hidden is a "
            f"disk for which computing waits at most {_HIDDEN:.0%} of a step, or that makes a step "
            f"at most {_HIDDEN:.0%} longer (the upper end of the interval); not hidden is one with "
            "the lower end of its waits above it.", "",
            *table(["rule", "disk", "step over in memory", "waits", "predicted / measured step",
                    "is", "said to be hidden"], rows)]


if __name__ == "__main__":
    PARSER = bench_parser("offload", __doc__, "rules_study/gpt.json", rounds=3, workers=4)
    PARSER.add_argument("--folder", default="build/bench-offload/tier", metavar="DIR",
                        help="on the disk [build/bench-offload/tier]")
    PARSER.add_argument("--what", choices=tuple(_SECTIONS), default="states", help="[states]")
    PARSER.add_argument("--slots", type=positive, default=3, metavar="N",
                        help="cyclic.offload.slots, for parameters [3]")
    PARSER.add_argument("--rules", nargs="+", choices=_RULES, default=list(_RULES), metavar="RULE")
    PARSER.add_argument("--factors", nargs="+", type=float, default=[0.25, 0.5, 1, 1.25, 2, 4],
                        metavar="F", help="how fast, over what is needed [0.25 0.5 1 1.25 2 4]")
    PARSER.add_argument("--micro-batch", type=positive, default=2, metavar="N", help="samples [2]")
    PARSER.add_argument("--iterations", type=positive, default=20, metavar="N", help="[20]")
    main(PARSER, _bench)
