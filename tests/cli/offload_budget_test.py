#!/usr/bin/env python3
"""How many optimizer states go to NVMe under a budget of memory.

What a job takes of the host's memory depends on other jobs: those that map the same libraries share their pages. So nothing
else may run beside this test.
"""
import os
import unittest

from ringzero import TestCase

SECTION = "zero_optimization.offload_optimizer"
WIDE = {"model": {"type": "mlp", "hidden": [3072] * 4}, "cyclic.stages": 4, "iterations": 2, "zero_optimization.stage": 3,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "cyclic.offload.staging": "2MiB"}


class Budget(TestCase):
    def test_as_few_states_stream_as_the_budget_allows(self):
        tier = self.path("tier")
        os.mkdir(tier)
        inside = self.config("inside.json", **WIDE)

        def streams(**changes):
            return self.config(**{**WIDE, f"{SECTION}.device": "nvme", f"{SECTION}.nvme_path": tier, **changes})

        def under(budget, **changes):
            return streams(**changes, **{"cyclic.memory_budget.host": budget})

        def peak(config):
            text = self.runs("plan", config).stdout
            return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("peak "))

        most, least = peak(inside), peak(streams())
        of_one = 2 * 4 * 3072 * 3072  # the states of a matrix
        self.assertGreater(most - least, 2 * of_one)
        wanted, tiers = self.bits(inside), []
        for budget in (most + of_one, (most + least) // 2, least + of_one // 2):
            summary = self.train(under(budget))
            self.assertEqual(summary["parameters_sha256"], wanted)
            certificate = summary["memory"]["certificate"]
            self.assertLessEqual(certificate["host"]["peak"], budget)
            tiers.append(certificate["disk"].get("tier", 0))
        half = under((most + least) // 2)
        said = "go to NVMe, optimizer states through 2.0 MiB of memory of each worker"
        self.assertIn(said, self.runs("plan", half).stdout)
        self.assertNotIn(said, self.runs("plan", half, "--hosts", 2).stdout)  # others would launch it
        self.assertEqual(tiers[0], 0)
        self.assertTrue(0 < tiers[1] < tiers[2], tiers)
        # A share that the configuration gives stands, and a budget for none of them is refused.
        for budget, changes in ((least + of_one // 2, {f"{SECTION}.ratio": 0.1}), (least - 2 * of_one, {})):
            refused = self.run_program("train", under(budget, **changes))
            self.fails(refused, 2, "the run does not fit: host memory", "cyclic.memory_budget.host")


if __name__ == "__main__":
    unittest.main()
