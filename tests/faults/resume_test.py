#!/usr/bin/env python3
"""Kills trainings that save checkpoints, at seeded points; each goes on with --resume, to the bits of the undisturbed run.

30 points every day, 500 with RINGZERO_TEST_FULL. RINGZERO_RESUME_SEED=n runs one point.
"""
import concurrent.futures
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from resume_points import ITERATIONS, config_of, covering, point_of, points  # noqa: E402
from ringzero import PROGRAM, inject  # noqa: E402
from run import Run, session_of  # noqa: E402

AT_ONCE = 2
SECONDS = 60  # of a run that takes one


class Digests:
    """Of undisturbed runs, each made when it is first asked for."""

    def __init__(self, folder):
        self.folder = folder
        self.choices = covering()
        self.lock = [threading.Lock() for _ in self.choices]
        self.found = {}

    def config(self, number):
        return os.path.join(self.folder, f"{number}.json")

    def of(self, number):
        with self.lock[number]:
            if number not in self.found:
                with open(self.config(number), "w", encoding="utf-8") as file:
                    json.dump({**config_of(self.choices[number]), "steps_per_print": 1}, file)
                self.found[number] = self.undisturbed(number)
            return self.found[number]

    def undisturbed(self, number):
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            words = ["train", self.config(number), "--set", "cyclic.checkpoint.at_end=false", "--set",
                     f"cyclic.checkpoint.every={ITERATIONS + 1}"]
            return digest_of(words, folder, str(self.choices[number]))


def digest_of(words, folder, what):
    with Run(PROGRAM, [*words, "--summary", "summary.json"], folder) as run:
        code = run.end(SECONDS)
        run.rest()
        assert code == 0, (what, run.lines)
    with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
        return json.load(file)["parameters_sha256"]


class Resume(unittest.TestCase):
    def test_points(self):
        folder = tempfile.mkdtemp(prefix="ringzero-resume-")
        self.addCleanup(shutil.rmtree, folder)
        digests = Digests(folder)
        only = os.environ.get("RINGZERO_RESUME_SEED")
        chosen = ([point_of(int(only), len(digests.choices))] if only else
                  points(bool(os.environ.get("RINGZERO_TEST_FULL")), int(os.environ.get("RINGZERO_TEST_SEED", "0"))))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            ended = list(zip(chosen, pool.map(lambda point: outcome_of(point, digests), chosen)))
        for point, outcome in ended:
            with self.subTest(point=str(point), choice=digests.choices[point.configuration]):
                self.assertIn(outcome, ("killed", "not reached"))
        if not only:
            killed = sum(outcome == "killed" for _, outcome in ended)
            self.assertGreater(killed, len(ended) // 2, "most of the points are kills")

    def test_every_pair_of_choices_is_run(self):
        self.assertLess(len(covering()), 40)


def outcome_of(point, digests):
    folder = tempfile.mkdtemp(prefix="point-", dir=digests.folder)
    try:
        wanted = digests.of(point.configuration)
        config = digests.config(point.configuration)
        killed = kill(point, ["train", config], folder)
        found = digest_of(["train", config, "--resume"], folder, "resumed")
        if not killed:
            return "not reached"  # the run was over; there was nothing left to do
        assert found == wanted, f"digest {found}, wanted {wanted}"
        left = [name for name in os.listdir(os.path.join(folder, "run")) if name.endswith((".tmp", ".old"))]
        assert not left, left
        with open(os.path.join(folder, "run", "latest"), encoding="utf-8") as file:
            assert file.read() == f"iteration-{ITERATIONS:06d}\n"
        return "killed"
    except Exception as error:  # told by the main thread, with the point
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(folder)


def kill(point, words, folder):
    """Runs until the kill, and until all processes are gone; whether anything was killed."""
    if point.kind in ("save", "lap"):
        words = [*words, *inject("kill", at=point.kind, worker=point.worker, number=point.number)]
        with Run(PROGRAM, words, folder) as run:
            code = run.end(SECONDS)
            run.rest()
            assert code in (0, 3), run.lines
            return code == 3
    with Run(PROGRAM, words, folder) as run:
        run.wait_for(f"iteration {point.number}/")
        for pid in session_of(run.launcher) if point.kind == "all" else [run.launcher]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        code = run.end(SECONDS)
        return code != 0


if __name__ == "__main__":
    unittest.main()
