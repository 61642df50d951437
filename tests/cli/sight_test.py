#!/usr/bin/env python3
"""Flight records, blame and traces, as somebody uses them whose run is slow, stuck or dead."""
import gzip
import json
import os
import re
import signal
import time
import unittest

from ringzero import TestCase, children, inject

SMALL = {"cyclic.workers": 3, "iterations": 12, "model.hidden": [24, 24, 24, 16]}


def slices(trace, category):
    """By worker: the operations of a track, in order."""
    found = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["cat"] == category:
            found.setdefault(event["pid"], []).append(event)
    return {worker: [event["args"]["op"] for event in sorted(events, key=lambda event: event["ts"])]
            for worker, events in found.items()}


class OfMetrics(TestCase):
    def test_the_records_of_a_run_with_metrics_are_found_in_its_folder(self):
        self.train(self.config(**SMALL), "--metrics", "run")
        for command, words in (("trace", ["--out", "trace.json"]), ("blame", [])):
            self.runs(command, "run", *words)
        self.assertEqual(set(slices(self.json("trace.json"), "compute")), {0, 1, 2})
        os.mkdir(self.path("empty"))
        self.fails(self.run_program("trace", "empty"), 2, "empty: no flight record")


def names(pid):
    """Of a process: what ps -f shows, and its threads' names."""
    with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
        title = file.read().rstrip("\0")
    threads = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm", encoding="utf-8") as file:
            threads.append(file.read().strip())
    return title, set(threads)


class Names(TestCase):
    ALL = {"rz-messages", "rz-pool", "rz-flight", "rz-memory", "rz-trace"}

    def start_training(self, transport, *options):
        config = self.config(**{"iterations": 1000000, "steps_per_print": 1, "evaluation.every": 0, "cyclic.threads": 2,
                                "cyclic.transport": transport})
        process = self.start("train", config, "--trace", "trace.json", *options)
        self.wait_for_line(process)
        return process

    def test_every_thread_of_a_worker(self):
        for transport, more in (("shm", {"rz-sockets"}), ("ucx", {"async"})):
            with self.subTest(transport=transport):
                process = self.start_training(transport)
                for worker, pid in enumerate(children(process.pid)):
                    title, threads = names(pid)
                    self.assertEqual(title, f"ringzero worker {worker}")
                    self.assertEqual(threads, self.ALL | {f"ringzero w{worker}", "rz-compute"} | more)
                title, threads = names(process.pid)
                self.assertIn("train", title)
                self.assertEqual(threads, {"ringzero"})

    def test_workers_that_are_threads(self):
        pid, = children(self.start_training("local").pid)
        title, threads = names(pid)
        self.assertIn("train", title)
        self.assertEqual(threads, self.ALL | {"ringzero", "rz-compute 0", "rz-compute 1"})

    def test_a_worker_of_an_outside_job(self):
        process = self.start_training("shm", "--worker", 0, "--workers", 1)
        title, threads = names(process.pid)
        self.assertEqual(title, "ringzero worker 0")
        self.assertIn("ringzero w0", threads)


