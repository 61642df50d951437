#!/usr/bin/env python3
"""States on NVMe give the bits of states in memory, in runs that have every pair of choices.

tests/zero/engine_streams_test.cc has all rules, types and optimizers with the toy model, on a disk
in memory. Here are a file, both ways to read it, states of which half stay in memory, and resumed
runs. A sample each day, another one for each commit; all with RINGZERO_TEST_FULL.
"""
import errno
import os
import unittest

import pairs
from offload_test import PARAMETERS, SECTION, forbid_rings
from ringzero import TestCase

ITERATIONS, SAVED = 5, 3  # a resumed run goes on from SAVED
ROWS_OF_DAY = 3  # with each engine
SEED = 36  # with few rows


def optimizer(name, **params):
    return {"optimizer": {"type": name, "params": {"lr": 0.01, **params}}}


CHOICES = {
    "rule": {rule: {"cyclic.rule": rule} for rule in ("dp", "cdp_v1", "cdp_v2")},
    "wire": {"fp32": {}, "bf16": {"bf16.enabled": True},
             "fp16": {"fp16.enabled": True, "fp16.initial_scale_power": 8}},
    "optimizer": {"AdamW": optimizer("AdamW", weight_decay=0.1),
                  "Adam": optimizer("Adam", weight_decay=0.1, adam_w_mode=False),
                  "momentum": optimizer("SGD", momentum=0.9), "Lion": optimizer("Lion"),
                  "Adagrad": optimizer("Adagrad")},
    "share": {"all": {f"{SECTION}.ratio": 1}, "half": {f"{SECTION}.ratio": 0.5}},
    "parameters": {"memory": {}, "files": {f"{PARAMETERS}.device": "nvme", f"{PARAMETERS}.max_in_cpu": 0}},
    "engine": {"io_uring": {}, "threads": {}},
    "disk": {"as it is": {}, "slowed": {"cyclic.offload.bandwidth": 0.02}},
    "clipping": {"off": {"gradient_clipping": 0}, "on": {"gradient_clipping": 0.1}},
    "laps": {"1": {"gradient_accumulation_steps": 1}, "3": {"gradient_accumulation_steps": 3}},
    "resumed": {"no": {}, "yes": {}},
}
# Each of two workers has two stages with a matrix of 65,536 values: the least that streams.
MODEL = {"model": {"type": "mlp", "hidden": [256] * 5}, "cyclic.stages": 6,
         "zero_optimization.stage": 3, "iterations": ITERATIONS, "evaluation.every": 0}
STATE = 4 * 256 * 256
STAGES = [37 * 256] + 4 * [257 * 256] + [257 * 5]  # values, with biases: of 36 inputs, 5 classes
STATES = {"AdamW": 2, "Adam": 2, "momentum": 1, "Lion": 1, "Adagrad": 1}


class Pairs(TestCase):
    def setUp(self):
        super().setUp()
        self.tier = self.path("tier")
        os.mkdir(self.tier)

    def trained(self, config, *options, engine=None):
        """A run's digest and how many bytes are in its files, which `engine` must read."""
        forbids = {"preexec_fn": lambda: forbid_rings(errno.EPERM)} if engine == "threads" else {}
        done = self.runs("train", config, *options, "--summary", "summary.json", **forbids)
        if engine is not None:
            reads = "threads with pread and pwrite: io_uring is not there"
            said = next((line for line in done.stderr.splitlines() if reads in line), None)
            if engine == "io_uring" and said:
                self.skipTest(said)
            self.assertEqual(said is not None, engine == "threads", done.stderr)
        summary = self.json("summary.json")
        return summary["parameters_sha256"], summary["memory"]["certificate"]["disk"]["peak"]

    def row(self, choice, run):
        settings = {**MODEL, **pairs.settings_of(CHOICES, choice)}
        inside = self.config("inside.json", **{**settings, f"{SECTION}.device": "none", f"{PARAMETERS}.device": "none"})
        resumed = choice["resumed"] == "yes"
        saves = {"cyclic.checkpoint.folder": run, "cyclic.checkpoint.every": SAVED}
        outside = self.config("outside.json", **settings, **(saves if resumed else {}),
                              **{f"{SECTION}.device": "nvme", f"{SECTION}.nvme_path": self.tier,
                                 f"{PARAMETERS}.nvme_path": self.tier})
        wanted, none = self.trained(inside)
        self.assertEqual(none, 0)
        stages = {"all": 2, "half": 1}[choice["share"]]  # of each worker; they begin at multiples of 1 MiB, behind a head
        masters = 1 if choice["wire"] != "fp32" else 0
        there = 2 * (4096 + (stages - 1) * 2**20 + (STATES[choice["optimizer"]] + masters) * STATE)
        if choice["parameters"] == "files":
            size = 4 if choice["wire"] == "fp32" else 2
            images = [(size * values + 63) // 64 * 64 // 4096 + 1 for values in STAGES]  # whole pages with a trailer
            there += 4096 * sum(images) * (1 if choice["rule"] == "dp" else 2)
        self.assertEqual(self.trained(outside, engine=choice["engine"]), (wanted, there))
        if resumed:
            go_on = ("--resume", f"{run}/iteration-{SAVED:06}",
                     "--set", f"cyclic.checkpoint.folder={run}-again")
            self.assertEqual(self.trained(outside, *go_on, engine=choice["engine"]),
                             (wanted, there))
        self.assertEqual(os.listdir(self.tier), [])

    def rows(self, engine):
        rows = [choice for choice in pairs.covering(CHOICES, seed=SEED)
                if choice["engine"] == engine]
        if not os.environ.get("RINGZERO_TEST_FULL"):
            first = int(os.environ.get("RINGZERO_TEST_SEED", "0")) * ROWS_OF_DAY
            rows = [rows[(first + number) % len(rows)] for number in range(ROWS_OF_DAY)]
        for number, choice in enumerate(rows):
            with self.subTest(choice):
                self.row(choice, f"run-{number}")

    def test_bits_with_io_uring(self):
        self.rows("io_uring")

    def test_bits_with_threads(self):
        self.rows("threads")

    def test_every_pair_stands_in_some_row(self):
        rows = pairs.covering(CHOICES, seed=SEED)
        self.assertLessEqual(len(rows), 20)
        self.assertEqual(set().union(*map(pairs.pairs_of, rows)), pairs.all_pairs(CHOICES))


if __name__ == "__main__":
    unittest.main()
