#!/usr/bin/env python3
"""Tiny trainings in 16 bits: the same bits whatever the transport, and half of the bytes."""
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


if __name__ == "__main__":
    unittest.main()
