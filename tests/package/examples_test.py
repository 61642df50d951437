#!/usr/bin/env python3
"""The examples as a stranger's projects: against what `cmake --install` leaves."""
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

from project import BUILD, ROOT, TestCase, hiding

SHARDED = os.path.join(ROOT, "examples", "sharded_optimizer")
TINY = {"model": {"type": "mlp", "hidden": [8]},
        "data": {"type": "random", "samples": 32, "input": [1, 4, 4], "classes": 3},
        "train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "iterations": 2, "cyclic": {"workers": 2}}
# What a plain loop of LibTorch's would not name.
OURS = re.compile(r"ringzero|RZ_|absl|RunLoop|worker|optimizer|options", re.IGNORECASE)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Examples(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prefix = tempfile.mkdtemp(prefix="ringzero-installed-")
        cls.addClassCleanup(shutil.rmtree, cls.prefix)
        subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.prefix], check=True,
                       stdout=subprocess.DEVNULL)

    def test_custom_model_builds_and_learns(self):
        self.check_custom_model(self.prefix)

    def test_what_is_installed_can_be_removed(self):
        prefix = self.path("prefix")
        said = self.install(BUILD, prefix)
        for file in ("bin/ringzero", "bin/ring_perf", "share/doc/ringzero/LICENSE",
                     "share/ringzero/examples/gpt_text.json",
                     "share/ringzero/examples/custom_model/CMakeLists.txt"):
            self.assertTrue(os.path.isfile(os.path.join(prefix, file)), file)
        self.assertNotIn("untime path", said, "programs are the linked ones, with their RUNPATH")
        [removal] = re.findall(r"^-- To remove these files: (.*)$", said, re.MULTILINE)
        self.run_command("sh", "-ec", removal)
        self.assertEqual([file for _, _, files in os.walk(prefix) for file in files], [])

    def test_installed_programs_need_neither_the_build_folder_nor_an_environment(self):
        with open(self.path("tiny.json"), "w", encoding="utf-8") as file:
            json.dump(TINY, file)
        folders = {BUILD, os.path.join(ROOT, "build")}
        without_the_build = hiding(*sorted(folders, reverse=True))  # the inner one first
        for program, arguments, printed in (
                ("ringzero", ["--version"], r"^ringzero \d"), ("ring_perf", ["--help"], "--mode"),
                ("ringzero", ["train", "tiny.json"], "parameters sha256 [0-9a-f]{64}")):
            with self.subTest(program, arguments=arguments):
                said = self.run_command("env", "-i", os.path.join(self.prefix, "bin", program),
                                        *arguments, prefix=without_the_build)
                self.assertRegex(said, printed)

    def test_custom_model_is_short(self):
        source = os.path.join(ROOT, "examples", "custom_model", "custom_model.cc")
        with open(source, encoding="utf-8") as file:
            self.assertLess(len(file.readlines()), 80)

    def test_sharded_optimizer_has_the_same_bits_on_any_number_of_workers(self):
        self.configure(SHARDED, self.path("sharded"), f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.build(self.path("sharded"))
        self.program = self.path("sharded", "sharded_optimizer")
        losses, alone = self.shown(self.run_command(self.program, timeout=300), 1)
        self.assertLess(losses[-1], 0.5 * losses[0])
        for workers in (2, 3):
            printed = self.run_command(self.program, "--workers", str(workers), timeout=300)
            self.assertEqual(self.shown(printed, workers), (losses, alone), f"{workers} workers")
        self.assertEqual(self.shown(self.started_by_torchrun(3), 3), (losses, alone), "under a launcher")
        self.refuses_uneven_work()

    def shown(self, printed, workers):
        """The losses, and the fingerprint that all workers agree on."""
        losses = [float(loss) for loss in re.findall(r"^update .* (\S+)$", printed, re.M)]
        self.assertEqual(len(losses), 8, printed)
        prints = dict(re.findall(r"^worker (\d+): parameters ([0-9a-f]{16})$", printed, re.M))
        self.assertEqual(sorted(prints), [str(worker) for worker in range(workers)], printed)
        self.assertEqual(len(set(prints.values())), 1, printed)
        return losses, prints["0"]

    def started_by_torchrun(self, workers):
        """What the workers print when each is started in torchrun's environment."""
        port = str(free_port())
        started = []
        for worker in range(workers):
            environment = dict(os.environ, RANK=str(worker), LOCAL_RANK=str(worker),
                               WORLD_SIZE=str(workers), LOCAL_WORLD_SIZE=str(workers),
                               MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                               TORCHELASTIC_RUN_ID="job", TORCHELASTIC_RESTART_COUNT="0",
                               TORCHELASTIC_USE_AGENT_STORE="False")
            started.append(subprocess.Popen([self.program], env=environment, cwd=self.folder, text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
            self.addCleanup(started[-1].kill)
        printed = [process.communicate(timeout=300)[0] for process in started]
        for process, text in zip(started, printed):
            self.assertEqual(process.returncode, 0, text)
        return "".join(printed)

    def refuses_uneven_work(self):
        done = subprocess.run([self.program, "--workers", "4"], capture_output=True, text=True,
                              timeout=300, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^sharded_optimizer: worker \d: 6 micro-batches need 1, 2, 3 or "
                                      r"6 workers\n$")

    def test_sharding_takes_few_lines(self):
        with open(os.path.join(SHARDED, "main.cc"), encoding="utf-8") as file:
            lines = [line for line in file if not line.strip().startswith("//")]
        self.assertLess(sum(OURS.search(line) is not None for line in lines), 20)


if __name__ == "__main__":
    unittest.main()
