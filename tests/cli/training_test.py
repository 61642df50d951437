#!/usr/bin/env python3
"""Tiny trainings: the same bits whatever the transport and the worker count, and a summary with every name."""
import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import unittest
from random import Random

from ringzero import PROGRAM, ROOT, TestCase

KEYS = ("workers", "rule", "warmup_updates", "predict", "parameters", "iterations", "step_seconds",
        "samples_per_second", "lr", "gradient_norm", "mfu", "loss", "waits_seconds_per_step", "compute_seconds_per_step", "pss_mib", "bytes_per_step", "bytes_other_per_step",
        "cpu_seconds_per_step", "minor_faults_per_step", "pss_peak_mib", "memory", "parameters_sha256")

# Of TINY's model: 36 x 24 + 24, 24 x 16 + 16, 16 x 5 + 5.
PARAMETERS = 888 + 400 + 85


class Digests(TestCase):
    def test_transports_agree_and_runs_repeat(self):
        for rule in ("dp", "cdp_v1", "cdp_v2"):
            with self.subTest(rule=rule):
                config = self.config(**{"cyclic.rule": rule})
                shm = self.train(config)
                local = self.train(config, "--set", "cyclic.transport=local")
                again = self.train(config)
                self.assertEqual(shm["parameters_sha256"], local["parameters_sha256"])
                self.assertEqual(shm["parameters_sha256"], again["parameters_sha256"])
                self.assertEqual(shm["loss"], local["loss"])
                self.assertEqual(shm["accuracy"], local["accuracy"])
                self.assertEqual(shm["bytes_per_step"], local["bytes_per_step"])

    def test_dp_does_not_know_the_number_of_workers(self):
        seen = set()
        for workers, laps in ((1, 4), (2, 2), (4, 1)):
            summary = self.train(self.config(**{"cyclic.rule": "dp", "gradient_accumulation_steps": laps,
                                                "cyclic.transport": "local"}), "--workers", workers)
            self.assertEqual(summary["workers"], workers)
            seen.add((summary["parameters_sha256"], summary["loss"]["first"], summary["loss"]["last"],
                      summary["accuracy"]))
        self.assertEqual(len(seen), 1, seen)

    def test_what_zero_shards_changes_no_bit(self):
        for rule in ("dp", "cdp_v1", "cdp_v2"):
            seen, sent = set(), []
            for stage in (0, 1, 2, 3):
                config = self.config(**{"cyclic.rule": rule, "zero_optimization": {"stage": stage}})
                summary = self.train(config)
                seen.add((summary["parameters_sha256"], summary["loss"]["first"], summary["loss"]["last"],
                          summary["accuracy"]))
                sent.append(summary["bytes_per_step"])
            self.assertEqual(len(seen), 1, (rule, seen))
            self.assertEqual(sent[1], sent[2], rule)
            self.assertLess(sent[1], sent[3], rule)  # each version comes once, not twice
        # No section at all means 3, one that does not say 0.
        for section, like in ((None, 3), ({"overlap_comm": True}, 0)):
            changes = {} if section is None else {"zero_optimization": section}
            summary = self.train(self.config(**{"cyclic.rule": rule}, **changes))
            self.assertEqual(summary["bytes_per_step"], sent[like])

    def test_rules_differ(self):
        digests = {rule: self.bits(self.config(**{"cyclic.rule": rule, "cyclic.transport": "local"}))
                   for rule in ("dp", "cdp_v1", "cdp_v2", None)}
        self.assertEqual(len(set(digests.values())), 3)
        self.assertEqual(digests[None], digests["dp"])

    def test_neither_windows_nor_how_products_are_added_change_a_bit(self):
        config = self.config(**{"cyclic.workers": 4, "cyclic.rule": "dp", "gradient_accumulation_steps": 2, "model.hidden": [64] * 7})
        runs = [self.train(config, "--set", change)
                for change in ("cyclic.window=0", "cyclic.window=4", "cyclic.window=20", "cyclic.products_first=true")]
        self.assertEqual(len({run["parameters_sha256"] for run in runs}), 1)
        # With one lap worker 0 begins every sum: its products go there, unless they are made first.
        one_lap = ("--set", "gradient_accumulation_steps=1")
        added, first = (self.train(config, *one_lap, "--set", f"cyclic.products_first={value}") for value in ("false", "true"))
        self.assertEqual(added["parameters_sha256"], first["parameters_sha256"])
        self.assertGreater(first["memory"]["forecast"]["gradients"], added["memory"]["forecast"]["gradients"])


