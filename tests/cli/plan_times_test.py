#!/usr/bin/env python3
"""What `ringzero plan` says of time: from FLOPs, from a profile, and a profile that makes the plan."""
import json
import re
import unittest
import xml.etree.ElementTree

from ringzero import TestCase

SMALL = {"cyclic.workers": 3, "iterations": 6, "model.hidden": [24, 24, 24, 16]}


class PlanTimes(TestCase):
    def plan(self, *options):
        done = self.runs("plan", *options)
        return done.stdout

    def profile(self):
        return self.json("profile.json")

    def change(self, **values):
        changed = {**self.profile(), **values}
        with open(self.path("profile.json"), "w", encoding="utf-8") as file:
            json.dump(changed, file)

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
        for options in (received, ("--hosts", "2")):
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
        texts = {}
        for name in ("frozen", "counted", "again"):
            texts[name] = self.text(f"{name}.txt")
        self.assertEqual(texts["again"], texts["frozen"])
        self.assertNotEqual(texts["counted"], texts["frozen"])
        first = self.train(config, "--set", "cyclic.profile=profile.json")
        second = self.train(config, "--set", "cyclic.profile=profile.json")
        self.assertEqual(first["parameters_sha256"], second["parameters_sha256"])

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


if __name__ == "__main__":
    unittest.main()