class Flight(TestCase):
    def hang(self, *options):
        config = self.config(**{**SMALL, "cyclic.wait_timeout": 2})
        return self.run_program("train", config, *inject("hang", at="lap", worker=1, number=3), *options)

    def test_a_deadline_leaves_records_that_name_who_hangs(self):
        done = self.fails(self.hang("--flight", "records"), 4, "worker 1 has been outside of the engine")
        self.assertIn("flight records are in records: ringzero blame records", done.stderr)
        self.assertEqual(sorted(os.listdir(self.path("records"))), [f"worker-{w}.flight" for w in range(3)])
        blame = self.runs("blame", "records")
        first = [line for line in blame.stdout.splitlines() if line.startswith("first cause: ")]
        self.assertEqual(len(first), 1, blame.stdout)
        self.assertIn("first cause: worker 1 has been outside of the engine for", first[0])
        self.assertIn("so worker 2 ", first[0])
        trace = self.runs("trace", "records", "--out", "trace.json")
        self.assertEqual(set(slices(self.json("trace.json"), "compute")), {0, 1, 2})

    def test_a_killed_worker_is_the_first_cause(self):
        done = self.run_program("train", self.config(**SMALL), *inject("kill", at="lap", worker=2, number=4))
        self.fails(done, 3, "worker 2 was killed")
        blame = self.runs("blame", "ringzero-flight")
        self.assertIn("no record of worker 2", blame.stdout)
        self.assertRegex(blame.stdout, "first cause: worker 2 (died|left no record|was killed)")

    def ask_for_records(self, process, folder):
        self.wait_until(lambda: len(children(process.pid)) == 3, 60, "workers")
        files = [self.path(f"{folder}/worker-{w}.flight") for w in range(3)]

        def asked():
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.05)
            return process.poll() is not None or all(map(os.path.exists, files))
        self.wait_until(asked, 60, "records of all workers")

    def test_the_signal_asks_for_records_and_the_run_goes_on(self):
        config = self.config(**{**SMALL, "iterations": 2000, "evaluation.every": 0})
        digest = self.bits(config)
        process = self.start("train", config, "--flight", "asked", "--summary", "summary.json")
        self.ask_for_records(process, "asked")
        out, errors = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("parameters sha256 " + digest, out)
        blame = self.runs("blame", "asked")
        self.assertIn("written because signal 10", blame.stdout)
        self.assertIn("nobody waits too long", blame.stdout)
        self.assertNotIn("first cause", blame.stdout)

    def test_records_asked_for_before_a_death_do_not_hide_it(self):
        config = self.config(**{**SMALL, "iterations": 2000, "evaluation.every": 0})
        process = self.start("train", config, "--flight", "asked",
                             *inject("kill", at="lap", worker=2, number=1900))
        self.ask_for_records(process, "asked")
        _, errors = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 3, errors)
        blame = self.runs("blame", "asked")
        self.assertIn("left out, of another moment: the record of worker 2, written because signal 10", blame.stdout)
        self.assertRegex(blame.stdout, "first cause: worker 2 (died|was killed)")

    def test_bad_records_are_refused(self):
        self.fails(self.run_program("blame", "nowhere"), 2, "nowhere", "No such file")
        os.mkdir(self.path("empty"))
        self.fails(self.run_program("blame", "empty"), 2, "empty: no flight record")
        os.mkdir(self.path("bad"))
        for text, words in ((b"hello\n", ("line 1", "ringzero flight 1")),
                            (b"ringzero flight 1\nworker 0 of 1\nevents\nxyz", ("cut",)),
                            (b"ringzero flight 1\nworker 0 of 1\nspeed 1\nevents\n", ("line 3", "speed"))):
            self.write("bad/worker-0.flight", text)
            self.fails(self.run_program("blame", "bad"), 2, "bad/worker-0.flight", *words)
        self.fails(self.run_program("blame"), 2, "which FOLDER?")

    def test_records_of_an_earlier_run_go(self):
        os.mkdir(self.path("records"))
        for worker in (0, 7):
            self.write(f"records/worker-{worker}.flight", "old")
            self.write(f"records/worker-{worker}.flight.4711.tmp", "half of an old one")
        self.hang("--flight", "records")
        self.assertEqual(sorted(os.listdir(self.path("records"))), [f"worker-{w}.flight" for w in range(3)])

    def test_the_folder_may_lie_in_one_that_is_not_there(self):
        self.hang("--flight", "a/b/records")
        self.assertEqual(sorted(os.listdir(self.path("a/b/records"))), [f"worker-{w}.flight" for w in range(3)])

    def test_records_that_cannot_be_written_are_missed_aloud(self):
        os.symlink("nowhere/records", self.path("records"))
        done = self.hang("--flight", "records")
        self.assertIn("records: cannot make the folder", done.stderr)


