#!/usr/bin/env python3
"""Bad input: one line that names the key or the file, exit code 2, and nothing left half written."""
import gzip
import json
import math
import os
import resource
import struct
import threading
import unittest

from ringzero import TINY, TestCase, limited


def idx(magic, *shape, data=None):
    values = data if data is not None else bytes(range(10)) * 64
    size = math.prod(shape)
    return struct.pack(">I" + "I" * len(shape), magic, *shape) + values[:size].ljust(size, b"\0")


class CommandLine(TestCase):
    def test_refused(self):
        config = self.config()
        train = ("train", config)
        for words, said in (
                ((), ["help"]),
                (("trian",), ["trian", "train"]),
                ((*train, "--workres", "2"), ["--workres", "--workers"]),
                ((*train, "--resume", "x"), ["--resume: x/state.json"]),
                ((*train, "--save", "x"), ["--save", "cyclic.checkpoint.folder"]),
                ((*train, "--train-iters", "9"), ["--train-iters", "--set iterations=VALUE"]),
                ((*train, "other.json"), ["other.json"]),
                (("plan", config, "--summary", "x"), ["--summary", "plan"]),
                (("plan", config, "--grid=1"), ["--grid"]),
                ((*train, "--workers"), ["--workers"]),
                ((*train, "--summary="), ["--summary"]),
                ((*train, "--summary", ""), ["--summary"]),
                (("train",), ["CONFIG"]),
                (("train", "nowhere.json"), ["nowhere.json"]),
                (("train", "."), ["."]),
                (("help", "trian"), ["trian", "train"]),
                ((*train, "--set", "seed"), ["seed", "KEY.PATH=VALUE"]),
                ((*train, "--set", "cyclic.rul=dp"), ["cyclic.rul", "cyclic.rule"]),
                ((*train, "--set", "a\nb=1"), ["unknown key"]),
                *(((*train, "--workers", value), ["--workers", value]) for value in ("0", "-1", "two", "1.5", "010", "+3"))):
            with self.subTest(words):
                self.fails(self.run_program(*words), 2, *said)
        self.assertNotIn("nearest", self.fails(self.run_program(*train, "--frobnicate"), 2, "--frobnicate").stderr)

    def test_help_and_version(self):
        done = self.run_program("help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for word in ("train", "plan", "--workers", "--set", "cyclic.slack"):
            self.assertIn(word, done.stdout)
        own = self.run_program("train", "--help").stdout
        self.assertIn("\nUsage: ringzero train [OPTIONS] [CONFIG]\n", own)
        self.assertEqual(self.run_program("help", "train").stdout, own)
        self.assertIn("--summary", own)
        self.assertNotIn("--grid", own)
        for words in (["--version"], ["train", "--version"]):
            self.assertRegex(self.run_program(*words).stdout, r"^ringzero \d+\.\d+\.\d+(, commit [0-9a-f]{12}(-dirty)?)?, LibTorch \d+\.\d+\.\d+\n$")


class Configuration(TestCase):
    def test_not_json(self):
        self.fails(self.run_program("train", self.write("x.json", "{\n  \"model\": }")), 2, "x.json:2")
        self.fails(self.run_program("train", self.write("x.json", "")), 2, "x.json")

    def test_refused(self):
        for changes, words in (
                ({"cyclic.slak": 1}, ["cyclic.slak", "cyclic.slack", "run.json:"]),
                ({"iterations": "many"}, ["iterations", "\"many\""]),
                ({"scheduler": {"type": "StepLR", "params": {"step_size": 3}}}, ["scheduler", "not built yet"]),
                ({"cyclic.inject": {"overflows": [1, 0]}}, ["cyclic.inject.overflows", "three numbers"]),
                ({"train_batch_size": 9, "gradient_accumulation_steps": None}, ["train_batch_size", "divisible"]),
                ({"cyclic.workers": 0}, ["cyclic.workers", "0"]),
                ({"iterations": None}, ["iterations"]),
                ({"cyclic.stagger": True, "cyclic.rule": "dp"}, ["cyclic.stagger"]),
                ({"train_micro_batch_size_per_gpu": 200}, ["train_batch_size", "256"]),
                # Plans that cannot be: said once, though every worker would find it.
                ({"cyclic.stages": 40}, ["run.json", "stages"]),
                # (With checksums messages take slots: what is lent on one host takes none.)
                ({"gradient_accumulation_steps": 3, "cyclic.window": 1, "cyclic.stages": 3, "cyclic.workers": 3,
                  "cyclic.rule": "dp", "cyclic.checksums": True}, ["run.json", "cyclic.window"]),
                ({"cyclic.boundaries": [0, 1, 99]}, ["run.json"])):
            with self.subTest(changes):
                self.fails(self.run_program("train", self.config(**changes)), 2, *words)


class Data(TestCase):
    def bad(self, files, *words, kind="idx", model=None):
        folder = self.path("data")
        os.makedirs(folder, exist_ok=True)
        for name, contents in files.items():
            self.write(os.path.join(folder, name), contents)
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

    def test_damaged(self):
        """What else can be wrong with a file: tests/data/dataset_test.cc."""
        name = "train-images-idx3-ubyte.gz"
        self.bad({**self.good(), name: self.good()[name][:-9]}, name)
        record = b"\x03" + bytes(range(256)) * 12
        files = {f"data_batch_{batch}.bin": record * 2 for batch in range(1, 6)} | {"test_batch.bin": record}
        self.bad({**files, "data_batch_2.bin": record[:-1]}, "data_batch_2.bin", "3072 bytes", kind="cifar10")
        self.bad(files, "model.channels", kind="cifar10", model={"type": "resnet", "depth": 18, "channels": 1})
        # An archive's parent folder is named by mistake.
        self.fails(self.run_program("train", self.config(data={"type": "cifar10", "path": self.folder})), 2,
                   "data_batch_1.bin", "cifar-10-binary.tar.gz")

    def test_model_that_does_not_fit(self):
        self.bad(self.good(), "model.channels", model={"type": "resnet", "depth": 8, "channels": 3})
        self.bad(self.good(), "data.type", model={"type": "gpt"})


class StandardOutput(TestCase):
    def fails_with(self, done, code=2):
        self.assertEqual(done.returncode, code, done.stderr)
        [line] = done.stderr.splitlines()
        self.assertTrue(line.startswith("ringzero: error: standard output: cannot write it: "), line)

    def test_a_full_device(self):
        config = self.config()
        with open("/dev/full", "wb") as full:
            for words in (("config", config), ("config", "--schema"), ("plan", config), ("train", config), ("help",),
                          ("--version",)):
                with self.subTest(words):
                    self.fails_with(self.run_program(*words, stdout=full))

    def test_a_full_disk(self):
        # Met only when there is something to write. SIGXFSZ is ignored here, and by who is started.
        with open(self.path("out"), "wb") as out:
            self.fails_with(self.run_program("config", self.config(), stdout=out, restore_signals=False,
                                             preexec_fn=limited(resource.RLIMIT_FSIZE, 64)))

    def test_closed_streams(self):
        config = self.config()
        self.fails_with(self.run_program("train", config, stdout=None, preexec_fn=lambda: os.close(1)))
        # What is opened next does not become standard input or error.
        done = self.run_program("train", config, "--summary", "s.json", preexec_fn=lambda: os.closerange(2, 3))
        self.assertEqual(done.returncode, 0)
        self.json("s.json")


class Outputs(TestCase):
    """What a path names decides how it is written."""

    def test_one_file_for_two_options(self):
        config = self.config()
        os.symlink("a.json", self.path("link.json"))
        os.mkdir(self.path("sub"))
        for other in ("a.json", "./a.json", "sub/../a.json", "link.json"):
            self.fails(self.run_program("train", config, "--summary", "a.json", "--dump-parameters", other), 2,
                       "--dump-parameters and --summary name one file", other)
        self.fails(self.run_program("train", config, "--summary", "-", "--trace", "-"), 2, "name one file: -")
        self.fails(self.run_program("plan", config, "--svg", "x", "--text", "x"), 2, "--text and --svg name one file")
        self.fails(self.run_program("plan", config, "--svg", "x", "--profile", "x"), 2, "--profile and --svg name one file")
        self.assertEqual(sorted(os.listdir(self.folder)), ["link.json", "run.json", "sub"])

    def test_an_output_that_is_an_input(self):
        words = self.write("words.txt", "the quick brown fox jumps over the lazy dog\n" * 60)
        text = self.config("text.json", model={"type": "gpt", "layers": 1, "dim": 8, "heads": 1, "seq": 16},
                           data={"type": "text", "path": words})
        os.mkdir(self.path("images"))
        self.write("images/train-images-idx3-ubyte.gz", "kept")
        images = self.config("images.json", data={"type": "idx", "path": self.path("images")})
        self.write("init", "kept")
        os.link(self.path("init"), self.path("init-too"))
        for command, config, output, others in (
                ("train", text, "text.json", ("--summary and CONFIG name one file",)),
                ("train", text, "words.txt", ("--summary and data.path name one file",)),
                ("train", text, "init-too", ("--summary and --init name one file", "--init", "init")),
                ("train", images, "images/train-images-idx3-ubyte.gz", ("would replace a file of data.path",)),
                ("plan", text, "text.json", ("--text and CONFIG name one file",)),
                ("plan", text, "text.json", ("--text and CONFIG name one file", "--profile", "text.json"))):
            with self.subTest(output=output, others=others):
                before = self.contents()
                option = "--summary" if command == "train" else "--text"
                self.fails(self.run_program(command, config, option, output, *others[1:]), 2, others[0])
                self.assertEqual(self.contents(), before)

    def test_records_that_are_read_are_not_replaced(self):
        done = self.run_program("train", self.config(**{"cyclic.inject": {"action": "kill", "at": "lap", "number": 4, "worker": 1}}))
        self.assertNotEqual(done.returncode, 0)
        before = self.contents()
        self.fails(self.run_program("trace", "ringzero-flight", "--out", "ringzero-flight/worker-0.flight"), 2,
                   "--out and FOLDER name one file")
        self.assertEqual(self.contents(), before)

    def test_a_terminal_a_fifo_and_standard_output(self):
        config = self.config()
        terminal, program_side = os.openpty()
        os.mkfifo(self.path("fifo"))
        got = {"fifo": b"", "terminal": b""}

        def read(name, opened):
            descriptor = opened()
            try:
                while piece := os.read(descriptor, 1 << 16):
                    got[name] += piece
            except OSError:
                pass  # a terminal whose other side is closed
        readers = [threading.Thread(target=read, args=each, daemon=True) for each in (
            ("fifo", lambda: os.open(self.path("fifo"), os.O_RDONLY)), ("terminal", lambda: terminal))]
        for reader in readers:
            reader.start()
        done = self.runs("train", config, "--summary", "-", "--dump-parameters", "fifo", "--trace",
                         os.ttyname(program_side))
        self.assertEqual(json.loads(done.stdout)["iterations"], TINY["iterations"])
        self.assertIn("12 iterations in ", done.stderr)  # not in the JSON's way
        self.assertEqual(sorted(os.listdir(self.folder)), ["fifo", "run.json"])
        self.assertTrue(os.path.exists(os.ttyname(program_side)))
        os.close(program_side)
        for reader in readers:
            reader.join(60)
        self.assertEqual(got["fifo"][8:9], b"{")  # safetensors
        self.assertIn("traceEvents", json.loads(got["terminal"]))
        os.close(terminal)

    def test_a_symlink_is_followed(self):
        os.mkdir(self.path("far"))
        os.symlink("far/s.json", self.path("link"))
        self.runs("train", self.config(), "--summary", "link")
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(os.listdir(self.path("far")), ["s.json"])

    def test_a_full_disk_before_the_run(self):
        config = self.config()
        for option in ("--trace", "--summary", "--dump-parameters", "--metrics"):
            with self.subTest(option):
                done = self.run_program("train", config, option, "out", restore_signals=False,
                                        preexec_fn=limited(resource.RLIMIT_FSIZE, 4096))
                self.fails(done, 2, "out", "cannot write it: File too large")
                self.assertNotIn("iteration", done.stderr)
                self.assertEqual(set(os.listdir(self.folder)) - {"run.json"}, {"out"} if option == "--metrics" else set())


class Files(TestCase):
    def test_a_fifo_that_would_be_read(self):
        os.mkfifo(self.path("fifo"))
        config = self.config()
        self.fails(self.run_program("train", "fifo", timeout=20), 2, "fifo: wanted a file, found a FIFO")
        self.fails(self.run_program("config", "fifo", timeout=20), 2, "fifo: wanted a file, found a FIFO")
        self.fails(self.run_program("train", config, "--init", "fifo", timeout=20), 2, "fifo: is not a regular file")
        self.fails(self.run_program("plan", config, "--profile", "fifo", timeout=20), 2, "fifo: wanted a file, found a FIFO")

    def test_a_flight_folder_that_is_a_file(self):
        self.write("file", "in the way")
        for folder in ("file", "file/records"):
            done = self.fails(self.run_program("train", self.config(), "--flight", folder), 2,
                              "--flight: file: wanted a folder, found a file")
            self.assertNotIn("iteration", done.stderr)

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
    unittest.main()