class Summary(TestCase):
    def test_every_name(self):
        summary = self.train(self.config())
        for key in KEYS:
            self.assertIn(key, summary)
        self.assertEqual(summary["workers"], 2)
        self.assertEqual(summary["rule"], "cdp_v2")
        self.assertEqual(summary["parameters"], PARAMETERS)
        self.assertEqual(summary["iterations"], 12)
        self.assertEqual(set(summary["step_seconds"]), {"median", "min", "max"})
        self.assertLessEqual(summary["step_seconds"]["min"], summary["step_seconds"]["median"])
        self.assertGreater(summary["samples_per_second"], 0)
        self.assertEqual(set(summary["loss"]), {"first", "last"})
        self.assertEqual(set(summary["waits_seconds_per_step"]), {"parameters", "gradient_sums", "update"})
        self.assertGreaterEqual(summary["accuracy"], 0)
        self.assertLessEqual(summary["accuracy"], 1)
        self.assertEqual(len(summary["pss_peak_mib"]), 2)
        self.assertTrue(all(mib > 1 for mib in summary["pss_peak_mib"]))
        self.assertRegex(summary["parameters_sha256"], "^[0-9a-f]{64}$")

    def test_allocates_what_the_plan_forecasts(self):
        for rule, stage in (("dp", 3), ("cdp_v1", 3), ("cdp_v2", 3), ("cdp_v2", 2), ("dp", 1), ("cdp_v1", 0)):
            memory = self.train(self.config(**{"cyclic.rule": rule, "evaluation.every": 0,
                                               "zero_optimization": {"stage": stage}}))["memory"]
            self.assertEqual(set(memory), {"forecast", "allocated", "certificate"})
            forecast, allocated = memory["forecast"], memory["allocated"]
            self.assertEqual(list(forecast), ["masters", "versions", "moments", "sums", "taken", "gradients", "total"])
            for category in ("masters", "versions", "moments", "sums"):
                self.assertEqual(allocated[category], forecast[category], (rule, stage, category))
            self.assertGreaterEqual(forecast["masters"], 4 * PARAMETERS)
            self.assertEqual(forecast["versions"] > 0, rule != "dp")

    def test_bytes_do_not_depend_on_evaluation(self):
        sent = [self.train(self.config(**{"evaluation.every": every, "cyclic.transport": "local"}))
                for every in (0, 3)]
        self.assertEqual(sent[0]["bytes_per_step"], sent[1]["bytes_per_step"])
        self.assertLess(sent[0]["bytes_other_per_step"], sent[1]["bytes_other_per_step"])

    def test_one_worker_sends_nothing(self):
        summary = self.train(self.config(), "--workers", 1)
        self.assertEqual(summary["bytes_per_step"], 0)
        self.assertEqual(len(summary["pss_peak_mib"]), 1)

    def test_computing_only(self):
        summary = self.train(self.config(**{"cyclic.exchange": False}))
        self.assertEqual(summary["bytes_per_step"], 0)
        self.assertIsNone(summary["parameters_sha256"])

    def test_perplexity_of_a_gpt(self):
        config = self.config(**{"model": {"type": "gpt", "layers": 2, "dim": 16, "heads": 2, "vocab": 32, "seq": 8},
                                "data": {"type": "random", "samples": 128}, "iterations": 4})
        summary = self.train(config, "--metrics", "run")
        self.assertGreater(summary["perplexity"], 1)
        self.assertNotIn("accuracy", summary)
        self.assertTrue(os.path.exists(self.path("run/csv/Ring_Samples_eval_perplexity.csv")))
        self.assertFalse(os.path.exists(self.path("run/csv/Ring_Samples_eval_accuracy.csv")))