class Trace(TestCase):
    def check(self, trace):
        """Nothing is lost, and all workers are there. What it tells of a plan: tests/sight/chrome_trace_test.cc."""
        self.assertEqual(trace["otherData"]["lost_events"], "0")
        for category in ("compute", "copies in", "copies out", "sums", "updates"):
            self.assertEqual(set(slices(trace, category)), {0, 1, 2}, category)

    def test_a_traced_run_keeps_its_bits(self):
        config = self.config(**{**SMALL, "cyclic.rule": "cdp_v1"})
        plain = self.bits(config)
        traced = self.bits(config, "--trace", "run.json.trace")
        self.assertEqual(plain, traced)
        self.assertFalse(os.path.exists(self.path("run.json.trace.parts")))
        trace = self.json("run.json.trace")
        self.check(trace)
        self.assertEqual(trace["otherData"]["clocks"], "aligned")

    def test_threads_of_one_process_are_traced_too(self):
        config = self.config(**{**SMALL, "cyclic.transport": "local"})
        self.train(config, "--trace", "trace.json")
        self.check(self.json("trace.json"))

    def test_a_window_is_cut_out_of_the_whole_trace(self):
        config = self.config(**SMALL)
        digest = self.bits(config, "--trace", "whole.json")
        cut = self.train(config, "--trace", "cut.json.gz", "--trace-iterations", "4:6")
        self.assertEqual(cut["parameters_sha256"], digest)
        whole = self.json("whole.json")
        with gzip.open(self.path("cut.json.gz"), "rt", encoding="utf-8") as file:
            cut = json.load(file)
        for category in ("compute", "copies in", "copies out", "sums", "updates"):
            wanted = {worker: {op for op in ops if re.search(r" t[345]\b", op)}  # the fourth is t3
                      for worker, ops in slices(whole, category).items()}
            found = slices(cut, category)
            self.assertEqual({worker: set(ops) for worker, ops in found.items()}, wanted, category)
            self.assertTrue(all(wanted.values()), category)

    def test_a_signal_asks_for_the_next_iterations(self):
        config = self.config(**{**SMALL, "iterations": 3000, "evaluation.every": 0})
        process = self.start("train", config, "--trace", "trace.json", "--trace-iterations", "signal:5", "--metrics", "run")
        lines = self.path("run/metrics.jsonl")
        self.wait_until(lambda: os.path.exists(lines) and os.path.getsize(lines) > 0, 60, "a line of metrics")
        process.send_signal(signal.SIGUSR2)
        _, errors = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 0, errors)
        computed = slices(self.json("trace.json"), "compute")
        self.assertEqual(set(computed), {0, 1, 2})
        for worker, ops in computed.items():
            traced = sorted({int(number) for op in ops for number in re.findall(r" t(\d+)\b", op)})
            self.assertEqual(traced, list(range(traced[0], traced[0] + 5)), worker)

    def test_windows_that_are_none(self):
        config = self.config(**SMALL)
        for window in ("3", "0:2", "5:4", "a:b", "signal", "signal:0", "1:2:3"):
            self.fails(self.run_program("train", config, "--trace", "t.json", "--trace-iterations", window), 2,
                       "--trace-iterations: wanted FIRST:LAST", f'found "{window}"')
        self.fails(self.run_program("train", config, "--trace", "t.json", "--trace-iterations", "13:14"), 2,
                   "--trace-iterations 13:14: the run has 12")
        self.fails(self.run_program("train", config, "--trace-iterations", "1:2"), 2, "wants --trace FILE")

    def test_a_prediction_looks_the_same(self):
        config = self.config(**SMALL)
        self.runs("plan", config, "--trace", "trace.json")
        trace = self.json("trace.json")
        self.check(trace)
        self.assertIn("predicted", trace["otherData"]["note"])


if __name__ == "__main__":
    unittest.main()
