#!/usr/bin/env python3
"""Kills, stops, slows and corrupts workers and the launcher at seeded points of small trainings;
and sixteen workers, whatever the number of cores.

Every survivor ends within peer_timeout + 1 s of the fault (a hang: wait_timeout + grace + 1 s), with the exit code of its kind,
one error line that names the culprit, and nothing left behind; what is no death (a pause, a slow worker, a stopped launcher)
leaves the run its digest.
RINGZERO_FAULT_SEED=n runs one point.
"""
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from points import ITERATIONS, WORKERS, all_points, point_of, points_of_day  # noqa: E402
from ringzero import PROGRAM, TINY, shared_memory  # noqa: E402
from run import Run, session_of  # noqa: E402

PEER_TIMEOUT = 1.0
WAIT_TIMEOUT = 3.0  # of a point whose worker hangs; long enough for a start on a busy machine
GRACE = 0.6  # LaunchOptions::grace: from the others' failure to the SIGTERM of one that hangs
AT_ONCE = 3

SMALL = {
    **TINY,
    "model": {"type": "mlp", "hidden": [24, 24, 24, 24, 24, 24, 16]},
    "iterations": ITERATIONS,
    "steps_per_print": 1,
    "cyclic": {"rule": "cdp_v2", "warmup_updates": 0, "predict": False, "workers": WORKERS, "peer_timeout": PEER_TIMEOUT,
               "checksums": True},
}
# A lap of a tenth of a second or two: ten times slower, it takes longer than peer_timeout.
HEAVY = {**SMALL, "model": {"type": "mlp", "hidden": [1024, 1024, 1024]}, "iterations": 2,
         "data": {"type": "random", "samples": 2048, "input": [1, 28, 28], "classes": 5},
         "train_micro_batch_size_per_gpu": 256, "evaluation": {"every": 0}}