class Allocator(TestCase):
    def test_memory_is_kept(self):
        """A step allocates the tensors of the step before: given back, each would cost its page faults anew."""
        done = self.run_program("--version", env={**os.environ, "MALLOC_CONF": "stats_print:true"})
        if "opt.narenas" not in done.stdout + done.stderr:
            self.skipTest("the program is built without jemalloc")
        for setting in ("opt.narenas: 1", "opt.dirty_decay_ms: -1", "opt.muzzy_decay_ms: -1", 'opt.thp: "always"'):
            self.assertIn(setting, done.stdout + done.stderr)


class Overrides(TestCase):
    def test_type_replaces_its_section(self):
        config = self.config(data={"type": "idx", "path": "/nowhere"})
        self.train(config, "--set", "data.type=random", "--set", "data.samples=64", "--set", "data.input=[9]",
                   "--set", "iterations=2", "--set", "cyclic.transport=local")

    def test_iterations_drop_epochs(self):
        config = self.config(iterations=None, epochs=1)
        self.assertEqual(self.train(config, "--set", "iterations=3")["iterations"], 3)
        # 256 samples, batches of 3 x 8 = 24: the last is smaller, or dropped, and that is said.
        words = ("--workers", 3, "--set", "cyclic.transport=local")
        for drop, iterations, note in (("false", "11 iterations", "the last batch of each epoch has 16 samples"),
                                       ("true", "10 iterations", "the last 16 of 256 samples")):
            done = self.runs("train", config, *words, "--set", f"dataloader_drop_last={drop}")
            self.assertIn(iterations, done.stderr)
            self.assertIn(note, done.stderr)


