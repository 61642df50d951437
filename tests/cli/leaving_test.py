#!/usr/bin/env python3
"""Leaving: Ctrl-C, SIGTERM and a killed worker end everything within two seconds, and nothing is left."""
import time
import unittest

from ringzero import INT, KILL, TERM, TestCase, children, processes, send

LIMIT = 2.0  # seconds


class Leaving(TestCase):
    def start_long_run(self, **changes):
        """A run of three workers that has begun to train; and its workers' processes."""
        before = set(processes())
        config = self.config(**{"iterations": 1000000, "steps_per_print": 1, "cyclic.workers": 3,
                                "evaluation.every": 0, "model.hidden": [512, 512, 512], **changes})
        process = self.start("train", config)
        self.workers = []
        for line in process.stderr:
            if line.startswith("iteration "):
                break
        else:
            self.fail("it never began to train")
        self.workers = children(process.pid)
        self.before = before
        return process

    def ends(self, process, code, since):
        out, err = process.communicate(timeout=30)
        seconds = time.monotonic() - since
        self.assertEqual(process.returncode, code, err)
        self.assertLess(seconds, LIMIT)
        self.assertEqual(out, "")
        self.assertEqual([pid for pid in self.workers if pid in processes()], [])
        self.assertEqual(set(processes()) - self.before, set())
        return err

    def test_signals(self):
        for transport in ("shm", "local"):
            for number, code in ((INT, 130), (TERM, 143)):
                with self.subTest(transport=transport, signal=number):
                    process = self.start_long_run(**{"cyclic.transport": transport})
                    self.assertEqual(len(self.workers), 3 if transport == "shm" else 1)
                    since = time.monotonic()
                    send(process.pid, number)
                    err = self.ends(process, code, since)
                    self.assertIn("interrupted", err.splitlines()[-1])

    def test_killed_worker(self):
        for index in (0, 2):
            with self.subTest(worker=index):
                process = self.start_long_run()
                since = time.monotonic()
                send(self.workers[index], KILL)
                err = self.ends(process, 3, since)
                self.assertIn(f"worker {index} was killed by signal 9", err)

    def test_killed_parent(self):
        process = self.start_long_run()
        send(process.pid, KILL)
        process.wait()
        self.wait_until(lambda: not set(self.workers) & set(processes()), LIMIT, "the workers ended")

    def test_deadline(self):
        # A wait of a microsecond is always too long.
        config = self.config(**{"cyclic.wait_timeout": 0.001, "iterations": 2000, "model.hidden": [512, 512, 512],
                                "cyclic.rule": "dp"})
        done = self.run_program("train", config)
        self.fails(done, 4, "worker")


if __name__ == "__main__":
    unittest.main()
