#!/usr/bin/env python3
"""The JSON Schema, made by the build (RINGZERO_SCHEMA names it), judges as the program does: examples, samples, DeepSpeed's
own verdicts.

Skipped without the package jsonschema; the samples without their folder (RINGZERO_DEEPSPEED_CONFIGS names another).
"""
import csv
import json
import os
import pathlib
import re
import unittest

try:
    import jsonschema
except ImportError:
    jsonschema = None

ROOT = pathlib.Path(__file__).resolve().parents[3]
SAMPLES = pathlib.Path(os.environ.get("RINGZERO_DEEPSPEED_CONFIGS", ROOT.parent / "shared" / "deepspeed_configs"))
SCHEMA = json.loads(pathlib.Path(os.environ["RINGZERO_SCHEMA"]).read_text())


def without_comments(text):
    return re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*|#[^\n]*|/\*.*?\*/', lambda m: m.group(1) or "", text, flags=re.DOTALL)


@unittest.skipIf(jsonschema is None, "the Python package jsonschema is not installed")
class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        cls.validator = jsonschema.Draft202012Validator(SCHEMA)

    def problems(self, config):
        return [f"{'.'.join(map(str, e.absolute_path))}: {e.message[:120]}" for e in self.validator.iter_errors(config)]

    def test_examples_are_valid(self):
        files = sorted((ROOT / "examples").glob("*.json"))
        self.assertTrue(files)
        for file in files:
            with self.subTest(file.name):
                self.assertEqual(self.problems(json.loads(without_comments(file.read_text()))), [])

    def test_what_is_printed_is_valid(self):
        for file in sorted((ROOT / "tests/zero/golden").glob("resolved_*.json")):
            with self.subTest(file.name):
                self.assertEqual(self.problems(json.loads(without_comments(file.read_text()))), [])

    def test_small_configurations(self):
        for line in (ROOT / "tests/zero/data/verdicts.jsonl").read_text().splitlines():
            case = json.loads(line)
            with self.subTest(line):
                valid = self.problems(case["config"]) == []
                if case["deepspeed"] is None and "ours" not in case:
                    self.assertTrue(valid, self.problems(case["config"]))
                elif case.get("ours") == "unknown":
                    self.assertFalse(valid)

    def test_lists_that_must_hold_something(self):
        data = {"type": "random", "input": []}
        for config in ({"cyclic": {"boundaries": []}}, {"data": data}):
            self.assertNotEqual(self.problems(config), [], config)
        self.assertEqual(self.problems({"cyclic": {"boundaries": [0]}, "data": {**data, "input": [8]}}), [])

    def test_samples(self):
        if not (SAMPLES / "index.tsv").exists():
            self.skipTest(f"{SAMPLES} is not there")
        with open(SAMPLES / "index.tsv", newline="") as index:
            rows = list(csv.DictReader(index, delimiter="\t"))
        for row in rows:
            with self.subTest(row["file"]):
                try:
                    config = json.loads(without_comments((SAMPLES / row["file"]).read_text()))
                except json.JSONDecodeError:
                    self.assertIn("HJSON only", row["special"])
                    continue
                problems = self.problems(config)
                self.assertEqual(problems != [], row["verdict"] == "reject", problems)


if __name__ == "__main__":
    unittest.main()
