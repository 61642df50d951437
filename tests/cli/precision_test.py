#!/usr/bin/env python3
"""Tiny trainings in 16 bits: the same bits whatever the transport, and half of the bytes. Numbers that are not finite."""
import os
import unittest

from ringzero import TestCase

BF16 = {"bf16": {"enabled": True}, "iterations": 4, "evaluation.every": 0}


class Precision(TestCase):
    def test_bf16_halves_what_travels(self):
        wide = self.train(self.config(iterations=4, **{"evaluation.every": 0}))
        versions = self.train(self.config(**BF16))
        self.assertLess(versions["bytes_per_step"], 0.75 * wide["bytes_per_step"])
        both = self.train(self.config(**BF16, **{"cyclic.wire": {"sums": "bf16"}, "cyclic.transport": "local"}))
        self.assertLess(both["bytes_per_step"], 0.57 * wide["bytes_per_step"])
        # Bytes that are forecast are those that are allocated, masters apart.
        for category in ("masters", "versions", "moments", "sums"):
            self.assertEqual(versions["memory"]["forecast"][category], versions["memory"]["allocated"][category])
        self.assertEqual(versions["memory"]["forecast"]["masters"], wide["memory"]["forecast"]["masters"])
        local = self.train(self.config(**BF16, **{"cyclic.transport": "local"}))
        self.assertEqual(versions["parameters_sha256"], local["parameters_sha256"])
        self.assertEqual(len({run["parameters_sha256"] for run in (wide, versions, both)}), 3)

    def test_fp16_trains_with_a_fixed_scale(self):
        config = self.config(iterations=4, fp16={"enabled": True, "loss_scale": 1024})
        summary = self.train(config)
        self.assertIsNotNone(summary["loss"]["last"])
        self.assertLess(abs(summary["loss"]["first"] - 1.6), 0.5)  # ln 5: the scale is not in it
        self.assertEqual((summary["skipped_updates"], summary["loss_scale"]), (0, 1024))

    def test_a_type_that_is_slow_here_is_said_before_the_run(self):
        # As on a processor without 16-bit instructions.
        old = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
        for command in ("plan", "train"):
            for enabled in (True, False):
                config = self.config(iterations=1, fp16={"enabled": enabled, "loss_scale": 8}, **{"evaluation.every": 0})
                done = self.runs(command, config, env=old)
                lines = [line for line in (done.stdout + done.stderr).splitlines() if "times as long as fp32's" in line]
                self.assertEqual(len(lines), enabled, lines)
                for line in lines:
                    self.assertGreater(float(line.split(" products take ")[1].split()[0]), 2)

    def test_the_dynamic_scale_comes_down_after_overflows(self):
        fp16 = {"enabled": True, "initial_scale_power": 8, "hysteresis": 1}
        overflows = {"cyclic.inject": {"overflows": [1, 0, 0, 3, 1, 1, 5, 0, 1]}}
        summary = self.train(self.config(iterations=6, fp16=fp16, **overflows), "--metrics", "run")
        self.assertEqual((summary["skipped_updates"], summary["loss_scale"]), (3, 32))
        self.assertEqual(self.scalars("Train/Samples/loss_scale")[1], 256)
        skipped = self.scalars("Ring/Samples/skipped_updates")
        self.assertEqual(list(skipped.values()), [0, 1, 1, 2, 2, 3])  # the last one, too
        again = self.train(self.config(iterations=6, fp16=fp16, **overflows, **{"cyclic.transport": "local"}))
        self.assertEqual(summary["parameters_sha256"], again["parameters_sha256"])