class Progress(TestCase):
    def test_what_a_cyclic_rule_gains_and_costs(self):
        for rule, said in (("cdp_v1", 1), ("dp", 0)):
            done = self.runs("train", self.config(**{"cyclic.rule": rule, "gradient_accumulation_steps": 2}))
            for text in (done.stderr, done.stdout):
                lines = [line for line in text.splitlines() if "docs/results/rules_study.md" in line]
                self.assertEqual(len(lines), said, text)
                self.assertTrue(all(line.startswith("rule cdp_v1, K = 2: ") for line in lines), lines)

    def test_rule_auto(self):
        """What was not studied gives dp, and dp's bits; what was studied may give that rule, and its bits."""
        studied = self.studied("mlp", "SGD", batch=16)
        auto = self.config("auto.json", **{"cyclic": {"workers": 2, "rule": "auto"}})
        self.assertEqual(self.bits(auto), self.bits(self.config(**{"cyclic": {"workers": 2}})))
        done = self.runs("train", auto, "--efficiency", studied, "--summary", "summary.json")
        self.assertIn("rule auto: cdp_v1, which comes to dp's loss first", done.stderr)
        self.assertIn("made up for a test", done.stdout)
        summary = self.json("summary.json")
        self.assertEqual((summary["rule"], summary["predict"]), ("cdp_v1", True))
        named = self.config(**{"cyclic": {"workers": 2, "rule": "cdp_v1"}})
        self.assertEqual(summary["parameters_sha256"], self.bits(named))

    def test_what_a_cyclic_rule_begins_with(self):
        chosen = {"cyclic": {"rule": "cdp_v2", "workers": 2}, "steps_per_print": 1}
        done = self.runs("train", self.config(**chosen))
        said = ("the first 3 of 12 updates are of dp (30 % of the run); what is stale is predicted, factor 0.9 "
                "(chosen by the optimizer)")
        self.assertIn(said, done.stderr)
        self.assertIn(said, done.stdout)
        phases = re.findall(r"^iteration (\d+)/12 \((\w+)\)", done.stderr, re.M)
        self.assertEqual(phases, [(str(i), "dp" if i <= 3 else "cdp_v2") for i in range(1, 13)])
        digest = lambda **cyclic: self.bits(self.config(**{**chosen, "cyclic": {**chosen["cyclic"], **cyclic}}))
        paper = self.bits(self.config())
        self.assertEqual(digest(warmup_updates=0, predict=False), paper)
        found = {digest(), digest(warmup_updates=0), digest(predict=False), digest(predict={"factor": 0.5}), paper}
        self.assertEqual(len(found), 5, "each trains something else")

    def test_threads_that_share_cores_sleep_while_they_wait(self):
        one_core = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
        run = lambda *arguments, env: self.run_program(*arguments, before=one_core, env=env)
        # libgomp says what it has read, once per program that loads it.
        shown = {**os.environ, "OMP_DISPLAY_ENV": "VERBOSE"}
        shown.pop("OMP_WAIT_POLICY", None)
        spins = lambda done: [int(line.split("'")[1]) for line in done.stderr.splitlines() if "GOMP_SPINCOUNT = " in line]
        said = lambda done: [line for line in done.stderr.splitlines() if "OMP_WAIT_POLICY=passive" in line]
        config = self.config(iterations=2, **{"cyclic.threads": 2, "evaluation.every": 0})
        done = run("train", config, env=shown)
        self.assertEqual(done.returncode, 0, done.stderr)
        before, after = spins(done)
        self.assertGreater(before, after)
        self.assertEqual(after, 0)
        self.assertEqual(said(done), ["2 workers with 2 threads each share 1 core: threads that wait for each other sleep "
                                      "(OMP_WAIT_POLICY=passive)"])
        chosen = run("train", config, env={**shown, "OMP_WAIT_POLICY": "passive"})
        self.assertEqual((spins(chosen), said(chosen)), ([0], []), chosen.stderr)
        self.assertEqual(chosen.stdout.split()[-1], done.stdout.split()[-1], "the same bits")
        alone = run("train", config, "--set", "cyclic.threads=1", env=shown)
        self.assertEqual((spins(alone), said(alone)), ([before], []), alone.stderr)

    def test_not_a_terminal(self):
        done = self.runs("train", self.config(steps_per_print=4))
        lines = [line for line in done.stderr.splitlines() if line.startswith("iteration") and "samples/s" in line]
        self.assertEqual([line.split()[1] for line in lines], ["4/12", "8/12", "12/12"])
        self.assertNotIn("\r", done.stderr)
        self.assertNotIn("\x1b", done.stderr)

    def test_terminal(self):
        ours, theirs = os.openpty()
        process = subprocess.Popen([PROGRAM, "train", self.config(iterations=200)], stdout=subprocess.PIPE,
                                   stderr=theirs, cwd=self.folder)
        os.close(theirs)
        seen = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not chunk:
                break
            seen += chunk
        os.close(ours)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, seen)
        self.assertIn(b"\r\x1b[Kiteration", seen)
        self.assertTrue(seen.endswith(b"\n"), seen[-100:])
        self.assertIn(b"200 iterations", out)


