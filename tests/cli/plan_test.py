#!/usr/bin/env python3
"""What `ringzero plan` says: schedule and blocks; of time, from FLOPs, from a profile, and a profile that makes the plan; and the
fit certificate, which `train` refuses by and the summary keeps.
"""
import json
import os
import re
import unittest
import xml.etree.ElementTree

from ringzero import TestCase

SMALL = {"cyclic.workers": 3, "iterations": 6, "model.hidden": [24, 24, 24, 16]}
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
    def test_plan(self):
        done = self.runs("plan", self.config(), "--grid", "--program", 1, "--svg", "plan.svg")
        self.assertIn("F0", done.stdout)
        self.assertIn("cdp_v2", done.stdout)
        self.assertIn("<svg", self.text("plan.svg"))
        self.fails(self.run_program("plan", self.config(), "--program", 2), 2, "--program")

    def test_blocks_add_up_to_the_forecast(self):
        blocks, told = {}, {}
        for worker in range(2):
            text = self.runs("plan", self.config(), "--blocks", worker).stdout
            head, table = text.split(f"\nblocks of worker {worker}\n")
            for line in table.splitlines()[1:-1]:
                _, bytes_, category = line.split()[:3]
                blocks[category] = blocks.get(category, 0) + int(bytes_)
            told = {name: int(host) for name, host in re.findall(r"(?m)^(masters|versions|moments|sums) +(\d+) ", head)}
        self.assertEqual(sorted(told), ["masters", "moments", "sums", "versions"])
        self.assertGreater(blocks.pop("pools"), 0)  # messages, which the forecast does not count
        self.assertEqual(blocks, told)
        self.fails(self.run_program("plan", self.config(), "--blocks", 2), 2, "--blocks", "below 2", "found 2")


