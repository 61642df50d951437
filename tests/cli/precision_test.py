#!/usr/bin/env python3
"""Tiny trainings in 16 bits: the same bits whatever the transport, and half of the bytes."""
import json
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

    def test_the_dynamic_scale_comes_down_after_overflows(self):
        fp16 = {"enabled": True, "initial_scale_power": 8, "hysteresis": 1}
        overflows = {"cyclic.inject": {"overflows": [1, 0, 0, 3, 1, 1]}}
        summary = self.train(self.config(iterations=6, fp16=fp16, **overflows), "--metrics", "run")
        self.assertEqual((summary["skipped_updates"], summary["loss_scale"]), (2, 64))
        with open(self.path("run/metrics.jsonl"), encoding="utf-8") as lines:
            found = [json.loads(line) for line in lines]
        scales = {line["iteration"]: line["scalars"]["Train/Samples/loss_scale"] for line in found
                  if "Train/Samples/loss_scale" in line["scalars"]}
        self.assertEqual(scales[0], 256)
        skipped = [line["scalars"]["Ring/Samples/skipped_updates"] for line in found
                   if "Ring/Samples/skipped_updates" in line["scalars"]]
        self.assertEqual(skipped, [0, 1, 1, 2, 2, 2])
        again = self.train(self.config(iterations=6, fp16=fp16, **overflows, **{"cyclic.transport": "local"}))
        self.assertEqual(summary["parameters_sha256"], again["parameters_sha256"])


if __name__ == "__main__":
    unittest.main()
