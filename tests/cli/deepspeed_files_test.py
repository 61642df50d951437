#!/usr/bin/env python3
"""DeepSpeed users' files that offload: each trains, or is refused by key with a reason.

tests/zero/config/deepspeed_test.cc has the verdict of every file by its keys; here the program runs
those that have offload_optimizer or offload_param. Skipped without their folder
(RINGZERO_DEEPSPEED_CONFIGS names another).
"""
import csv
import json
import os
import pathlib
import re
import unittest

from ringzero import ROOT, TestCase

NEXT = pathlib.Path(ROOT).parent / "shared" / "deepspeed_configs"
SAMPLES = pathlib.Path(os.environ.get("RINGZERO_DEEPSPEED_CONFIGS", NEXT))
SECTION = "zero_optimization.offload_optimizer"

# What such a file leaves to the one who trains. The least that streams is 65,536 values.
RUN = {"model.type": "mlp", "model.hidden": [256, 256], "data.type": "random",
       "data.samples": 256, "data.input": [1, 6, 6], "data.classes": 5, "cyclic.workers": 2,
       "iterations": 2}
# By key, where a refusal asks for a value; "optimizer" is a whole section.
ANSWERS = {"optimizer.params.lr": 0.01, "optimizer.params.betas": [0.9, 0.95],
           "optimizer.params.eps": 1e-8, "optimizer.params.weight_decay": 0.1,
           "scheduler.params.warmup_num_steps": 2, "train_batch_size": 16,
           "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1,
           "gradient_clipping": 1}
OPTIMIZER = {"optimizer.type": "AdamW", "optimizer.params.lr": 0.01}
# What a refusal says after its key, if something can be done.
AUTO = '"auto" has no value here; a run needs --set '
NO_BATCH = "give train_batch_size or train_micro_batch_size_per_gpu: no batch size is there"
ONLY = re.compile(r"\S+ is (?:not built yet|outside of this engine), only (\w+)")
MOVED = re.compile(r"removed from DeepSpeed; use ([\w.]+)")
MORE = re.compile(r" \(and \d+ more: ringzero config lists them\)$")


def rows():
    with open(SAMPLES / "index.tsv", newline="", encoding="utf-8") as index:
        every = list(csv.DictReader(index, delimiter="\t"))
    return [row for row in every
            if "offload_optimizer" in text_of(row) or "offload_param" in text_of(row)]


def settings(given):
    return [word for path, what in given.items()
            for word in ("--set", f"{path}={what if isinstance(what, str) else json.dumps(what)}")]


def text_of(row):
    return (SAMPLES / row["file"]).read_text(encoding="utf-8")


@unittest.skipUnless((SAMPLES / "index.tsv").exists(), f"{SAMPLES} is not there")
class FilesThatOffload(TestCase):
    def refusal(self, done, file):
        """Its key and why; the line that it names has the key."""
        self.fails(done, 2)
        line = next(line for line in done.stderr.splitlines() if "error:" in line)
        found = re.fullmatch(rf"ringzero: error: {re.escape(file)}(?::(\d+))?: (.+)",
                             MORE.sub("", line))
        self.assertIsNotNone(found, line)
        if found[2] == NO_BATCH:
            return "train_micro_batch_size_per_gpu", NO_BATCH
        key, parted, why = found[2].partition(": ")
        self.assertTrue(parted and why and re.fullmatch(r"[\w.]+", key), line)
        if found[1]:
            there = pathlib.Path(file).read_text(encoding="utf-8").splitlines()[int(found[1]) - 1]
            self.assertIn(f'"{key.rpartition(".")[2]}"', there)
        return key, why

    def remedy(self, key, why, file):
        """What the refusal says that can be done, by path. None: nothing."""
        if key == "optimizer" and why.startswith("missing section"):
            return OPTIMIZER
        if why == NO_BATCH or why.startswith(AUTO):
            return {key: ANSWERS[key]}
        if only := ONLY.match(why):
            return {key: only[1]}
        if moved := MOVED.fullmatch(why):
            old, new = (path.rpartition(".")[2] for path in (key, moved[1]))
            text = pathlib.Path(file).read_text(encoding="utf-8")
            self.assertEqual(text.count(f'"{old}"'), 1)
            self.write(file, text.replace(f'"{old}"', f'"{new}"'))
            return {}
        return None

    def train_as_told(self, file, given):
        """Does what each refusal says until it trains: the last run, its settings, all refusals."""
        given, refusals = {**RUN, **given}, []
        while True:
            done = self.run_program("train", file, *settings(given), "--summary", "summary.json")
            if done.returncode == 0:
                return done, given, refusals
            refusals.append(self.refusal(done, file))
            self.assertEqual(len(set(refusals)), len(refusals), "the same again, though obeyed")
            remedy = self.remedy(*refusals[-1], file)
            if remedy is None:
                return done, given, refusals
            given.update(remedy)

    def check_streamed(self, file, given):
        """The run that has ended had states in `nvme_path`, and the bits of one in memory."""
        summary = self.json("summary.json")
        self.assertEqual(summary["memory"]["certificate"]["disk"]["tier"], 4096 + 2 * 4 * 256 * 256)
        inside = {**given, f"{SECTION}.device": "none"}
        self.assertEqual(self.bits(file, *settings(inside)), summary["parameters_sha256"])

    def test_each_trains_or_is_refused_by_key(self):
        tier = self.path("tier")
        os.mkdir(tier)
        streamed = []
        self.assertTrue(rows())
        for row in rows():
            with self.subTest(row["file"]):
                file = self.write(row["file"], text_of(row))
                given = {f"{SECTION}.nvme_path": tier} if '"nvme"' in text_of(row) else {}
                done, given, refusals = self.train_as_told(file, given)
                if row["verdict"] == "reject":
                    self.assertTrue(refusals)
                else:
                    self.assertEqual(done.returncode, 0, refusals)
                if done.returncode == 0 and f"{SECTION}.nvme_path" in given:
                    self.check_streamed(file, given)
                    streamed.append(file)
        self.assertTrue(streamed, "no file put states on NVMe")
        self.assertEqual(os.listdir(tier), [])


if __name__ == "__main__":
    unittest.main()
