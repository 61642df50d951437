"""Runs the ringzero program as a stranger would: as a process, with files, looking only at what it leaves.

The program is $RINGZERO_PROGRAM, or build/bin/ringzero.
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get("RINGZERO_PROGRAM", os.path.join(ROOT, "build", "bin", "ringzero"))

# In the environment of whatever this process starts: other tests run at the same time.
MARK = f"RINGZERO_STARTED_BY={os.getpid()}"
os.environ.update([MARK.split("=")])

TINY = {
    "model": {"type": "mlp", "hidden": [24, 16]},
    "data": {"type": "random", "samples": 256, "input": [1, 6, 6], "classes": 5},
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 0,
    "optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}},
    "iterations": 12,
    "evaluation": {"every": 5},
    "seed": 3,
    "cyclic": {"rule": "cdp_v2", "warmup_updates": 0, "predict": False, "workers": 2},
}


def processes(name="ringzero"):
    """Process ids of the living ringzero programs that descend from this process; zombies left out."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                comm, _, rest = stat.read().partition("(")[2].rpartition(")")
            if not comm.startswith(name):  # "ringzero w2"
                continue
            with open(f"/proc/{entry}/environ", "rb") as environ:
                ours = MARK.encode() in environ.read().split(b"\0")
        except OSError:
            continue
        if ours and rest.split()[0] != "Z":
            found.append(int(entry))
    return found


def inject(action, **fields):
    """Options of a run with a fault: inject("kill", at="lap", worker=1, number=4)."""
    return [word for key, value in {"action": action, **fields}.items()
            for word in ("--set", f"cyclic.inject.{key}={value}")]


def children(pid):
    """Living children of a process, oldest first."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def limited(kind, value):
    """For preexec_fn: a limit of the program, as resource.RLIMIT_FSIZE."""
    return lambda: resource.setrlimit(kind, (value, value))


def shared_memory():
    return sorted(os.listdir("/dev/shm"))


class TestCase(unittest.TestCase):
    """A folder of its own for each test, and afterwards no file of /dev/shm that was not there before."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ringzero-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.shared_memory_before = shared_memory()

    def tearDown(self):
        new = set(shared_memory()) - set(self.shared_memory_before)
        self.assertFalse([name for name in new if "ringzero" in name], "left in /dev/shm")

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def text(self, name):
        return self.read(name).decode()

    def contents(self):
        """All files, by path."""
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(self.folder) for name in names]
        return {path: self.read(path) for path in paths}

    def json(self, name):
        return json.loads(self.text(name))

    def json_lines(self, name):
        return [json.loads(line) for line in self.text(name).splitlines()]

    def scalars(self, name):
        """By iteration: what a run with --metrics run has written."""
        return {line["iteration"]: line["scalars"][name] for line in self.json_lines("run/metrics.jsonl")
                if name in line["scalars"]}

    def write(self, name, contents):
        with open(self.path(name), "wb") as file:
            file.write(contents if isinstance(contents, bytes) else contents.encode())
        return self.path(name)

    def config(self, name="run.json", base=None, **changes):
        """TINY with changes by path: config(**{"cyclic.rule": "dp"}); None drops a key."""
        config = json.loads(json.dumps(base or TINY))
        for key, value in changes.items():
            *parents, last = key.split(".")
            at = config
            for parent in parents:
                at = at.setdefault(parent, {})
            if value is None:
                at.pop(last, None)
            else:
                at[last] = json.loads(json.dumps(value))
        return self.write(name, json.dumps(config, indent=1))

    def studied(self, family, optimizer, batch):
        """A file for --efficiency: a row for two workers, by which cdp_v1 is faster than any rule can be."""
        row = {"family": family, "optimizer": optimizer, "rule": "cdp_v1", "strict": False, "workers": 2, "laps": 1,
               "batch": batch, "warmup_updates": 0, "predict": True, "updates": 0.02, "least": 0.01, "most": 0.03,
               "seeds": 3, "command": "made up for a test"}
        return self.write("studied.json", json.dumps([row]))

    def run_program(self, *arguments, before=(), timeout=120, stdout=subprocess.PIPE, **options):
        """`before`: words in front of the program, as taskset's."""
        return subprocess.run([*before, PROGRAM, *map(str, arguments)], stdout=stdout, stderr=subprocess.PIPE, text=True,
                              timeout=timeout, cwd=self.folder, check=False, **options)

    def start(self, *arguments, hang_up=signal.SIG_DFL):
        """`hang_up`: what SIGHUP does to it at its start, whatever it does to these tests."""
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, cwd=self.folder,
                                   preexec_fn=lambda: signal.signal(signal.SIGHUP, hang_up))
        self.addCleanup(self._end, process)
        return process

    @staticmethod
    def _end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def disk(self, size, options=""):
        """A folder "disk" with so many bytes; a full disk is a small one. `options`: more for mount."""
        os.mkdir(self.path("disk"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}{options}", "tmpfs", self.path("disk")],
                                 capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            self.skipTest(f"a small disk cannot be mounted: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", self.path("disk")], check=True)
        return self.path("disk")

    def train(self, config, *options, timeout=240):
        """A run that must succeed: its summary."""
        summary = self.path(f"summary-{time.monotonic_ns()}.json")
        self.runs("train", config, "--summary", summary, *options, timeout=timeout)
        return self.json(summary)

    def bits(self, config, *options):
        """The digest of what a run has trained."""
        return self.train(config, *options)["parameters_sha256"]

    def runs(self, *arguments, **options):
        done = self.run_program(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def fails(self, done, code, *words):
        """It ended with `code` and one line on stderr that has all the words; nothing on stdout."""
        lines = [line for line in done.stderr.splitlines() if "error:" in line]
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("ringzero: error: "), lines[0])
        for word in words:
            self.assertIn(word, lines[0])
        self.assertEqual(done.stdout, "")
        return done

    def wait_for_line(self, process, beginning="iteration "):
        if not any(line.startswith(beginning) for line in process.stderr):
            self.fail(f"it never said: {beginning}")

    def wait_until(self, condition, seconds, what):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition():
                return
            time.sleep(0.02)
        self.fail(f"not within {seconds} s: {what}")


def send(pid, number):
    os.kill(pid, number)


HUP, INT, TERM, KILL = signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL
