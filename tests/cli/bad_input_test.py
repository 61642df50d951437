#!/usr/bin/env python3
"""Bad input: one line that names the key or the file, exit code 2, and nothing left half written."""
import gzip
import json
import os
import struct
import unittest

from ringzero import TINY, TestCase


def idx(magic, *shape, data=None):
    values = data if data is not None else bytes(range(10)) * 64
    size = 1
    for extent in shape:
        size *= extent
    return struct.pack(">I" + "I" * len(shape), magic, *shape) + values[:size].ljust(size, b"\0")


class CommandLine(TestCase):
    def test_no_command(self):
        self.fails(self.run_program(), 2, "help")

    def test_unknown_command(self):
        self.fails(self.run_program("trian"), 2, "trian", "train")

    def test_unknown_option(self):
        self.fails(self.run_program("train", self.config(), "--workres", "2"), 2, "--workres", "--workers")
        self.assertNotIn("nearest", self.fails(self.run_program("train", self.config(), "--frobnicate"), 2, "--frobnicate").stderr)

    def test_planned_options(self):
        for option in ("--resume", "--save"):
            self.fails(self.run_program("train", self.config(), option, "x"), 2, option, "not built yet", "--init")

    def test_option_of_another_command(self):
        self.fails(self.run_program("plan", self.config(), "--summary", "x"), 2, "--summary", "plan")

    def test_missing_value(self):
        self.fails(self.run_program("train", self.config(), "--workers"), 2, "--workers")
        self.fails(self.run_program("train", self.config(), "--summary="), 2, "--summary")

    def test_workers(self):
        for value in ("0", "-1", "two", "1.5", "010", "+3"):
            self.fails(self.run_program("train", self.config(), "--workers", value), 2, "--workers", value)

    def test_missing_config(self):
        self.fails(self.run_program("train"), 2, "CONFIG")
        self.fails(self.run_program("train", "nowhere.json"), 2, "nowhere.json")
        self.fails(self.run_program("train", "."), 2, ".")

    def test_set(self):
        self.fails(self.run_program("train", self.config(), "--set", "seed"), 2, "seed", "KEY.PATH=VALUE")
        self.fails(self.run_program("train", self.config(), "--set", "cyclic.rul=dp"), 2, "cyclic.rul", "cyclic.rule")
        self.fails(self.run_program("train", self.config(), "--set", "a\nb=1"), 2, "unknown key")

    def test_help_and_version(self):
        done = self.run_program("help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for word in ("train", "plan", "--workers", "--set", "cyclic.slack"):
            self.assertIn(word, done.stdout)
        own = self.run_program("train", "--help").stdout
        self.assertTrue(own.startswith("usage: ringzero train CONFIG"), own)
        self.assertIn("--summary", own)
        self.assertNotIn("--grid", own)
        for words in (["--version"], ["train", "--version"]):
            self.assertRegex(self.run_program(*words).stdout, r"^ringzero \d+\.\d+\.\d+\n$")


class Configuration(TestCase):
    def bad(self, *words, **changes):
        self.fails(self.run_program("train", self.config(**changes)), 2, *words)

    def test_not_json(self):
        self.fails(self.run_program("train", self.write("x.json", "{\n  \"model\": }")), 2, "x.json:2")
        self.fails(self.run_program("train", self.write("x.json", "")), 2, "x.json")

    def test_unknown_key(self):
        self.bad("cyclic.slak", "cyclic.slack", "run.json:", **{"cyclic.slak": 1})

    def test_wrong_type(self):
        self.bad("iterations", "\"many\"", iterations="many")

    def test_not_built(self):
        self.bad("scheduler", "not built yet", scheduler={"type": "StepLR", "params": {"step_size": 3}})

    def test_overflows_are_threes(self):
        self.bad("cyclic.inject.overflows", "three numbers", **{"cyclic.inject": {"overflows": [1, 0]}})

    def test_combinations(self):
        self.bad("train_batch_size", "divisible", train_batch_size=9, gradient_accumulation_steps=None)
        self.bad("cyclic.workers", "0", **{"cyclic.workers": 0})
        self.bad("iterations", iterations=None)
        self.bad("cyclic.stagger", **{"cyclic.stagger": True, "cyclic.rule": "dp"})
        self.bad("train_batch_size", "256", train_micro_batch_size_per_gpu=200)

    def test_plan_that_cannot_be(self):
        # Said once, though every worker would find it.
        self.bad("run.json", "stages", **{"cyclic.stages": 40})
        self.bad("run.json", "cyclic.window", gradient_accumulation_steps=3,
                 **{"cyclic.window": 1, "cyclic.stages": 3, "cyclic.workers": 3, "cyclic.rule": "dp"})
        self.bad("run.json", **{"cyclic.boundaries": [0, 1, 99]})


class Data(TestCase):
    def bad(self, files, *words, kind="idx", model=None):
        folder = self.path("data")
        os.makedirs(folder, exist_ok=True)
        for name, contents in files.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(contents)
        changes = {"data": {"type": kind, "path": folder}}
        if model:
            changes["model"] = model
        self.fails(self.run_program("train", self.config(**changes)), 2, *words)

    def good(self):
        return {
            "train-images-idx3-ubyte.gz": gzip.compress(idx(0x803, 20, 4, 4)),
            "train-labels-idx1-ubyte.gz": gzip.compress(idx(0x801, 20)),
            "t10k-images-idx3-ubyte.gz": gzip.compress(idx(0x803, 10, 4, 4)),
            "t10k-labels-idx1-ubyte.gz": gzip.compress(idx(0x801, 10)),
        }

    def test_missing(self):
        self.fails(self.run_program("train", self.config(data={"type": "idx", "path": "/nowhere"})), 2, "/nowhere")
        self.fails(self.run_program("train", self.config(data={"type": "idx"})), 2, "data.path")

    def test_wrong_magic(self):
        name = "train-images-idx3-ubyte.gz"
        self.bad({**self.good(), name: gzip.compress(idx(0x999, 20, 4, 4))}, name)

    def test_truncated(self):
        name = "train-images-idx3-ubyte.gz"
        self.bad({**self.good(), name: gzip.compress(idx(0x803, 20, 4, 4)[:-1])}, name)
        self.bad({**self.good(), name: gzip.compress(idx(0x803, 20, 4, 4))[:-9]}, name)

    def test_bad_gzip(self):
        name = "t10k-labels-idx1-ubyte.gz"
        broken = bytearray(self.good()[name])
        broken[len(broken) // 2] ^= 0xFF
        self.bad({**self.good(), name: bytes(broken)}, name)

    def test_cifar10(self):
        record = b"\x03" + bytes(range(256)) * 12
        files = {f"data_batch_{batch}.bin": record * 2 for batch in range(1, 6)} | {"test_batch.bin": record}
        for spoilt, contents, words in (
                ("data_batch_2.bin", record[:-1], ("3072 bytes", "multiple of 3073")),
                ("data_batch_5.bin", b"", ("0 bytes",)),
                ("data_batch_4.bin", record + b"\x0a" + record[1:], ("record 1", "class 10"))):
            self.bad({**files, spoilt: contents}, spoilt, *words, kind="cifar10")
        self.bad(files, "model.channels", kind="cifar10", model={"type": "resnet", "depth": 18, "channels": 1})
        # An archive's parent folder is named by mistake.
        self.fails(self.run_program("train", self.config(data={"type": "cifar10", "path": self.folder})), 2,
                   "data_batch_1.bin", "cifar-10-binary.tar.gz")

    def test_model_that_does_not_fit(self):
        self.bad(self.good(), "model.channels", model={"type": "resnet", "depth": 8, "channels": 3})
        self.bad(self.good(), "data.type", model={"type": "gpt"})


class Files(TestCase):
    def test_output_that_cannot_be_written(self):
        for option in ("--summary", "--dump-parameters"):
            self.fails(self.run_program("train", self.config(), option, "/nowhere/file"), 2, "/nowhere/file")
            self.fails(self.run_program("train", self.config(), option, "."), 2, ".")

    def test_init(self):
        self.fails(self.run_program("train", self.config(), "--init", "nowhere.safetensors"), 2, "nowhere.safetensors")
        self.write("cut.safetensors", b"\x10")
        self.fails(self.run_program("train", self.config(), "--init", "cut.safetensors"), 2, "cut.safetensors")
        header = json.dumps({"other": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        self.write("other.safetensors", struct.pack("<Q", len(header)) + header + bytes(4))
        self.fails(self.run_program("train", self.config(), "--init", "other.safetensors"), 2, "other.safetensors",
                   '"other"')

    def test_nothing_is_written(self):
        before = sorted(os.listdir(self.folder)) + ["run.json"]
        self.fails(self.run_program("train", self.config(**{"cyclic.slak": 1}), "--summary", "s.json",
                                    "--dump-parameters", "d.safetensors"), 2, "slak")
        self.assertEqual(sorted(os.listdir(self.folder)), before)


if __name__ == "__main__":
    assert TINY
    unittest.main()
