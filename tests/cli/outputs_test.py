#!/usr/bin/env python3
"""A disk that is full or a folder that is gone takes nothing from a run that goes on, and is said once."""
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import time
import unittest

from ringzero import TestCase, limited

ITERATIONS = 150
MIB = 1 << 20
RUN = {"iterations": ITERATIONS, "evaluation.every": 0, "model.hidden": [384, 384], "cyclic.workers": 2}
# Worker 1 stops itself in the middle, until the test lets it go on.
STOPS = {"cyclic.peer_timeout": 60, "cyclic.inject": {"action": "stop", "at": "lap", "number": ITERATIONS // 2, "worker": 1}}
PARAMETERS = 4 * (36 * 384 + 384 + 384 * 384 + 384 + 384 * 5 + 5)  # bytes


class Outputs(TestCase):
    def place(self, happens, size):
        """A folder for outputs that is to be filled or deleted: a disk of its own, or an ordinary folder."""
        if happens == "full":
            self.disk(size)
            return "disk"
        os.makedirs(self.path("out"))
        return "out"

    def fill(self, name):
        with self.assertRaises(OSError), open(self.path(name), "wb", buffering=0) as file:
            while file.write(bytes(4096)) == 4096:
                pass
            raise OSError

    def delete(self, name):
        os.rename(self.path(name), self.path("gone"))  # no new file comes into it from here on
        shutil.rmtree(self.path("gone"))

    @contextlib.contextmanager
    def stopped_in_spare(self, *options, **changes):
        """A run that is stopped while it trains, and goes on afterwards; what it cannot write goes to the folder "spare"."""
        os.makedirs(self.path("spare"), exist_ok=True)
        os.environ["TMPDIR"] = self.path("spare")
        self.addCleanup(os.environ.pop, "TMPDIR", None)
        process = self.start("train", self.config(**{**RUN, **STOPS, **changes}), *options)
        worker = self.wait_for_stopped_child(process.pid)
        yield process
        os.kill(worker, signal.SIGCONT)

    def wait_for_stopped_child(self, parent):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for child in self.read(f"/proc/{parent}/task/{parent}/children").split():
                try:
                    stat = self.read(f"/proc/{int(child)}/stat")
                except (FileNotFoundError, ProcessLookupError):
                    continue  # the one that planned has ended meanwhile
                if stat.rpartition(b")")[2].split()[0] == b"T":
                    return int(child)
            time.sleep(0.01)
        return self.fail("no worker has stopped itself")

    def warnings(self, err):
        return [line for line in err.splitlines() if line.endswith("(this does not end the run)")]

    def spare(self, name):
        [folder] = [each for each in os.listdir(self.path("spare"))
                    if os.path.exists(os.path.join(self.path("spare"), each, name))]
        return os.path.join(self.path("spare"), folder, name)

    def test_metrics_trace_and_flights_that_cannot_be_written(self):
        for happens in ("full", "deleted"):
            with self.subTest(happens):
                at = self.place(happens, 4 * MIB)
                with self.stopped_in_spare(
                        "--metrics", at + "/run", "--trace", at + "/trace.json", "--summary", "summary.json",
                        **{"tensorboard": {"enabled": True, "output_path": self.path("boards-" + happens)}}) as process:
                    if happens == "full":
                        self.fill("disk/filler")
                    else:
                        self.delete("out")
                        self.write("out", "in the way")
                out, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 0, err)
                said = self.warnings(err)
                for what in ("metrics", "trace", "flight records"):
                    self.assertEqual(len([line for line in said if line.startswith(f"warning: {what}: ")]), 1, err)
                self.assertEqual(len(said), 3, err)
                summary = self.json("summary.json")
                self.assertEqual(set(summary["not_written"]), {"metrics", "trace", "flight records"})
                self.assertEqual((summary["iterations"], summary["interrupted"]), (ITERATIONS, False))
                self.assertIn(at + "/run/", summary["not_written"]["metrics"])
                self.assertIn("not written: metrics: ", out)
                # What has room elsewhere is whole.
                [board] = os.listdir(self.path("boards-" + happens))
                self.assertTrue(os.listdir(os.path.join(self.path("boards-" + happens), board)))

    def test_room_for_parameters_is_looked_at_before(self):
        self.disk(PARAMETERS // 2)
        done = self.run_program("train", self.config(**RUN), "--dump-parameters", "disk/p.safetensors")
        self.fails(done, 2, "--dump-parameters: disk/p.safetensors: cannot write it: wanted space for 0.6 MiB, found 0.3")
        self.assertNotIn("iteration 1/", done.stderr)
        self.assertEqual(os.listdir(self.path("disk")), [])

    def test_a_limit_on_a_files_size_is_said_before(self):
        done = self.run_program("train", self.config(**RUN), "--dump-parameters", "p.safetensors",
                                preexec_fn=limited(resource.RLIMIT_FSIZE, PARAMETERS // 2))
        self.fails(done, 2, "--dump-parameters: p.safetensors: cannot write it: File too large")
        self.assertEqual([name for name in os.listdir(self.folder) if "safetensors" in name], [])

    def test_what_cannot_be_written_at_the_end_is_elsewhere(self):
        options = ("--dump-parameters", "expected.safetensors")
        expected = self.bits(self.config(**RUN), *options)
        for happens in ("full", "deleted"):
            with self.subTest(happens):
                at = self.place(happens, PARAMETERS + MIB)
                shutil.rmtree(self.path("spare"), ignore_errors=True)
                with self.stopped_in_spare("--dump-parameters", at + "/p.safetensors", "--summary", at + "/s.json") as process:
                    if happens == "full":
                        self.fill("disk/filler")
                    else:
                        self.delete("out")
                out, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 7, err)
                self.assertIn(f"parameters sha256 {expected}", out)
                self.assertEqual(self.read(self.spare("p.safetensors")), self.read("expected.safetensors"))
                summary = self.json(self.spare("s.json"))
                self.assertEqual((summary["parameters_sha256"], set(summary["not_written"])), (expected, {"parameters"}))
                last = err.splitlines()[-1]
                self.assertIn(f"the parameters are in {self.spare('p.safetensors')}", last)
                self.assertIn(f"the summary is in {self.spare('s.json')}", last)


if __name__ == "__main__":
    unittest.main()
