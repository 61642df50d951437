#!/usr/bin/env python3
"""`ringzero config`: values with their origin, what is said of a file, and what the registry prints."""
import json
import os
import pathlib
import re
import unittest

from ringzero import ROOT, TINY, TestCase

DOCS = pathlib.Path(ROOT) / "docs"


class Config(TestCase):
    def file(self, config):
        return self.write("run.json", json.dumps(config, indent=1))

    def show(self, *arguments):
        return self.runs("config", *arguments)

    def test_every_value_has_its_origin(self):
        shown = self.show(self.config(), "--set", "seed=9").stdout
        self.assertIn('"seed": 9,  // user (--set)', shown)
        self.assertIn('"train_micro_batch_size_per_gpu": 8,  // user', shown)
        self.assertIn('"train_batch_size": 16,  // derived', shown)
        self.assertIn('"rule": "cdp_v2",  // user', shown)
        self.assertIn('"rule": "dp",  // default', self.show(self.config(**{"cyclic.rule": None})).stdout)

    def test_reads_back(self):
        config = dict(TINY, scheduler={"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}})
        first = self.show(self.file(config)).stdout
        self.assertIn('"warmup_max_lr": 0.05,  // auto', first)
        second = self.show(self.write("printed.json", first)).stdout
        origins = re.compile(r"  // .*")
        self.assertEqual(origins.sub("", first), origins.sub("", second))

    def test_a_file_of_deepspeeds_alone(self):
        done = self.show(self.file({"train_batch_size": 8, "fp16": {"enabled": True}, "prescale_gradients": True,
                                    "zero_optimization": {"stage": 2, "overlap_comm": True}}))
        self.assertIn("warning: ", done.stderr)
        self.assertIn("overlap_comm: does nothing here", done.stderr)
        self.assertIn("train refuses it", done.stderr)

    def test_all_errors_are_listed(self):
        done = self.run_program("config", self.file({"amp": {}, "trian_batch_size": 8, "fp16": {"enabled": 2}}))
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, "")
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 4, done.stderr)
        self.assertIn("amp: removed from DeepSpeed", lines[0])
        self.assertIn("train_batch_size", lines[1])
        self.assertIn("fp16.enabled: wanted true or false", lines[2])
        self.assertIn("refused, for 3 errors", lines[3])

    def test_the_environment_says_how_many_workers(self):
        environment = dict(os.environ, RANK="0", WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
        done = self.runs("config", self.file(dict(TINY, cyclic={})), env=environment)
        self.assertIn('"workers": 3,  // environment', done.stdout)

    def test_what_train_cannot_do_is_refused_by_name(self):
        config = self.file(dict(TINY, prescale_gradients=True))
        self.show(config)
        self.fails(self.run_program("train", config), 2, "prescale_gradients", "not built yet")
        config = self.file(dict(TINY, optimizer={"type": "AdamW", "params": {"lr": "auto"}}))
        self.show(config)
        self.fails(self.run_program("train", config), 2, "optimizer.params.lr", "--set")

    def test_all_that_train_refuses_is_one_list(self):
        config = self.file({"train_batch_size": 8, "prescale_gradients": True, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})
        lines = self.show(config).stderr.splitlines()
        first = next(number for number, line in enumerate(lines) if "train refuses it, for 5 reasons:" in line)
        for line, word in zip(lines[first + 1:], ("prescale_gradients", "optimizer.params.lr", "model: missing", "data: missing",
                                                  "iterations: missing"), strict=True):
            self.assertIn(word, line)
        self.assertFalse([line for line in lines[:first] if "prescale_gradients" in line or "auto" in line], "said twice")
        self.fails(self.run_program("train", config), 2, "prescale_gradients", "4 more: ringzero config lists them")
        self.assertNotIn("refuses", self.show(self.config()).stderr)

    def test_the_schema_is_json_and_the_markdown_is_the_committed_one(self):
        self.assertIn("cyclic", json.loads(self.show("--schema").stdout)["properties"])
        self.assertEqual(self.show("--markdown").stdout, (DOCS / "config_keys.md").read_text(encoding="utf-8"))


class Schedule(TestCase):
    def test_a_scheduler_changes_the_rates(self):
        losses = {}
        for name, scheduler in (("none", None), ("same", {"type": "WarmupLR", "params": {"warmup_min_lr": 0.05}}),
                                ("zero", {"type": "WarmupLR", "params": {"warmup_max_lr": 0}})):
            config = dict(TINY) if scheduler is None else dict(TINY, scheduler=scheduler)
            self.train(self.write("run.json", json.dumps(config)), "--dump-parameters", self.path(name))
            losses[name] = self.read(name)
        self.assertEqual(losses["none"], losses["same"])  # from 0.05 to the optimizer's 0.05
        self.assertNotEqual(losses["none"], losses["zero"])

    def test_a_decay_ends_with_the_run_whose_length_only_the_data_says(self):
        words = self.write("words.txt", "the quick brown fox jumps over the lazy dog\n" * 60)
        config = dict(TINY, model={"type": "gpt", "layers": 1, "dim": 8, "heads": 1, "seq": 16}, epochs=2, evaluation={"every": 0},
                      data={"type": "text", "path": words})
        del config["iterations"]

        def parameters(name, updates):
            decay = {"type": "WarmupDecayLR", "params": {"total_num_steps": updates, "warmup_num_steps": 2, "warmup_max_lr": 0.05}}
            made = self.train(self.write("run.json", json.dumps(dict(config, scheduler=decay))), "--dump-parameters", self.path(name))
            return made["iterations"], self.read(name)

        iterations, ends = parameters("ends", "auto")
        self.assertGreater(iterations, 4)
        self.assertEqual(ends, parameters("said", iterations)[1])
        self.assertNotEqual(ends, parameters("longer", 2 * iterations)[1])


if __name__ == "__main__":
    unittest.main()
