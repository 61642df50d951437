#!/usr/bin/env python3
"""Leaving: Ctrl-C, SIGTERM, a hang-up and whoever is killed end everything within two seconds; nothing is left."""
import signal
import time
import unittest

from ringzero import HUP, INT, KILL, TERM, TestCase, children, processes, send

LIMIT = 2.0  # seconds


class Leaving(TestCase):
    def start_long_run(self, *options, hang_up=signal.SIG_DFL, until="iteration ", **changes):
        """A run of three workers that has begun to train; and its workers' processes."""
        before = set(processes())
        config = self.config(**{"iterations": 1000000, "steps_per_print": 1, "cyclic.workers": 3,
                                "evaluation.every": 0, "model.hidden": [512, 512, 512], **changes})
        process = self.start("train", config, *options, hang_up=hang_up)
        self.workers = []
        self.wait_for_line(process, until)
        self.workers = children(process.pid)
        self.before = before
        return process

    def ends(self, process, code, since):
        out, err = process.communicate(timeout=30)
        seconds = time.monotonic() - since
        self.assertEqual(process.returncode, code, err)
        self.assertLess(seconds, LIMIT)
        self.out = out
        self.assertEqual([pid for pid in self.workers if pid in processes()], [])
        self.assertEqual(set(processes()) - self.before, set())
        return err

    def test_signals(self):
        for transport in ("shm", "local"):
            for number, code in ((HUP, 129), (INT, 130), (TERM, 143)):
                with self.subTest(transport=transport, signal=number):
                    run, summary = f"run-{transport}-{number}", f"summary-{transport}-{number}.json"
                    process = self.start_long_run("--summary", summary, "--metrics", run, "--dump-parameters", "p",
                                                  **{"cyclic.transport": transport})
                    self.assertEqual(len(self.workers), 3 if transport == "shm" else 1)
                    since = time.monotonic()
                    send(process.pid, number)
                    if number == TERM:  # timeout(1) sends it to the process, and to the process' group
                        send(process.pid, number)
                    err = self.ends(process, code, since)
                    self.assertIn("interrupted", err.splitlines()[-1])
                    self.tells_what_was_done(run, summary)

    def tells_what_was_done(self, run, summary):
        told = self.json(summary)
        self.assertTrue(told["interrupted"])
        self.assertGreater(told["iterations"], 0)
        self.assertLess(told["iterations"], 1000000)
        self.assertIsNotNone(told["loss"]["last"])
        self.assertIsNone(told["parameters_sha256"])
        self.assertEqual(set(told["not_written"]), {"parameters"})
        self.assertIn(f"interrupted after {told['iterations']} of 1000000 iterations in ", self.out)
        lines = self.json_lines(run + "/metrics.jsonl")
        trained = [line for line in lines if "Train/Samples/train_loss" in line["scalars"]]
        self.assertEqual(len(trained), told["iterations"])
        self.runs("report", run, "--out", "report.html")
        self.assertIn('"measured":{', self.text("report.html"))

    def test_a_second_signal_ends_at_once(self):
        # One worker hangs, and would be waited for.
        process = self.start_long_run(until="ringzero: injected: hang", **{"cyclic.inject": {"action": "hang", "worker": 1, "at": "lap", "number": 3}})
        send(process.pid, INT)
        self.wait_until(lambda: len(children(process.pid)) == 1, 60, "the others ended")
        time.sleep(0.3)  # within 0.2 s it would count as the first
        since = time.monotonic()
        send(process.pid, INT)
        self.assertIn("interrupted by signal 2", self.ends(process, 130, since).splitlines()[-1])
        self.assertEqual(self.out, "")

    def test_an_ignored_hang_up_stays_ignored(self):
        process = self.start_long_run(hang_up=signal.SIG_IGN)  # as nohup starts it
        since = time.monotonic()
        for pid in (process.pid, *self.workers):
            send(pid, HUP)
        send(process.pid, TERM)
        self.assertIn("signal 15", self.ends(process, 143, since).splitlines()[-1])

    def test_killed_workers(self):
        for killed in ((0,), (2,), (2, 0)):
            with self.subTest(killed=killed):
                process = self.start_long_run()
                since = time.monotonic()
                for index in killed:
                    send(self.workers[index], KILL)
                err = self.ends(process, 3, since)
                for index in killed:
                    self.assertIn(f"worker {index} was killed by signal 9 (Killed)", err.splitlines()[-1])

    def test_killed_parent(self):
        for stopped in (False, True):  # a worker that is stopped ends, too
            with self.subTest(stopped=stopped):
                process = self.start_long_run()
                if stopped:
                    send(self.workers[0], signal.SIGSTOP)
                send(process.pid, KILL)
                process.wait()
                self.wait_until(lambda: not set(self.workers) & set(processes()), LIMIT, "the workers ended")
                err = process.communicate(timeout=30)[1]
                self.assertEqual(err.splitlines()[-1], "ringzero: error: the launching process died (SIGKILL, or a "
                                                       "crash); its workers end")

    def test_deadline(self):
        # A wait of a microsecond is always too long.
        config = self.config(**{"cyclic.wait_timeout": 0.001, "iterations": 2000, "model.hidden": [512, 512, 512],
                                "cyclic.rule": "dp"})
        done = self.run_program("train", config)
        self.fails(done, 4, "worker")


if __name__ == "__main__":
    unittest.main()
