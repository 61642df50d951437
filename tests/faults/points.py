"""Seeded points: which fault strikes whom, and where in the run. They are values that print.

    for point in all_points(): print(point)    # "stop of worker 2 at message 57 (shm)"
    points_of_day(7)                            # a tenth of them, every kind of fault at least once
    point_of("7")                               # the point with seed 7 again
"""
import random
from dataclasses import dataclass

WORKERS = 4
ITERATIONS = 12

# Faults that the program brings about itself (cyclic.inject), and where they may strike.
PLACES = {
    "kill": ("plan", "start", "connect", "message", "lap", "finish", "end"),
    "stop": ("plan", "start", "connect", "message", "lap", "finish", "end"),
    "flip": ("message",),
    "hang": ("lap",),
    "slow": ("lap",),
}
# Faults from outside: signals to the launching process, to one worker, or to all.
OUTSIDE = {
    "kill launcher": ("spawned", "planned", "iteration"),
    "stop launcher": ("planned", "iteration"),
    "pause all": ("planned", "iteration"),
    "starve": ("iteration",),
}
ROUNDS = 10
# One round: every kind of fault at least once. Deaths and stops have the most places.
ROUND = ("kill", "stop", "flip", "kill launcher", "stop", "kill", "stop launcher", "hang", "flip",
         "stop", "kill", "pause all", "stop", "kill", "starve", "flip", "kill launcher", "slow",
         "stop", "kill")


@dataclass(frozen=True)
class Point:
    seed: int
    kind: str
    transport: str
    worker: int
    place: str
    share: float  # how far into the messages, laps or iterations: 0 to 1

    def __str__(self):
        return (f"{self.kind}, worker {self.worker}, {self.transport}, at {self.place} {self.share:.3f} "
                f"(seed {self.seed}: RINGZERO_FAULT_SEED={self.seed})")

    @property
    def inside(self):
        return self.kind in PLACES

    def number(self, count):
        """Which of `count` messages, laps or iterations, from 1."""
        return 1 + min(int(self.share * count), count - 1)


def point_of(seed):
    rng = random.Random(seed)
    kind = ROUND[seed % len(ROUND)]
    places = PLACES.get(kind) or OUTSIDE[kind]
    # Message and lap are the whole run, evaluations included: as likely as all others together.
    whole = tuple(place for place in places if place in ("message", "lap", "iteration"))
    place = rng.choice(places + whole * 2)
    # Signals from outside find a process only where each worker is one.
    transport = rng.choice(("shm", "shm", "local")) if kind in PLACES else "shm"
    return Point(seed, kind, transport, rng.randrange(WORKERS), place, rng.random())


def all_points():
    return [point_of(seed) for seed in range(ROUNDS * len(ROUND))]


def points_of_day(number):
    """One round of the ten: another one for each commit, whose number this is."""
    first = number % ROUNDS * len(ROUND)
    return [point_of(seed) for seed in range(first, first + len(ROUND))]