class PlanTimes(TestCase):
    def plan(self, *options):
        return self.runs("plan", *options).stdout

    def profile(self):
        return self.json("profile.json")

    def change(self, **values):
        self.write("profile.json", json.dumps({**self.profile(), **values}))

    def step(self, text):
        return float(re.search(r"^step +([0-9.e+-]+) ms", text, re.MULTILINE).group(1))

    def test_without_a_profile_flops_and_bytes_tell(self):
        text = self.plan(self.config(**SMALL))
        self.assertRegex(text, r"times +from FLOPs at [0-9.]+ GFLOP/s and bytes at [0-9.]+ GB/s")
        self.assertGreater(self.step(text), 0)
        for channel in ("forward", "backward", "sum", "retire"):
            self.assertRegex(text, rf"(?m)^{channel} .*/s$")

    def test_what_is_lent_takes_no_slots_and_what_is_received_gets_advice(self):
        config = self.config(**{"cyclic.workers": 8, "cyclic.stages": 8, "cyclic.rule": "dp", "iterations": 4,
                                "gradient_accumulation_steps": 2, "model.hidden": [24] * 15})
        window = lambda text: int(re.search(r"^window +W = (\d+)", text, re.MULTILINE).group(1))
        advice = r"^window +2: with a core for each worker a step takes ([0-9.]+) of its computing; with cyclic.window=(\d+) it " \
                 r"takes ([0-9.]+), and up to \S+ \S+ more memory for messages per worker$"
        lent = self.plan(config, "--set", "cyclic.transport=shm")
        self.assertEqual(window(lent), 2)
        self.assertEqual(window(self.plan(config)), 2, "auto on one host")
        self.assertNotRegex(lent, "(?m)" + advice)
        # Where all workers have all parameters their sums are not lent, but slots hold no bytes.
        free = self.plan(config, "--set", "cyclic.transport=shm", "--set", "zero_optimization.stage=0")
        self.assertGreater(window(free), 2)
        received = ("--set", "cyclic.transport=ucx")
        self.assertNotRegex(self.plan(config, *received), "(?m)" + advice, "laps of dp end at owners")
        cyclic = self.config(**{"cyclic.workers": 16, "cyclic.stages": 16, "cyclic.rule": "cdp_v1", "iterations": 4,
                                "gradient_accumulation_steps": 2, "model.hidden": [24] * 15})
        self.assertNotRegex(self.plan(cyclic, "--hosts", "2"), "(?m)" + advice, "within a host they lend")
        for options in (received, ("--hosts", "16")):
            text = self.plan(cyclic, *options)
            self.assertEqual(window(text), 2)
            now, larger, then = re.search(advice, text, re.MULTILINE).groups()
            self.assertGreater(int(larger), 2)
            self.assertGreater(float(now), 1.01 * float(then))
        given = self.plan(config, "--set", "cyclic.window=2")
        self.assertEqual(window(given), 2)

    def test_a_profile_is_measured_once_and_kept(self):
        config = self.config(**SMALL)
        first = self.plan(config, "--profile", "profile.json")
        self.assertRegex(first, r"times +from a profile of [12] workers? at a time \(profile.json\)")
        profile = self.profile()
        self.assertFalse(profile["frozen"])
        self.assertEqual(profile["micro_batch"], 8)
        self.assertTrue(all(layer["nanoseconds"]["forward"] > 0 for layer in profile["layers"]))
        self.assertTrue(any(layer["nanoseconds"]["update"] > 0 for layer in profile["layers"]))
        # Ten times slower layers, a step ten times as long: the file is what is read now.
        step = self.step(first)
        slower = {"forward": 10**8, "backward": 10**8, "add": 0, "update": 0}
        self.change(lap_nanoseconds=0, message_nanoseconds=0,
                    layers=[{**layer, "nanoseconds": slower} for layer in profile["layers"]])
        slow = self.step(self.plan(config, "--profile", "profile.json", "--set", "cyclic.rule=cdp_v1"))
        # One worker's computing, or what three have to share.
        self.assertGreaterEqual(slow * 1.01, 200 * len(profile["layers"]))
        self.assertGreater(slow, step)

    def test_a_frozen_profile_makes_the_plan_and_its_bits(self):
        config = self.config(**SMALL)
        self.plan(config, "--profile", "profile.json")
        layers = self.profile()["layers"]
        for layer in layers:
            layer["nanoseconds"].update(forward=1, backward=1)
        layers[-1]["nanoseconds"]["forward"] = 10**6
        self.change(layers=layers)
        self.fails(self.run_program("plan", config, "--set", "cyclic.profile=profile.json"), 2, "is not frozen")
        frozen = self.plan(config, "--profile", "profile.json", "--freeze", "--text", "frozen.txt")
        self.assertTrue(self.profile()["frozen"])
        counted = self.plan(config, "--text", "counted.txt")
        again = self.plan(config, "--set", "cyclic.profile=profile.json", "--text", "again.txt")
        # The certificate, too, is of the plan that the file makes.
        lines = [re.findall(r"(?m)^(?:masters|gradients) .*$", text) for text in (frozen, again, counted)]
        self.assertEqual(lines[0], lines[1])
        self.assertNotEqual(lines[0], lines[2])
        self.assertIn("from a profile of", again)
        self.assertEqual(self.step(again), self.step(frozen))
        texts = {name: self.text(f"{name}.txt") for name in ("frozen", "counted", "again")}
        self.assertEqual(texts["again"], texts["frozen"])
        self.assertNotEqual(texts["counted"], texts["frozen"])
        first = self.train(config, "--set", "cyclic.profile=profile.json")
        second = self.train(config, "--set", "cyclic.profile=profile.json")
        self.assertEqual(first["parameters_sha256"], second["parameters_sha256"])

    def test_rule_auto_goes_by_links_and_a_frozen_profile(self):
        """Slow links between two hosts give the studied rule, by counted costs and by a frozen profile."""
        config = self.config(**{"cyclic": {"workers": 2, "rule": "auto"}})
        auto = ("--efficiency", self.studied("mlp", "SGD", batch=16), "--hosts", "2",
                "--set", "cyclic.links.latency=0.02", "--text", "plan.txt")
        counted = self.plan(config, *auto)
        self.assertIn("rule auto: cdp_v1", counted)
        self.assertIn("from counted costs at", counted)
        self.assertIn("links between hosts of 20 ms (cyclic.links) and 3 GB/s (assumed)", counted)
        self.assertIn("rule cdp_v1", self.text("plan.txt"))
        self.assertGreater(self.step(counted), 20, "the prediction's links are these, too")
        frozen = self.plan(config, *auto, "--profile", "profile.json", "--freeze")
        self.assertIn("from a frozen profile, ", frozen)
        self.assertIn("rule auto: cdp_v1", frozen)

    def test_a_profile_that_does_not_fit_is_refused_and_kept(self):
        config = self.config(**SMALL)
        self.plan(config, "--profile", "profile.json")
        profile = self.profile()
        for change, words in ((dict(micro_batch=5), "wanted micro-batches of 8, found 5"),
                              (dict(threads=7), "wanted threads 1, found 7"),
                              (dict(layers=profile["layers"][1:]), "wanted layers"),
                              (dict(lap_nanoseconds=-1), '"lap_nanoseconds": wanted a whole number'),
                              (dict(frozen=1), '"frozen": wanted true or false'),
                              (dict(format="x"), "ringzero cost profile 2")):
            self.change(**{**profile, **change})
            before = self.profile()
            for freeze in ([], ["--freeze"]):
                done = self.fails(self.run_program("plan", config, "--profile", "profile.json", *freeze), 2, words)
                self.assertIn("profile.json", done.stderr)
                self.assertEqual(self.profile(), before)
        self.fails(self.run_program("train", config, "--set", "cyclic.profile=none.json"), 2, "cyclic.profile")
        self.fails(self.run_program("plan", config, "--freeze"), 2, "--freeze: wanted --profile FILE")

    def test_the_figure_has_schedule_traffic_and_memory(self):
        self.plan(self.config(**SMALL), "--svg", "plan.svg")
        text = "".join(xml.etree.ElementTree.parse(self.path("plan.svg")).getroot().itertext())
        for words in ("iteration 0", "sent, bytes per second", "activations of all workers"):
            self.assertIn(words, text)


class Certificate(TestCase):
    def printed(self, *words, **changes):
        return self.runs("plan", self.config(**changes), *words).stdout

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


class Fit(TestCase):
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
