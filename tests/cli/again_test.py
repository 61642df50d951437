#!/usr/bin/env python3
"""What a run writes down of itself, and `train --again`, for somebody who wants the same result once more."""
import json
import os
import unittest

from ringzero import TestCase, inject

SECRETS = {"RINGZERO_JOB_SECRET": "sesame-1", "UCX_TOKEN": "sesame-2", "WANDB_API_KEY": "sesame-3"}


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.partition(": ")[2].strip() for line in file if line.startswith("model name")), "unknown")


class Again(TestCase):
    def again(self, *options):
        """The summary of the run, its comparison with the run before, and what it printed."""
        done = self.runs("train", "--again", "run", "--summary", "again.json", *options)
        summary = self.json("again.json")
        return summary, summary["again"], done.stdout

    def test_a_folder_and_a_summary_say_what_was_run(self):
        command = ["train", self.config(), "--set", "seed=11", "--metrics", "run", "--summary", "summary.json"]
        environment = dict(os.environ, UCX_LOG_LEVEL="warn", HOME_TOWN="Delft", **SECRETS)
        self.runs(*command, env=environment)
        summary = self.json("summary.json")
        self.assertEqual(self.json("run/summary.json"), summary)
        ran = summary["provenance"]
        self.assertEqual(ran["command"][1:], command)
        self.assertEqual(ran["working_folder"], os.path.realpath(self.folder))
        self.assertEqual(ran["launcher"], "ringzero")
        self.assertRegex(ran["started"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertRegex(ran["versions"]["libtorch"], r"^\d+\.\d+\.\d+")
        self.assertEqual(set(ran["versions"]), {"ringzero", "commit", "libtorch", "ucx", "compiler"})
        self.assertEqual(ran["environment"]["UCX_LOG_LEVEL"], "warn")
        self.assertNotIn("HOME_TOWN", ran["environment"])
        self.assertEqual((ran["configuration"]["seed"], ran["configuration"]["cyclic"]["rule"]), (11, "cdp_v2"))
        self.assertEqual(ran["configuration"]["train_batch_size"], 16, "derived")
        [place] = ran["places"]
        self.assertEqual((place["host"], place["processor"]), (os.uname().nodename, processor()))
        self.assertEqual((place["cores"], place["transport"], place["workers"]),
                         (len(os.sched_getaffinity(0)), "shm", [0, 1]))
        begun = self.json("run/provenance.json")["provenance"]
        self.assertEqual(begun["configuration"], ran["configuration"])
        self.check_no_secret()

    def check_no_secret(self):
        for name, contents in self.contents().items():
            self.assertNotIn(b"sesame", contents, name)

    def test_a_run_made_again_has_the_same_result(self):
        self.train(self.config(), "--dump-parameters", "start.safetensors")
        first = self.train(self.config("run.json", seed=5), "--init", "start.safetensors", "--set", "cyclic.rule=dp",
                           "--metrics", "run")
        os.remove(self.path("run.json"))
        summary, comparison, printed = self.again()
        self.assertEqual(summary["parameters_sha256"], first["parameters_sha256"])
        self.assertEqual(comparison, {"folder": "run", "same_parameters": True, "differs": []})
        self.assertIn("same result as that of run", printed)

    def test_another_result_names_what_differs(self):
        self.train(self.config(), "--metrics", "run")
        before = self.json("run/summary.json")
        before["parameters_sha256"] = "0" * 64
        before["provenance"]["places"][0]["processor"] = "Z80"
        self.write("run/summary.json", json.dumps(before))
        hidden = before["provenance"]["configuration"]["model"]["hidden"]
        _, comparison, printed = self.again("--set", "seed=4", "--set", f"model.hidden={[*hidden, 24]}")
        self.assertIs(comparison["same_parameters"], False)
        lines = [f'processor: "Z80" there, "{processor()}" here', "configuration/seed: 3 there, 4 here",
                 "configuration/model/hidden/-: nothing there, 24 here"]
        self.assertEqual(set(comparison["differs"]), set(lines))
        self.assertIn(f"another result than that of run: there parameters sha256 {'0' * 64}\n", printed)
        for line in lines:
            self.assertIn(f"  differs: {line}\n", printed)

    def test_a_run_that_did_not_end_is_made_again(self):
        config = self.config()
        done = self.run_program("train", config, "--metrics", "run", *inject("kill", at="lap", worker=1, number=4))
        self.fails(done, 3, "worker 1 was killed")
        _, comparison, printed = self.again("--set", "cyclic.inject.number=1000")  # a lap that never comes
        self.assertIsNone(comparison["same_parameters"])
        self.assertIn("nothing to compare with run: that run has no parameters sha256", printed)

    def test_what_is_no_run(self):
        self.fails(self.run_program("train", "--again", "nowhere"), 2, "nowhere/config.json", "No such file")
        self.train(self.config(), "--metrics", "run")
        self.fails(self.run_program("train", "--again", "run", self.config()), 2, "--again run", "leave out")
        self.fails(self.run_program("train", "--again", "run", "--summary", "run/summary.json"), 2, "--again", "replace")
        for text in ("{", "[]", '{"provenance": {"places": 3}}'):
            self.write("run/summary.json", text)
            self.fails(self.run_program("train", "--again", "run"), 2, "run/summary.json: wanted what a run with --metrics")


if __name__ == "__main__":
    unittest.main()
