#!/usr/bin/env python3
"""Checkpoints as a user sees them: where they are, what --resume takes, says and refuses."""
import json
import os
import resource
import shutil
import signal
import struct
import unittest

from ringzero import KILL, TERM, TestCase, inject, limited, send

USR2 = signal.SIGUSR2
SAVING = {"cyclic.checkpoint.folder": "run", "cyclic.checkpoint.every": 4}
AGAIN = "run/iteration-000008"


def tensors(path):
    """The header of a safetensors file, and its values: fp32 by name."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        values = file.read()
    header.pop("__metadata__")
    return {name: struct.unpack(f"<{(end - begin) // 4}f", values[begin:end]) for name, entry in header.items()
            for begin, end in [entry["data_offsets"]] if entry["dtype"] == "F32"}


class Checkpoints(TestCase):
    def saved(self, **changes):
        """The digest of a run that has saved all its versions."""
        config = self.config(**{**SAVING, "cyclic.checkpoint.keep": 0, **changes})
        return config, self.bits(config)

    def resumed(self, config, *options, path=AGAIN):
        return self.bits(config, "--resume", path, "--set", "cyclic.checkpoint.folder=other", *options)

    def notes(self, config, *options):
        return self.runs("train", config, *options).stderr

    def test_a_folder_that_a_tool_can_read(self):
        config = self.config(**SAVING)
        self.runs("train", config, "--dump-parameters", "end.safetensors")
        self.assertEqual(sorted(os.listdir(self.path("run"))), ["iteration-000008", "iteration-000012", "latest", "lock"])
        self.assertEqual(self.text("run/latest"), "iteration-000012\n")
        index = self.json("run/iteration-000012/model.safetensors.index.json")["weight_map"]
        wanted = tensors(self.path("end.safetensors"))
        self.assertEqual(set(index), set(wanted))
        for name, file in index.items():
            self.assertEqual(tensors(self.path(f"run/iteration-000012/{file}"))[name], wanted[name], name)
        momentum = tensors(self.path("run/iteration-000012/optimizer-00001-of-00002.safetensors"))
        self.assertEqual({name.rpartition(".")[2] for name in momentum}, {"momentum_buffer"})
        state = self.json("run/iteration-000012/state.json")
        self.assertEqual((state["version"], state["rule"], state["workers"], state["micro_batches"]), (12, "cdp_v2", 2, 2))
        self.assertEqual(set(state["files"]) | {"state.json", "model.safetensors.index.json"},
                         set(os.listdir(self.path("run/iteration-000012"))))

    def test_dp_goes_on_with_any_number_of_workers(self):
        config, wanted = self.saved(**{"cyclic.rule": "dp", "cyclic.workers": 4, "train_micro_batch_size_per_gpu": 4,
                                       "gradient_accumulation_steps": 2})
        for workers, laps in ((1, 8), (2, 4), (4, 2), (8, 1)):
            options = ["--workers", workers, "--set", f"gradient_accumulation_steps={laps}"]
            self.assertEqual(self.resumed(config, *options), wanted, workers)
        for sets in (["zero_optimization.stage=1"], ["cyclic.stages=3"], ["cyclic.transport=local"]):
            self.assertEqual(self.resumed(config, *[word for one in sets for word in ("--set", one)]), wanted, sets)

    def test_the_whole_job_dies_and_goes_on(self):
        config, wanted = self.saved()
        shutil.rmtree(self.path("run"))
        process = self.start("train", config, "--set", "steps_per_print=1")
        self.wait_for_line(process, "iteration 9/")
        send(process.pid, KILL)
        process.wait()
        # Its workers hold the lock until they have missed it.
        self.wait_until(lambda: "another run writes" not in self.run_program("train", config).stderr, 10, "the lock is free")
        self.assertIn("goes on from run/iteration-0000", self.notes(config, "--resume", "--summary", "s.json"))
        self.assertEqual(self.json("s.json")["parameters_sha256"], wanted)

    def test_an_end_that_was_reached_is_told_once_more(self):
        config, wanted = self.saved(**{"evaluation.every": 5})
        done = self.runs("train", config, "--resume", "--summary", "s.json")
        self.assertIn("after iteration 12", done.stderr)
        self.assertEqual(self.json("s.json")["parameters_sha256"], wanted)
        self.assertEqual([each["iteration"] for each in self.json("s.json")["evaluations"]], [12])

    def test_what_is_damaged_is_named_and_the_one_before_is_taken(self):
        config, wanted = self.saved()
        with open(self.path("run/iteration-000012/model-00002-of-00002.safetensors"), "r+b") as file:
            file.seek(-3, os.SEEK_END)
            file.write(b"x")
        notes = self.notes(config, "--resume", "--summary", "s.json")
        self.assertIn("model-00002-of-00002.safetensors: damaged: checksum of its values", notes)
        self.assertIn("goes on from run/iteration-000008", notes)
        self.assertEqual(self.json("s.json")["parameters_sha256"], wanted)
        self.fails(self.run_program("train", config, "--resume", "run/iteration-000004/none"), 2, "none/state.json")

    def test_without_resume_nothing_is_overwritten(self):
        config, _ = self.saved()
        self.fails(self.run_program("train", config), 2, "cyclic.checkpoint.folder: run has checkpoints", "--resume")

    def test_two_jobs_do_not_write_to_one_folder(self):
        config = self.config(**SAVING, **{"iterations": 100000, "cyclic.checkpoint.at_end": False})
        process = self.start("train", config)
        self.wait_for_line(process)
        for options in ([], ["--resume"]):
            self.fails(self.run_program("train", config, *options), 2, "another run writes its checkpoints here",
                       f"process {process.pid} on {os.uname().nodename}")

    def test_another_run_is_refused_by_what_differs(self):
        config, _ = self.saved()
        for setting, *words in (("gradient_accumulation_steps=2", "micro-batches: 2, this one has 4", "--new-batch"),
                                ("train_micro_batch_size_per_gpu=4", "train_batch_size 16, this one has 8", "--new-batch"),
                                ("optimizer.type=Muon", "optimizer.type SGD, this one has Muon", "--init"),
                                ("bf16.enabled=true", "the computing type fp32, this one has bf16", "--init"),
                                ("iterations=6", "8 iterations behind it, the run has 6")):
            done = self.run_program("train", config, "--resume", AGAIN, "--set", setting, "--set",
                                    "cyclic.checkpoint.folder=other")
            self.fails(done, 2, AGAIN, *words)
        self.fails(self.run_program("train", self.config("bare.json"), "--resume"), 2, "cyclic.checkpoint.folder")

    def test_what_changes_bits_is_said(self):
        config, wanted = self.saved()
        options = ["--resume", AGAIN, "--set", "cyclic.checkpoint.folder=other"]
        notes = self.notes(config, *options, "--set", "gradient_accumulation_steps=2", "--new-batch")
        self.assertIn("goes on from", notes)
        self.assertIn("seed 3, this one has 4", self.notes(config, *options, "--set", "seed=4"))
        _, dp = self.saved(**{"cyclic.rule": "dp", "cyclic.checkpoint.folder": "dp"})
        self.assertNotEqual(dp, wanted)
        config = self.config(**SAVING)
        notes = self.notes(config, "--resume", "dp/iteration-000008", *options[2:])
        self.assertIn("is of rule dp and has no older versions for this run: cdp_v2 begins with the checkpoint", notes)

    def test_the_run_begins_where_there_is_no_checkpoint_yet(self):
        config = self.config(**SAVING)
        self.assertIn("run has no checkpoint yet: the run begins", self.notes(config, "--resume"))

    def test_a_disk_that_is_too_small_costs_checkpoints_and_no_run(self):
        changes = {"model.hidden": [200, 200], "cyclic.transport": "local"}  # whose memory is no file
        config = self.config(**SAVING, **changes)
        wanted = self.bits(self.config("plain.json", **changes))
        done = self.run_program("train", config, "--summary", "s.json", preexec_fn=limited(resource.RLIMIT_FSIZE, 25 * 4096))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertEqual(self.json("s.json")["parameters_sha256"], wanted)
        self.assertIn("checkpoint of iteration 4", self.json("s.json")["not_written"])
        self.assertEqual(os.listdir(self.path("run")), ["lock"])

    def test_a_folder_that_cannot_be_made(self):
        self.write("file", "")
        for folder in ("/proc/none", "file/run"):
            self.fails(self.run_program("train", self.config(**SAVING), "--set", f"cyclic.checkpoint.folder={folder}"), 2,
                       folder.partition("/run")[0])

    def test_init_takes_a_checkpoints_parameters(self):
        config, _ = self.saved()
        plain = self.config("plain.json", **{"iterations": 1})
        self.train(plain, "--init", "run/iteration-000012", "--dump-parameters", "one.safetensors")
        self.train(plain, "--init", "run/iteration-000012/model.safetensors.index.json", "--dump-parameters", "two.safetensors")
        self.assertEqual(self.read("one.safetensors"), self.read("two.safetensors"))
        os.remove(self.path("run/iteration-000012/model-00002-of-00002.safetensors"))
        self.fails(self.run_program("train", plain, "--init", "run/iteration-000012"), 2, "model-00002-of-00002.safetensors")

    def test_init_partial_lists_what_is_missing_and_unexpected(self):
        self.saved()
        plain = self.config("plain.json", **{"iterations": 1})
        self.runs("checkpoint", "export", "run", "--out", "m.safetensors")
        self.write("m.safetensors", self.read("m.safetensors").replace(b'"linear0.bias"', b'"linear9.bias"'))
        self.fails(self.run_program("train", plain, "--init", "m.safetensors"), 2, "linear9.bias", "the nearest is linear0.bias")
        notes = self.notes(plain, "--init-partial", "m.safetensors")
        self.assertIn("m.safetensors: unexpected: linear9.bias, missing: linear0.bias", notes)
        self.train(plain, "--init-partial", "m.safetensors", "--metrics", "kept")
        self.runs("train", "--again", "kept", "--summary", "again.json")
        self.assertTrue(self.json("again.json")["again"]["same_parameters"])
        self.fails(self.run_program("train", self.config("wide.json", **{"model.hidden": [24, 8]}), "--init-partial",
                                    "m.safetensors"), 2, "linear1.bias", "wanted the shape [8], found [16]")

    def test_a_run_of_batch_norms_in_bf16_with_predictions_goes_on(self):
        changes = {"model": {"type": "resnet", "depth": 8, "width": 8}, "data.input": [1, 8, 8], "bf16.enabled": True,
                   "cyclic.predict": True, "cyclic.warmup_updates": 6, "cyclic.rule": "cdp_v1"}
        config, wanted = self.saved(**changes)
        for version in ("000004", "000008"):
            self.assertEqual(self.resumed(config, path=f"run/iteration-{version}"), wanted, version)

    def test_metrics_are_cut_back_to_where_the_run_goes_on(self):
        config = self.config(**SAVING, **{"evaluation.every": 4, "cyclic.checkpoint.keep": 0, "steps_per_print": 1})
        whole = self.train(config, "--metrics", "whole")
        shutil.rmtree(self.path("run"))
        done = self.run_program("train", config, "--metrics", "parts", *inject("kill", at="lap", worker=1, number=14))
        self.assertEqual(done.returncode, 3, done.stderr)
        with open(self.path("parts/metrics.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"iteration": 1000')  # torn
        summary = self.train(config, "--metrics", "parts", "--resume")
        self.assertEqual(summary["parameters_sha256"], whole["parameters_sha256"])
        quality = {}
        for folder in ("whole", "parts"):
            lines = self.json_lines(f"{folder}/metrics.jsonl")
            quality[folder] = sorted((line["iteration"], name, value) for line in lines
                                     for name, value in line["scalars"].items() if "loss" in name)
            csv = self.text(f"{folder}/csv/Train_Samples_train_loss.csv")
            self.assertEqual([line.split(",")[0] for line in csv.splitlines()],
                             ["step", *(str(16 * (t + 1)) for t in range(12))])
        self.assertEqual(quality["parts"], quality["whole"])

    def test_a_signal_saves_and_then_ends_the_run(self):
        config = self.config(**{**SAVING, "iterations": 400, "cyclic.checkpoint.every": 1000, "steps_per_print": 1,
                                          "cyclic.checkpoint.at_end": False, "model.hidden": [64, 64]})
        wanted = self.bits(config)
        process = self.start("train", config, "--summary", "s.json")
        self.wait_for_line(process, "iteration 5/")
        send(process.pid, TERM)
        self.assertEqual(process.wait(60), 128 + TERM, process.stderr.read())
        saved = self.json("s.json")["iterations"]
        self.assertLess(saved, 400)
        self.assertEqual(self.text("run/latest"), f"iteration-{saved:06d}\n")
        notes = self.notes(config, "--resume", "--summary", "s.json")
        self.assertIn(f"after iteration {saved}", notes)
        self.assertEqual(self.json("s.json")["parameters_sha256"], wanted)

    def test_a_signal_saves_and_the_run_goes_on(self):
        config = self.config(**{**SAVING, "iterations": 400, "cyclic.checkpoint.every": None, "steps_per_print": 1,
                                          "cyclic.checkpoint.at_end": False, "model.hidden": [64, 64]})
        process = self.start("train", config)
        self.wait_for_line(process, "iteration 5/")
        send(process.pid, USR2)
        self.assertEqual(process.wait(60), 0, process.stderr.read())
        saved = [name for name in os.listdir(self.path("run")) if name.startswith("iteration-")]
        self.assertEqual([self.text("run/latest")], [name + "\n" for name in saved])

    def test_after_some_time_the_next_version_is_saved(self):
        config = self.config(**{**SAVING, "iterations": 300, "cyclic.checkpoint.every": None,
                                          "cyclic.checkpoint.every_minutes": 0.0001, "cyclic.checkpoint.keep": 0})
        self.train(config)
        self.assertGreater(len(os.listdir(self.path("run"))), 4)

    def test_the_commands_that_look_at_checkpoints(self):
        self.saved()
        listed = self.runs("checkpoint", "list", "run").stdout.splitlines()
        self.assertEqual(len(listed), 3)
        self.assertRegex(listed[0], r"^run/iteration-000004: .*KiB, SGD; cdp_v2, 2 workers, 2 stages, batches of 16$")
        self.assertIn("; whole", self.runs("checkpoint", "verify", "run/iteration-000008").stdout)
        for type_name, size in (("fp32", 4), ("bf16", 2)):
            self.runs("checkpoint", "export", "run", "--out", "m.safetensors", "--dtype", type_name)
            header = self.read("m.safetensors")
            self.assertIn({"fp32": b"F32", "bf16": b"BF16"}[type_name], header)
            self.assertGreater(len(header), 1373 * size)
        self.assertIn("the same parameters", self.runs("checkpoint", "diff", "run", "run/iteration-000012").stdout)
        self.assertRegex(self.runs("checkpoint", "diff", "run", "run/iteration-000004").stdout,
                         r"linear0.weight: \d+ of \d+ values differ, by at most 0")
        with open(self.path("run/iteration-000008/state.json"), "a", encoding="utf-8") as file:
            file.write("x")
        done = self.run_program("checkpoint", "verify", "run")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(len(done.stdout.splitlines()), 3)
        self.assertIn("iteration-000008: not whole", done.stdout)
        for words, says in ((["list", "none"], "none"), (["burn", "run"], "wanted list, verify, export or diff"),
                            (["export", "run"], "--out"), (["export", "run", "--out", "x", "--dtype", "int4"], "int4"),
                            (["diff", "run"], "two"), (["list"], "one folder"), ([], "ACTION")):
            self.fails(self.run_program("checkpoint", *words), 2, says)

    def test_a_worker_killed_in_a_save_leaves_the_checkpoints_before(self):
        config, wanted = self.saved()
        shutil.rmtree(self.path("run"))
        done = self.run_program("train", config, *inject("kill", at="save", worker=1, number=5))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(self.bits(config, "--resume"), wanted)


if __name__ == "__main__":
    unittest.main()
