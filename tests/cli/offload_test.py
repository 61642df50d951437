#!/usr/bin/env python3
"""Optimizer states on NVMe as a user sees them: the same bits, less memory, and nothing left in the folder."""
import ctypes
import errno
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest
from random import Random

from ringzero import TestCase, children, inject, processes

WIDE = {"model": {"type": "mlp", "hidden": [400, 400]}, "iterations": 5, "zero_optimization.stage": 3,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
DEEP = {**WIDE, "model": {"type": "mlp", "hidden": [400] * 5}, "cyclic.stages": 6}
SECTION = "zero_optimization.offload_optimizer"
PARAMETERS = "zero_optimization.offload_param"

# Loaded before the program: a worker's read at an offset of a file in a folder leaves a mark, and
# never ends.
STUCK_READ = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef ssize_t (*Read)(int, void*, size_t, off_t);

static int is_worker(void) {
  char name[32] = "";
  FILE* file = fopen("/proc/self/comm", "r");
  if (file == NULL) return 0;
  const int read = fgets(name, sizeof name, file) != NULL;
  fclose(file);
  return read && strstr(name, " w") != NULL;
}

static void stick(int file, off_t offset) {
  char link[64], path[PATH_MAX] = "";
  const char* folder = getenv("STUCK_FOLDER");
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (readlink(link, path, sizeof path - 1) < 0) return;
  if (strncmp(path, folder, strlen(folder)) != 0 || offset != atoll(getenv("STUCK_OFFSET"))) return;
  if (!is_worker()) return;
  close(open(getenv("STUCK_MARK"), O_CREAT | O_WRONLY, 0600));
  while (1) pause();
}

ssize_t pread(int file, void* memory, size_t bytes, off_t offset) {
  stick(file, offset);
  return ((Read)dlsym(RTLD_NEXT, "pread"))(file, memory, bytes, offset);
}

ssize_t pread64(int file, void* memory, size_t bytes, off_t offset) {
  return pread(file, memory, bytes, offset);
}
"""


def forbid_rings(error):
    """In a child: io_uring_setup gives `error` from here on, as in a container."""
    load, jump, give = 0x20, 0x15, 0x06  # BPF
    steps = [(load, 0, 0, 0), (jump, 0, 1, 425), (give, 0, 0, 0x00050000 | error), (give, 0, 0, 0x7fff0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, seccomp, filtered = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) != 0 or libc.prctl(seccomp, filtered, program) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def name_of(pid):
    with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
        return file.read().strip(" \0")


class Offload(TestCase):
    def setUp(self):
        super().setUp()
        self.tier = self.path("tier")
        os.mkdir(self.tier)

    def streams(self, **changes):
        return self.config(**{**WIDE, f"{SECTION}.device": "nvme", f"{SECTION}.nvme_path": self.tier, **changes})

    def test_the_bits_are_those_of_a_run_in_memory(self):
        for rule, bf16 in (("dp", False), ("cdp_v2", False), ("dp", True), ("cdp_v1", True)):
            run = {"cyclic.rule": rule, "bf16.enabled": bf16}
            wanted = self.bits(self.config(**WIDE, **run))
            for changes in ({}, {f"{SECTION}.ratio": 0.5, "cyclic.transport": "local"},
                            {"cyclic.offload.staging": "3MiB", "aio": {"block_size": 65536, "queue_depth": 2}}):
                self.assertEqual(self.bits(self.streams(**run, **changes)), wanted, (run, changes))
        self.assertEqual(os.listdir(self.tier), [])

    def files(self, **changes):
        """Parameters in files, and states in memory."""
        return self.config("files.json", **{**DEEP, f"{PARAMETERS}.device": "nvme", f"{PARAMETERS}.nvme_path": self.tier,
                                            f"{PARAMETERS}.max_in_cpu": 0, **changes})

    def test_parameters_in_files_give_the_same_bits(self):
        for rule, bf16 in (("dp", False), ("cdp_v1", False), ("cdp_v2", True)):
            run = {"cyclic.rule": rule, "bf16.enabled": bf16}
            wanted = self.bits(self.config(**DEEP, **run))
            states = {f"{SECTION}.device": "nvme", f"{SECTION}.nvme_path": self.tier}
            for changes in ({}, {"cyclic.transport": "local", "cyclic.workers": 1}, {"cyclic.offload.slots": 2, **states}):
                wants = wanted if "cyclic.workers" not in changes else self.bits(self.config(**DEEP, **run, **changes))
                summary = self.train(self.files(**run, **changes))
                self.assertEqual(summary["parameters_sha256"], wants, (run, changes))
                self.assertGreater(summary["memory"]["certificate"]["disk"]["versions in files"], 0)
        self.assertEqual(os.listdir(self.tier), [])

    def test_parameters_in_files_are_saved_and_resumed(self):
        saves = {"cyclic.checkpoint.folder": "run", "cyclic.checkpoint.every": 3}
        inside = self.config("inside.json", **DEEP, **saves)
        wanted = self.bits(inside)
        outside = self.files(**{**saves, "cyclic.checkpoint.folder": "other"})
        self.assertEqual(self.bits(outside), wanted)
        self.assertEqual(self.tensors("other/iteration-000003"), self.tensors("run/iteration-000003"))
        for config, begun in ((outside, "run"), (inside, "other")):
            go_on = ("--resume", f"{begun}/iteration-000003", "--set", f"cyclic.checkpoint.folder=again-{begun}")
            self.assertEqual(self.bits(config, *go_on), wanted)

    def test_the_plan_counts_parameters_in_files(self):
        run = {"cyclic.rule": "cdp_v1", "cyclic.predict": False, "model.hidden": [800] * 7, "cyclic.stages": 8}
        inside, outside = (self.runs("plan", config).stdout
                           for config in (self.config("inside.json", **{**DEEP, **run}), self.files(**run)))
        largest, first, last = (4096 * ((4 * values + 63) // 64 * 64 // 4096 + 1)
                                for values in (801 * 800, 37 * 800, 801 * 5))  # of 36 inputs, 5 classes
        row = next(line.split() for line in outside.splitlines() if line.startswith("versions in files "))
        self.assertEqual(int(row[-2]), 2 * (first + 6 * largest + last))  # two versions

        def of(text):
            return sum(next(int(line.split()[1]) for line in text.splitlines() if line.startswith(name))
                       for name in ("masters ", "versions "))

        # Each worker has three to read and one to make, and a name of its file.
        self.assertEqual(of(outside), 2 * (4 * largest + 64))
        self.assertGreater(of(inside), of(outside))
        self.assertIn("parameters on NVMe", outside)
        self.assertRegex(outside, "disk        needs ")

    def test_parameters_that_cannot_go_are_named(self):
        wide = {f"{SECTION}.device": "nvme", f"{SECTION}.nvme_path": self.path("elsewhere")}
        nvme = "zero_optimization.offload_param.device: nvme "
        for changes, said in (({f"{PARAMETERS}.nvme_path": None}, f"{PARAMETERS}.nvme_path: missing: where on NVMe"),
                              ({f"{PARAMETERS}.nvme_path": self.path("nowhere")}, f"{PARAMETERS}.nvme_path: "),
                              (wide, f"{PARAMETERS}.nvme_path: wanted \"{self.path('elsewhere')}\""),
                              ({"cyclic.checksums": True}, f"{nvme}wants workers of one host that lend memory"),
                              ({"cyclic.offload.slots": 1}, "cyclic.offload.slots: ")):
            self.fails(self.run_program("train", self.files(**changes)), 2, said)
        for changes, said in (({f"{PARAMETERS}.max_in_cpu": 10**9}, "no parameters go to NVMe: "),
                              ({"cyclic.stages": 2}, "parameters on NVMe save no memory: ")):
            done = self.runs("train", self.files(**changes))
            self.assertIn(said, done.stdout + done.stderr)

    def tensors(self, folder):
        """By name: the values of a checkpoint's tensors."""
        found = {}
        for name in os.listdir(self.path(folder)):
            if not name.endswith(".safetensors"):
                continue
            contents = self.read(f"{folder}/{name}")
            begin = 8 + struct.unpack("<Q", contents[:8])[0]
            for tensor, entry in json.loads(contents[8:begin]).items():
                if tensor == "__metadata__":
                    continue
                self.assertNotIn(tensor, found)
                first, end = entry["data_offsets"]
                found[tensor] = contents[begin + first:begin + end]
        return found

    def test_a_checkpoint_elsewhere_copies_the_states_and_says_so(self):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            saves = {"cyclic.checkpoint.folder": "run", "cyclic.checkpoint.every": 3, f"{SECTION}.nvme_path": memory}
            done = self.runs("train", self.streams(**saves))
            said = re.findall(r"worker \d: checkpoints copy the states on NVMe: (.*)", done.stdout + done.stderr)
            self.assertEqual(len(said), 1, said)  # one worker streams
            self.assertIn("Invalid cross-device link", said[0])
            names = os.listdir(self.path("run/iteration-000003"))
            self.assertFalse([name for name in names if name.startswith("optimizer-tier-")])

    def test_the_plan_says_that_checkpoints_of_stage_0_copy_the_states(self):
        for stage, saves, says in ((0, True, True), (0, False, False), (1, True, False)):
            changes = {"cyclic.checkpoint.folder": "run", "cyclic.checkpoint.every": 3} if saves else {}
            said = self.runs("plan", self.streams(**{"zero_optimization.stage": stage, **changes})).stdout
            self.assertEqual("in stage 0 of ZeRO checkpoints copy the states on NVMe" in said, says, (stage, saves))

    def test_checkpoints_take_the_file_over(self):
        self.check_checkpoints({})

    def test_checkpoints_take_it_over_with_masters(self):
        self.check_checkpoints({"bf16.enabled": True})

    def check_checkpoints(self, changes):
        saves = {"cyclic.checkpoint.folder": "run", "cyclic.checkpoint.every": 3, **changes}
        inside = self.config("inside.json", **WIDE, **saves)
        wanted = self.bits(inside)
        self.assertEqual(self.bits(self.streams(**{**saves, "cyclic.checkpoint.folder": "other"})), wanted)
        tensors, taken = (self.tensors(f"{folder}/iteration-000003") for folder in ("run", "other"))
        for name, values in tensors.items():
            self.assertEqual(taken[name], values, name)
        self.assertEqual({name.split(".")[-1] for name in taken if name not in tensors and not name.startswith(".padding.")},
                         {"master"} if changes else set())
        names = os.listdir(self.path("other/iteration-000003"))
        self.assertEqual(sum(name.startswith("optimizer-tier-") for name in names), 1)  # one worker streams
        # Begun in memory and ended in files, and the other way.
        for config, begun in ((self.streams(**saves), "run"), (inside, "other")):
            go_on = ("--resume", f"{begun}/iteration-000003", "--set", f"cyclic.checkpoint.folder=again-{begun}")
            self.assertEqual(self.bits(config, *go_on), wanted)

    def test_the_plan_says_what_lies_where(self):
        inside, outside = (self.runs("plan", config).stdout for config in (self.config("inside.json", **WIDE), self.streams()))
        row = next(line.split() for line in outside.splitlines() if line.startswith("tier "))
        state = 4 * 400 * 400  # of one matrix: it alone is large enough
        self.assertEqual(int(row[-2]), 4096 + 2 * 4096 * -(-state // 4096))  # and a head
        moments = [next(int(line.split()[1]) for line in text.splitlines() if line.startswith("moments "))
                   for text in (inside, outside)]
        staging = 16 << 20  # of the one worker that has it
        self.assertEqual(moments[0] - moments[1], 2 * state - staging)

    def test_masters_of_16_bit_parameters_go_there_too(self):
        bf16 = {"bf16.enabled": True}
        inside, outside = (self.runs("plan", config).stdout
                           for config in (self.config("inside.json", **WIDE, **bf16), self.streams(**bf16)))
        row = next(line.split() for line in outside.splitlines() if line.startswith("tier "))
        state = 4 * 400 * 400
        self.assertEqual(int(row[-2]), 4096 + 3 * 4096 * -(-state // 4096))

        def of(text, name):
            return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))

        kept = [of(text, "masters") + of(text, "moments") for text in (inside, outside)]
        # The last version comes through memory for the masters of the largest stage: here, of the only one. Its
        # small parameters' masters are states, in memory.
        staging = 16 << 20
        small = 2 * state - staging - (kept[0] - kept[1])
        self.assertTrue(0 < small < state // 8, kept)

    def test_the_plan_and_the_run_say_whether_the_disk_is_fast_enough(self):
        slow = {"cyclic.offload.bandwidth": 0.01, "cyclic.offload.endurance": 600}
        said = re.compile(r"needs \S+ GB/s both ways, gives 0.02: not hidden: a step takes (\S+) s instead of \S+; "
                          r"\S+ GB written per iteration, \S+ TB a day: the disk's 600 TB last \S+ days")
        config = self.streams(**slow)
        self.assertRegex(self.runs("plan", config).stdout, said)
        done = self.runs("train", config, "--summary", self.path("summary.json"))
        step = float(said.search(done.stdout + done.stderr)[1])
        # 10 MB/s of each worker's disk; the one that has the large matrix moves it both ways.
        bytes_moved = 2 * 2 * 4 * 400 * 400  # two moments, there and back
        self.assertGreater(step, 0.9 * bytes_moved / 1e7)
        with open(self.path("summary.json"), encoding="utf-8") as file:
            disk = json.load(file)["disk"]
        self.assertIs(disk["hidden"], False)
        self.assertAlmostEqual(disk["step"], step, delta=0.01 * step)
        refused = self.run_program("train", self.streams(**slow, **{"cyclic.offload.require_hidden": True}))
        self.fails(refused, 2, "cyclic.offload.require_hidden: a step would wait for the disk")
        self.assertEqual(os.listdir(self.tier), [])

    def test_stages_go_by_hand_too(self):
        wanted = self.bits(self.config("inside.json", **WIDE))
        self.assertEqual(self.bits(self.streams(**{"cyclic.offload.stages": [1]})), wanted)
        plans = [self.runs("plan", self.streams(**{"cyclic.offload.stages": [stage]})).stdout for stage in (0, 1)]
        self.assertEqual(sorted("\ntier " in plan for plan in plans), [False, True])  # one has the large matrix
        refused = self.run_program("plan", self.streams(**{"cyclic.offload.stages": [2]}))
        self.fails(refused, 2, "cyclic.offload.stages: wanted stages from 0 to 1, found 2")

    def test_what_cannot_be_is_refused_by_name(self):
        for changes, wanted in (
                ({f"{SECTION}.nvme_path": self.path("nowhere")}, f"{SECTION}.nvme_path: "),
                ({f"{SECTION}.nvme_path": None}, f"{SECTION}.nvme_path: missing: where on NVMe")):
            self.fails(self.run_program("train", self.streams(**changes)), 2, wanted)
        self.assertEqual(os.listdir(self.tier), [])

    def test_optimizers_that_read_a_state_twice_keep_it_in_memory(self):
        muon = {"optimizer": {"type": "Muon", "params": {"lr": 0.01}}}
        done = self.runs("train", self.streams(**muon))
        self.assertIn("no optimizer state goes to NVMe", done.stdout + done.stderr)

    def test_a_disk_that_is_too_small_ends_the_run_before_it_begins(self):
        done = self.run_program("train", self.streams(**{f"{SECTION}.nvme_path": self.disk("1m")}))
        self.fails(done, 2, f"{SECTION}.nvme_path: ", "bytes, found ", " free")
        self.assertEqual(os.listdir(self.path("disk")), [])

    def test_a_folder_that_cannot_be_written_is_named(self):
        folder = self.disk("8m", ",ro")
        done = self.run_program("train", self.streams(**{f"{SECTION}.nvme_path": folder}))
        self.fails(done, 2, f"{SECTION}.nvme_path: ", folder, "Read-only file system")

    def test_what_the_system_forbids_is_done_without(self):
        wanted = self.bits(self.config("inside.json", **WIDE))
        unlocked = self.runs("train", self.streams(), "--summary", self.path("summary.json"),
                             before=("prlimit", "--memlock=0"))
        self.assertEqual(self.json(self.path("summary.json"))["parameters_sha256"], wanted, unlocked.stderr)
        for error in (errno.EPERM, errno.ENOSYS):
            done = self.runs("train", self.streams(), "--summary", self.path("summary.json"),
                             preexec_fn=lambda error=error: forbid_rings(error))
            self.assertIn(f"{self.tier}: threads with pread and pwrite: io_uring is not there: {os.strerror(error)}",
                          done.stdout + done.stderr)
            self.assertEqual(self.json(self.path("summary.json"))["parameters_sha256"], wanted)

    def test_a_worker_that_is_killed_at_any_time_leaves_nothing(self):
        config = self.streams(**{"iterations": 100000, "evaluation.every": 0})
        random = Random(1)
        for number in range(200 if os.environ.get("RINGZERO_TEST_FULL") else 20):
            process = self.start("train", config)
            self.wait_for_line(process, "training begins")
            time.sleep(random.uniform(0, 0.2))
            victim = next(pid for pid in children(process.pid) if name_of(pid).endswith(f"worker {number % 2}"))
            os.kill(victim, signal.SIGKILL)
            _, error = process.communicate(timeout=60)
            self.assertNotEqual(process.returncode, 0)
            self.assertRegex(error, rf"ringzero: error: .*worker {number % 2}\b")
            self.assertEqual(os.listdir(self.tier), [])

    def with_stuck_read(self, offset):
        """An environment: a worker's read at `offset` of its states never ends."""
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("a read cannot be made to stick: there is no C compiler (cc)")
        library = self.path("stuck.so")
        source = self.write("stuck.c", STUCK_READ)
        built = subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"],
                               capture_output=True, text=True, check=False)
        self.assertEqual(built.returncode, 0, built.stderr)
        return {**os.environ, "LD_PRELOAD": library, "STUCK_FOLDER": self.tier,
                "STUCK_OFFSET": str(offset), "STUCK_MARK": self.path("mark")}

    def test_a_read_that_never_ends_ends_the_run_by_name(self):
        timeout = 8
        record = 4096 + (1 << 20)  # of the first moment, behind the file's head: the second record begins there
        config = self.streams(**{"model.hidden": [640, 640], "cyclic.wait_timeout": timeout,
                                 "cyclic.rule": "dp"})
        done = self.run_program("train", config, env=self.with_stuck_read(record),
                                preexec_fn=lambda: forbid_rings(errno.EPERM))
        took = time.time() - os.stat(self.path("mark")).st_mtime
        self.fails(done, 4, f"files in {self.tier}: ", f"at offset {record}: ", "not done after ")
        self.assertLess(took, timeout)
        self.assertEqual(processes(), [])
        self.assertEqual(os.listdir(self.tier), [])
        error = done.stderr[done.stderr.index("ringzero: error: "):]
        self.assertRegex(error, rf"files in {self.tier}: stage \d+ \(linear1\S*\), "
                                rf"record 1 at offset {record}: ")

    def test_a_worker_that_is_killed_leaves_nothing(self):
        for config in (self.streams(), self.files()):
            done = self.run_program("train", config, *inject("kill", at="lap", worker=1, number=3))
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("worker 1", done.stderr)
            self.assertEqual(os.listdir(self.tier), [])


if __name__ == "__main__":
    unittest.main()
