#!/usr/bin/env python3
"""The fit certificate: what `plan` prints, what `train` refuses, and what the summary keeps of it."""
import os
import re
import unittest

from ringzero import TestCase

CATEGORIES = ["masters", "versions", "moments", "sums", "taken", "gradients", "statistics", "activations", "pools", "rounding", "process",
              "process, once"]
REFUSED = ("ringzero: error: {config}: the run does not fit: host memory: wanted AMOUNT, found AMOUNT "
           "(cyclic.memory_budget.host); most of it is process, once, AMOUNT; what would help: fewer workers on the host\n")


def rows(plan):
    """(name, host, device, disk) of the printed certificate."""
    table = re.search(r"^fit certificate +host +MiB +device +MiB +disk +MiB.*\n((?:.+\n)*?)budget +", plan, re.MULTILINE)
    found = [re.match(r"(\S.*?) +(-?\d+) +-?[\d.]+ +(-?\d+) +-?[\d.]+ +(-?\d+)", line).groups() for line in table[1].splitlines()]
    return {name: tuple(int(value) for value in values) for name, *values in found}


class Plan(TestCase):
    def printed(self, *words, **changes):
        done = self.runs("plan", self.config(**changes), *words)
        return done.stdout

    def test_every_category_in_three_places(self):
        text = self.printed(gradient_clipping=1)  # so that owners take sums
        table = rows(text)
        self.assertEqual(list(table), [*CATEGORIES, "never together", "peak"])
        for name, (host, device, disk) in table.items():
            self.assertEqual((device, disk), (0, 0), name)
            if name in CATEGORIES and name not in ("statistics", "moments", "rounding"):
                self.assertGreater(host, 0, name)
        self.assertEqual(table["peak"][0], sum(host for name, (host, _, _) in table.items() if name != "peak"))
        forecast = dict(re.findall(r"^(\w+) +(\d+) +[\d.]+$", text, re.MULTILINE))
        for name in CATEGORIES[:5]:
            self.assertEqual(table[name][0], int(forecast[name]), name)

    def test_what_is_counted_is_the_same_every_time(self):
        one, two = rows(self.printed()), rows(self.printed())
        for name in CATEGORIES[:-2]:
            self.assertEqual(one[name], two[name], name)

    def test_activations_follow_the_micro_batch(self):
        small, large = (rows(self.printed(train_micro_batch_size_per_gpu=size))["activations"][0] for size in (8, 64))
        self.assertGreater(large, 2 * small)

    def test_budget(self):
        text = self.printed(**{"cyclic.memory_budget": {"host": "1.5KiB", "disk": 7}})
        self.assertRegex(text, r"(?m)^budget +1536 +0\.0 +unknown +- +7 +0\.0$")
        self.assertIn("budget of the host: cyclic.memory_budget.host\n", text)
        self.assertIn("warning: the run does not fit: host memory: wanted ", text)
        self.assertNotIn("does not fit", self.printed())

    def test_received_copies_are_in_the_pools(self):
        shm, hosts = rows(self.printed()), rows(self.printed("--hosts", "2", **{"cyclic.transport": "auto"}))
        self.assertGreater(hosts["process"][0], 0)
        self.assertLess(hosts["masters"][0], shm["masters"][0], "one of two hosts")


class Train(TestCase):
    def test_refuses_what_does_not_fit(self):
        config = self.config(**{"cyclic.memory_budget.host": "1MiB"})
        summary, dump = self.path("summary.json"), self.path("dump.safetensors")
        done = self.run_program("train", config, "--summary", summary, "--dump-parameters", dump)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        last = done.stderr.splitlines(keepends=True)[-1]
        self.assertEqual(re.sub(r"[\d.]+ [MG]iB \(\d+ bytes\)", "AMOUNT", last), REFUSED.format(config=config))
        self.assertFalse(os.path.exists(summary) or os.path.exists(dump))

    def test_summary_has_the_certificate(self):
        memory = self.train(self.config(**{"cyclic.memory_budget.host": "900GiB"}))["memory"]
        host = memory["certificate"]["host"]
        self.assertEqual(list(host), [*CATEGORIES, "peak", "budget"])
        self.assertEqual(host["budget"], 900 << 30)
        for name in CATEGORIES[:5]:
            self.assertEqual(host[name], memory["forecast"][name], name)
            self.assertLessEqual(memory["allocated"][name], host[name], name)
        self.assertEqual(memory["certificate"]["device"], {"peak": 0, "budget": None})

    def test_bad_budgets(self):
        for value in ("much", "12GB", "-1GiB", "GiB", 0, -5, 1.5, True, "99999999999TiB"):
            with self.subTest(value=value):
                self.fails(self.run_program("train", self.config(**{"cyclic.memory_budget.host": value})), 2,
                           "cyclic.memory_budget.host", "wanted")
        self.fails(self.run_program("train", self.config(**{"cyclic.memory_budget.hots": 1})), 2, "cyclic.memory_budget.host")


if __name__ == "__main__":
    unittest.main()