class NotFinite(TestCase):
    """A rate that throws the parameters out of fp32 in the first update."""
    DIVERGES = {"iterations": 6, "evaluation.every": 0, "cyclic.rule": "dp",
                "optimizer": {"type": "SGD", "params": {"lr": 1e30}}}

    def said(self, done):
        return [line for line in done.stderr.splitlines() if line.startswith("warning: ")]

    def test_a_run_that_diverges_says_so_at_once_and_at_the_end(self):
        done = self.runs("train", self.config(**self.DIVERGES), "--metrics", "run", "--summary", "summary.json")
        first, last = self.said(done)
        self.assertEqual(first, "warning: iteration 2/6: the loss is nan, from 2 of 2 micro-batches")
        self.assertIn("warning: not finite: the loss 5 times, first in iteration 2/6; the gradient norm ", last)
        self.assertIn("iteration 6/6  loss nan ", done.stderr)
        losses = [line.split(",")[1] for line in self.text("run/csv/Train_Samples_train_loss.csv").splitlines()][1:]
        self.assertEqual(losses[1:], 5 * ["nan"])
        self.assertEqual(list(self.scalars("Train/Samples/train_loss").values())[1:], 5 * [None])
        self.assertIsNone(self.json("summary.json")["loss"]["last"])

    def test_a_run_that_does_not_says_nothing(self):
        done = self.run_program("train", self.config(iterations=3))
        self.assertEqual((done.returncode, self.said(done)), (0, []), done.stderr)

    def test_stop_ends_it_with_a_code_of_its_own_and_records(self):
        for transport in ("shm", "local"):
            with self.subTest(transport):
                config = self.config(**self.DIVERGES, **{"cyclic.on_nonfinite": "stop", "cyclic.transport": transport})
                done = self.run_program("train", config, "--flight", transport)
                self.fails(done, 6, "iteration 2/6: the loss is nan, from 2 of 2 micro-batches", "cyclic.on_nonfinite")
                self.assertEqual(sorted(os.listdir(self.path(transport))), ["worker-0.flight", "worker-1.flight"])

    def test_the_stage_is_named_where_the_norm_is_one_number(self):
        config = self.config(iterations=4, gradient_clipping=1,
                             **{"cyclic.rule": "dp", "cyclic.inject": {"overflows": [1, 1, 0]}})
        done = self.runs("train", config)
        self.assertRegex(self.said(done)[0], r"^warning: iteration 2/4: the gradient norm is inf, from stage 1 \(.+\)$")
        # The last update, too, which no later iteration tells of.
        done = self.run_program("train", config, "--set", "iterations=2", "--set", "cyclic.on_nonfinite=stop",
                                "--set", "evaluation.every=0")
        self.fails(done, 6, "iteration 2/2: the gradient norm is inf, from stage 1")

    def test_where_updates_are_skipped_that_is_said_but_by_a_dynamic_scale(self):
        overflow = {"iterations": 4, "cyclic.rule": "dp", "cyclic.inject": {"overflows": [1, 0, 0]}}
        for fp16, wanted in (({"loss_scale": 8}, 2), ({"initial_scale_power": 8}, 0)):
            done = self.runs("train", self.config(fp16={"enabled": True, **fp16}, **overflow))
            self.assertEqual(len(self.said(done)), wanted, done.stderr)
            self.assertEqual("and its update is skipped" in done.stderr, wanted == 2)

    def test_an_overflow_at_the_smallest_scale_ends_the_run_but_in_stage_0(self):
        changes = {"iterations": 4, "cyclic.rule": "dp", "cyclic.inject": {"overflows": [1, 0, 0]},
                   "fp16": {"enabled": True, "initial_scale_power": 0, "hysteresis": 1}}
        done = self.run_program("train", self.config(**changes, **{"zero_optimization.stage": 1}), "--flight", "flight")
        self.fails(done, 6, "fp16.min_loss_scale")
        self.assertEqual(sorted(os.listdir(self.path("flight"))), ["worker-0.flight", "worker-1.flight"])
        summary = self.train(self.config(**changes, **{"zero_optimization.stage": 0}))
        self.assertEqual((summary["skipped_updates"], summary["loss_scale"]), (1, 1))


if __name__ == "__main__":
    unittest.main()