class Parameters(TestCase):
    def header(self, name):
        written = self.read(name)
        return json.loads(written[8:8 + struct.unpack("<Q", written[:8])[0]])

    def test_dump_and_init(self):
        config = self.config(**{"model": {"type": "resnet", "depth": 8, "width": 4}, "iterations": 3,
                                "data": {"type": "random", "samples": 128, "input": [1, 8, 8]}})
        first = self.train(config, "--dump-parameters", "a.safetensors")
        names = self.header("a.safetensors")
        names.pop("__metadata__", None)
        self.assertTrue(any(name.endswith("running_mean") for name in names))
        # A rate of 0 and no iterations of running statistics to speak of: parameters come back as they were.
        again = self.train(config, "--init", "a.safetensors", "--dump-parameters", "b.safetensors",
                           "--set", "optimizer.params.lr=0", "--set", "iterations=1", "--workers", 1)
        self.assertEqual(first["parameters_sha256"], again["parameters_sha256"])
        # Another number of stages writes the same tensors.
        other = self.header("b.safetensors")
        other.pop("__metadata__", None)
        self.assertEqual({k: v["shape"] for k, v in names.items()}, {k: v["shape"] for k, v in other.items()})
        self.assertEqual([name for name in os.listdir(self.folder) if ".tmp" in name], [])

    def test_init_of_another_shape(self):
        self.train(self.config(), "--dump-parameters", "a.safetensors", "--set", "iterations=1")
        done = self.run_program("train", self.config(**{"model.hidden": [24, 17]}), "--init", "a.safetensors")
        self.fails(done, 2, "a.safetensors", "tensor \"linear1.", "[17", "[16")


def cifar10_batch(seed, records=16):
    """Records as in the binary version of CIFAR-10: a class and 3 x 32 x 32 pixels, brighter in its class's rows."""
    random = Random(seed)
    batch = bytearray()
    for number in range(records):
        kind = number % 10
        rows = [random.randrange(0, 60) + (150 if row // 3 == kind else 0) for row in range(32)]
        batch.append(kind)
        batch += bytes(rows[row] for _ in range(3) for row in range(32) for _ in range(32))
    return bytes(batch)


class Cifar10(TestCase):
    def folder_of_batches(self):
        folder = self.path("cifar-10-batches-bin")
        os.makedirs(folder)
        for batch in range(1, 6):
            records, packed = cifar10_batch(batch), batch == 2  # both kinds are read
            self.write(f"{folder}/data_batch_{batch}.bin" + (".gz" if packed else ""), gzip.compress(records) if packed else records)
        self.write(f"{folder}/test_batch.bin", cifar10_batch(6, records=20))
        return folder

    def test_trains(self):
        for depth, width in ((8, 4), (18, 2)):
            with self.subTest(depth=depth):
                shutil.rmtree(self.path("cifar-10-batches-bin"), ignore_errors=True)
                config = self.config(**{
                    "model": {"type": "resnet", "depth": depth, "width": width},
                    "data": {"type": "cifar10", "path": self.folder_of_batches()},
                    "train_micro_batch_size_per_gpu": 4, "iterations": None, "epochs": 4,
                    "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}}, "evaluation": {}})
                summary = self.train(config)
                self.assertEqual(summary["iterations"], 40)  # 80 samples, 8 an iteration
                self.assertLess(summary["loss"]["last"], 0.7 * summary["loss"]["first"])
                self.assertGreaterEqual(summary["accuracy"], 0.2)  # of 10 classes in equal parts


class Examples(TestCase):
    def test_the_loss_of_the_gpt_falls_from_its_first_iterations_on(self):
        summary = self.train(os.path.join(ROOT, "examples/gpt_text.json"), "--set", "iterations=60",
                             "--set", "evaluation.every=0", "--metrics", "run")
        self.assertLess(summary["loss"]["last"], 2.9)
        losses = list(self.scalars("Train/Samples/train_loss").values())
        self.assertEqual(len(losses), 60)
        for done in range(1, 60):
            self.assertLess(losses[done], min(losses[:done]) + 0.5)


class LastLines(TestCase):
    def test_memory_says_what_is_counted(self):
        done = self.runs("train", self.config())
        self.assertRegex(done.stdout, r"\nmemory: \d+ MiB: the workers' PSS, each at its most, added up \(.*not counted\)\n")


if __name__ == "__main__":
    unittest.main()