LAPS = ITERATIONS + 3  # 12 iterations, evaluations after 5, 10 and 12


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def write_json(value, *path):
    with open(os.path.join(*path), "w", encoding="utf-8") as file:
        json.dump(value, file)


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="ringzero-faults-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.shared_memory_before = shared_memory()
        for name, config in (("small", SMALL), ("heavy", HEAVY)):
            write_json(config, cls.folder, f"{name}.json")
        cls.sends, cls.receives = cls.count_messages()
        cls.digests = {name: cls.undisturbed(name) for name in ("small", "heavy")}

    @classmethod
    def count_messages(cls):
        """At least so many messages each worker sends and receives in the run, by worker."""
        sends, receives = [], []
        for worker in range(WORKERS):
            with Run(PROGRAM, ["plan", "small.json", "--program", str(worker)], cls.folder) as run:
                assert run.end(60) == 0
                listing = run.rest()
            iterations = int(re.search(r"^program worker \d+ iterations 0 (\d+)$", listing, re.M)[1])
            for count, word in ((sends, "Send"), (receives, "Recv")):
                found = len(re.findall(rf"^{word} ", listing, re.M))
                count.append(found * (ITERATIONS - 1) // iterations)
        return sends, receives

    @classmethod
    def undisturbed(cls, name):
        words = ["train", f"{name}.json", "--summary", f"{name}-summary.json"]
        with Run(PROGRAM, words, cls.folder) as run:
            code = run.end(120)
            run.rest()
            assert code == 0, run.lines
        return read_json(cls.folder, f"{name}-summary.json")["parameters_sha256"]

    def tearDown(self):
        new = set(shared_memory()) - set(self.shared_memory_before)
        self.assertFalse([name for name in new if "ringzero" in name], "left in /dev/shm")

    def test_points(self):
        if os.environ.get("RINGZERO_FAULT_SEED"):
            chosen = [point_of(int(os.environ["RINGZERO_FAULT_SEED"]))]
        else:
            day = points_of_day(int(os.environ.get("RINGZERO_TEST_SEED", "0")))
            chosen = all_points() if os.environ.get("RINGZERO_TEST_FULL") else day
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for point, failure in zip(chosen, pool.map(self.failure_of, chosen)):
                with self.subTest(point=str(point)):
                    self.assertIsNone(failure)

    def failure_of(self, point):
        folder = tempfile.mkdtemp(prefix="point-", dir=self.folder)
        try:
            Trial(self, point, folder).run()
        except Exception as error:  # told by the main thread, with the point
            return f"{type(error).__name__}: {error}"
        return None


class Trial:
    """One point: the run, its fault, and what must hold of its end."""

    def __init__(self, test, point, folder):
        self.test, self.point, self.folder = test, point, folder
        self.name = "heavy" if point.kind == "slow" else "small"
        self.summary = os.path.join(folder, "summary.json")

    def run(self):
        arguments = ["train", os.path.join(self.test.folder, f"{self.name}.json"),
                     "--summary", "summary.json",
                     "--set", f"cyclic.transport={self.point.transport}", *self.injection()]
        with Run(PROGRAM, arguments, self.folder) as run:
            getattr(self, self.point.kind.replace(" ", "_"))(run)
            self.nothing_is_left(run)

    def injection(self):
        point = self.point
        if not point.inside:
            return []
        values = {"action": point.kind, "at": point.place, "worker": point.worker,
                  "seed": point.seed}
        if point.place == "message":
            count = self.test.receives if point.kind == "flip" else self.test.sends
            values["number"] = point.number(count[point.worker])
        elif point.place == "lap":
            values["number"] = point.number(LAPS if self.name == "small" else HEAVY["iterations"])
        words = [f"cyclic.inject.{key}={value}" for key, value in values.items()]
        if point.kind == "hang":
            words.append(f"cyclic.wait_timeout={WAIT_TIMEOUT}")
        return [argument for word in words for argument in ("--set", word)]

    # What each kind does and expects.

    def kill(self, run):
        self.ends_with(run, 3, rf"{self.culprit()} was killed by signal 9 \(Killed\)")

    def stop(self, run):
        self.ends_with(run, 3, rf"{self.culprit()} was stopped by signal 19 \(Stopped \(signal\)\); "
                               rf"peer_timeout is {PEER_TIMEOUT:g} s")

    def flip(self, run):
        self.ends_with(run, 5, rf"worker \d+ sent worker {self.point.worker} \"[^\"]+\", which was damaged on its way: "
                               r"its checksum is [0-9a-f]{16}, and should be [0-9a-f]{16}")

    def hang(self, run):
        between = r"(worker \d (waits for \"[^\"]+\"|has sent \"[^\"]+\", which waits for its block there), so )*"
        self.ends_with(run, 4, rf"worker {self.point.worker} has been outside of the engine for \d+(\.\d)? s, "
                               rf"before \"[^\"]+\", so {between}worker \d waited .*",
                       limit=WAIT_TIMEOUT + GRACE + 1)

    def slow(self, run):
        self.ends_well(run)

    def kill_launcher(self, run):
        self.reach(run)
        os.kill(run.launcher, signal.SIGKILL)
        struck = time.monotonic()
        self.check(run.end(10) == -signal.SIGKILL, "the launcher was killed")
        self.wait_until(lambda: not run.processes(), struck + 1 - time.monotonic(), "workers die with their launcher")

    def stop_launcher(self, run):
        self.reach(run)
        os.kill(run.launcher, signal.SIGSTOP)
        if self.point.place == "iteration":
            # The workers go on to their end, all of them.
            self.wait_until(lambda: run.processes() == [run.launcher], 60, "the workers finish")
        else:
            time.sleep(2.2 * PEER_TIMEOUT)
        os.kill(run.launcher, signal.SIGCONT)
        self.ends_well(run)

    def pause_all(self, run):
        self.reach(run)
        os.killpg(run.launcher, signal.SIGSTOP)  # the group, with a child that is just being forked
        time.sleep(2.2 * PEER_TIMEOUT)
        for pid in sorted(run.processes(), key=lambda pid: hash((self.point.seed, pid))):
            self.send(pid, signal.SIGCONT)
        self.ends_well(run)

    def starve(self, run):
        """A worker that runs a fifth of the time, its message thread too."""
        self.reach(run)
        workers = run.workers()
        done = threading.Event()

        def starve():
            while not done.is_set():
                self.send(workers[self.point.worker], signal.SIGSTOP)
                time.sleep(0.08)
                self.send(workers[self.point.worker], signal.SIGCONT)
                time.sleep(0.02)

        thread = threading.Thread(target=starve) if len(workers) == WORKERS else None
        if thread:
            thread.start()
        try:
            self.ends_well(run)
        finally:
            done.set()
            if thread:
                thread.join()

    # What must hold.

    def culprit(self):
        if self.point.place == "plan":
            return "the planning process"
        return "the workers' process" if self.point.transport == "local" else f"worker {self.point.worker}"

    def ends_with(self, run, code, words, limit=PEER_TIMEOUT + 1):
        injected = run.wait_for("ringzero: injected: ") if self.point.kind != "flip" else False
        self.check(injected or self.point.kind == "flip", f"the point is reached: {run.lines}")
        found = run.end(60)
        ended_at = run.ended_at
        out = run.rest()
        errors = [line for line in run.lines if line.startswith("ringzero: error: ")]
        self.check(found == code, f"exit code {code}, found {found}: {run.lines}")
        self.check(len(errors) == 1, f"one error line, found {errors}")
        self.check(re.fullmatch(f"ringzero: error: {words}", errors[0]), f"wanted {words}, found {errors[0]}")
        self.check(out == "", f"nothing on stdout, found {out}")
        self.check(not os.path.exists(self.summary), "no summary")
        if injected:
            struck = float(re.search(r" at (\d+\.\d+)$", [line for line in run.lines if "injected" in line][0]).group(1))
            self.check(ended_at - struck < limit, f"it ends {limit} s after the fault, not {ended_at - struck:.2f}")

    def ends_well(self, run):
        found = run.end(120)
        run.rest()
        self.check(found == 0, f"exit code 0, found {found}: {run.lines}")
        digest = read_json(self.summary)["parameters_sha256"]
        self.check(digest == self.test.digests[self.name], "the digest of an undisturbed run")

    def nothing_is_left(self, run):
        # The children of a launcher that was killed may be reaped late.
        orphans = "Z" if self.point.kind == "kill launcher" else ""
        left = [pid for pid, state in session_of(run.launcher).items() if state not in orphans]
        self.check(not left, f"no process is left, found {left}")
        wanted = r"summary\.json|ringzero-flight"
        if self.point.kind == "kill launcher":
            wanted += r"|summary\.json\.[0-9a-f]{16}\.tmp"  # what it was just writing stays
        left = [name for name in os.listdir(self.folder) if not re.fullmatch(wanted, name)]
        self.check(not left, f"no file is left, found {left}")
        self.flights_are_whole(os.path.join(self.folder, "ringzero-flight"))

    def flights_are_whole(self, folder):
        """What a failed run leaves on purpose; a worker that is killed while it writes leaves a part
        beside it."""
        names = os.listdir(folder) if os.path.isdir(folder) else []
        wanted = r"worker-[0-3]\.flight(\.[0-9a-f]{16}\.tmp)?"
        odd = [name for name in names if not re.fullmatch(wanted, name)]
        self.check(not odd, f"nothing but flight records, found {odd}")
        if any(name.endswith(".flight") for name in names):
            done = subprocess.run([PROGRAM, "blame", folder], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.check(done.returncode == 0, f"flight records can be read: {done.stderr}")

    def reach(self, run):
        """Waits for the point's place in the run."""
        last = ITERATIONS - 1  # after which there is time for a fault
        beginnings = {"spawned": None, "planned": f"{self.parameters()} parameters in ",
                      "iteration": f"iteration {self.point.number(last)}/{ITERATIONS}"}
        beginning = beginnings[self.point.place]
        self.check(beginning is None or run.wait_for(beginning), f"it reaches {beginning}: {run.lines}")

    @staticmethod
    def parameters():
        sizes = [36, *SMALL["model"]["hidden"], 5]
        return sum((before + 1) * after for before, after in zip(sizes, sizes[1:]))

    def wait_until(self, condition, seconds, what):
        deadline = time.monotonic() + seconds
        while not condition():
            self.check(time.monotonic() < deadline, f"within {seconds:.2f} s: {what}")
            time.sleep(0.005)

    @staticmethod
    def send(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    @staticmethod
    def check(holds, what):
        if not holds:
            raise AssertionError(what)


class ManyWorkers(unittest.TestCase):
    """More workers than any machine here has cores."""
    CONFIG = {**TINY, "model": {"type": "mlp", "hidden": [16] * 15},
              "data": {**TINY["data"], "samples": 1024}, "iterations": 20, "steps_per_print": 1,
              "evaluation": {"every": 0}, "cyclic": {"rule": "cdp_v2", "warmup_updates": 0, "predict": False, "workers": 16}}
    START_SECONDS = 5.0

    def test_sixteen_start_in_time_and_train(self):
        folder = tempfile.mkdtemp(prefix="ringzero-many-")
        self.addCleanup(shutil.rmtree, folder)
        write_json(self.CONFIG, folder, "run.json")
        start = time.monotonic()
        with Run(PROGRAM, ["train", "run.json", "--summary", "summary.json"], folder) as run:
            self.assertTrue(run.wait_for("iteration 1/20"), run.lines)
            self.assertLess(time.monotonic() - start, self.START_SECONDS)
            self.assertEqual(len(run.workers()), 16)
            self.assertEqual(run.end(120), 0)
            run.rest()
            self.assertFalse(session_of(run.launcher))
        summary = read_json(folder, "summary.json")
        self.assertEqual((summary["workers"], summary["iterations"]), (16, 20))


if __name__ == "__main__":
    unittest.main()
