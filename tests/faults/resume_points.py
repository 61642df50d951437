"""The runs that resume_test.py kills: configurations in which every pair of choices stands at least once, and where to kill."""
import random
from dataclasses import dataclass

import pairs  # of tests/cli

ITERATIONS, EVERY = 12, 3
POINTS_OF_DAY, ALL_POINTS = 30, 500

# What each choice sets.
CHOICES = {
    "rule": {"dp": {"cyclic.rule": "dp"}, "cdp_v1": {"cyclic.rule": "cdp_v1"}, "cdp_v2": {"cyclic.rule": "cdp_v2"},
             "strict": {"cyclic.rule": "cdp_v2", "cyclic.strict": True}},
    "precision": {"fp32": {}, "bf16": {"bf16.enabled": True},
                  "fp16": {"fp16.enabled": True, "fp16.initial_scale_power": 18, "fp16.loss_scale_window": 4}},
    "clipping": {"exact": {"gradient_clipping": 0.5},
                 "previous": {"gradient_clipping": 0.5, "cyclic.clipping": "previous", "bf16.check_grad_overflow": False},
                 "off": {"gradient_clipping": 0}},
    "start": {"plain": {"cyclic.warmup_updates": 0, "cyclic.predict": False},
              "predict": {"cyclic.warmup_updates": 0, "cyclic.predict": True},
              "warm-up": {"cyclic.warmup_updates": 7, "cyclic.predict": False},
              "both": {"cyclic.warmup_updates": 4, "cyclic.predict": True}},
    "transport": {"shm": {"cyclic.transport": "shm"}, "ucx": {"cyclic.transport": "ucx"}},
    "optimizer": {"momentum": {"optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}}},
                  "AdamW": {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}},
                  "Muon": {"optimizer": {"type": "Muon", "params": {"lr": 0.01}}},
                  "LAMB": {"optimizer": {"type": "Lamb", "params": {"lr": 0.01}}}},
    "model": {"mlp": {}, "batch norm": {"model": {"type": "resnet", "depth": 8, "width": 8},
                                        "data.input": [1, 8, 8]},
              "dropout": {"model": {"type": "gpt", "layers": 2, "dim": 16, "heads": 2, "seq": 8, "vocab": 16, "dropout": 0.1},
                          "data.classes": 16}},
    "batches": {"whole": {"dataloader_drop_last": True}, "incomplete": {"dataloader_drop_last": False}},
    "evaluation": {"none": {"evaluation.every": 0}, "some": {"evaluation.every": 5}},
    "laps": {"1": {"gradient_accumulation_steps": 1}, "4": {"gradient_accumulation_steps": 4}},
    "sharding": {"stage 3": {"zero_optimization.stage": 3}, "stage 1": {"zero_optimization.stage": 1}},
}
BASE = {"model": {"type": "mlp", "hidden": [24, 16]}, "data": {"type": "random", "samples": 100, "input": [1, 6, 6], "classes": 5},
        "train_micro_batch_size_per_gpu": 2, "iterations": ITERATIONS, "seed": 3,
        "cyclic": {"workers": 3, "checkpoint": {"folder": "run", "every": EVERY}}}


def allowed(choice):
    """Whether `choice`, or the part of one that is given, is a run that the program takes."""
    if choice.get("rule") == "dp" and choice.get("start", "plain") != "plain":
        return False
    return choice.get("clipping") != "previous" or (choice.get("precision") != "fp16" and choice.get("rule") != "dp")


def covering():
    return pairs.covering(CHOICES, allowed)


def config_of(choice):
    config = {**BASE, "cyclic": dict(BASE["cyclic"]), "data": dict(BASE["data"])}
    for path, what in pairs.settings_of(CHOICES, choice).items():
        at, *rest = path.split(".")
        if rest:
            config[at] = {**config.get(at, {}), rest[0]: what}
        else:
            config[at] = what
    return config


@dataclass(frozen=True)
class Point:
    """A kill: of a worker at a step of saving or at a lap, of all processes or the launcher after an iteration."""
    seed: int
    configuration: int
    kind: str
    worker: int
    number: int

    def __str__(self):
        return (f"configuration {self.configuration}, {self.kind} {self.number}, worker {self.worker} "
                f"(RINGZERO_RESUME_SEED={self.seed})")


def point_of(seed, configurations):
    rng = random.Random(seed)
    kind = rng.choice(("save", "save", "save", "save", "lap", "all", "launcher"))
    number = {"save": rng.randrange(1, 60), "lap": rng.randrange(1, 13)}.get(kind) or rng.randrange(1, ITERATIONS)
    # Worker 0 commits.
    return Point(seed, seed % configurations, kind, rng.choice((0, 0, 0, 1, 2)), number)


def points(full, day):
    configurations = len(covering())
    first = 0 if full else day * POINTS_OF_DAY
    return [point_of(seed, configurations) for seed in range(first, first + (ALL_POINTS if full else POINTS_OF_DAY))]
