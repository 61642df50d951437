#!/usr/bin/env python3
"""Training over several hosts: the bits of the reference on a bad network, and an end in time with
the name of the lost worker when a cable is cut."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from hosts import Hosts, Link, need_hosts, sockets  # noqa: E402
from hosts.crew import MASTER_PORT, Crew  # noqa: E402

setUpModule = need_hosts
ROOT = os.path.dirname(os.path.dirname(HERE))
PROGRAM = os.environ.get("RINGZERO_PROGRAM", os.path.join(ROOT, "build", "bin", "ringzero"))
FULL = os.environ.get("RINGZERO_TEST_FULL") == "1"
TRAIN = [PROGRAM, "train", "run.json"]
LOST_PEER = 3  # exit code
PEER_TIMEOUT = 2.0
WAN = Link(delay_ms=2, loss=0.001, gbit=1)

CONFIG = {
    "model": {"type": "gpt", "layers": 4, "dim": 64, "heads": 2, "vocab": 64, "seq": 32},
    "data": {"type": "random", "samples": 512},
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "iterations": 12,
    "steps_per_print": 1,
    "evaluation": {"every": 0},
    "seed": 5,
    "cyclic": {"rule": "cdp_v2", "warmup_updates": 0, "predict": False, "threads": 1, "peer_timeout": PEER_TIMEOUT, "wait_timeout": 60},
}


class HostsCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ringzero-hosts-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def configure(self, iterations=CONFIG["iterations"], **cyclic):
        config = CONFIG | {"iterations": iterations, "cyclic": CONFIG["cyclic"] | cyclic}
        with open(self.path("run.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)

    def digest(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)["parameters_sha256"]


class Training(HostsCase):
    def reference(self, **cyclic):
        """The same on one host, over shared memory."""
        self.configure(**cyclic, transport="shm")
        done = subprocess.run([*TRAIN, "--summary", "reference.json"], cwd=self.folder,
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.digest("reference.json")

    def over(self, network, count, per_host=1, transport="ucx", **cyclic):
        self.configure(**cyclic, workers=count * per_host, transport=transport)
        with Hosts(count, network) as hosts:
            with Crew([*TRAIN, "--summary", "summary.json"], hosts, self.folder, per_host) as crew:
                ended = crew.wait(100)
                self.assertEqual([each.code for each in ended], [0] * len(ended), crew.told())
            if network.loss:
                self.assertGreater(hosts.counts()["lost"], 0, "nothing was lost: nothing was tried")
        return self.digest("summary.json")

    def check(self, network, count, per_host=1, transport="ucx", **cyclic):
        wanted = self.reference(**cyclic, workers=count * per_host)
        self.assertEqual(self.over(network, count, per_host, transport, **cyclic), wanted)

    def test_on_a_slow_network_that_loses_frames(self):
        for rule in ("dp", "cdp_v1", "cdp_v2") if FULL else ("cdp_v2",):
            with self.subTest(rule=rule):
                self.check(WAN, 3, rule=rule)

    def test_two_hosts_of_two_workers_each(self):
        for transport in ("ucx", "auto"):  # auto: shared memory within a host
            with self.subTest(transport=transport):
                self.check(WAN, 2, per_host=2, transport=transport, rule="cdp_v1")


class BetweenNamespaces(HostsCase):
    """Hosts that share a kernel, as containers do: UCX could go through its memory, but would wake no
    worker there."""
    def test_what_is_taken_and_where_it_listens(self):
        self.configure(iterations=1000000, workers=4, transport="ucx")
        with Hosts(2, Link()) as hosts, Crew(TRAIN, hosts, self.folder, per_host=2) as crew:
            crew.wait_for(0, "iteration 2/")
            self.assertIn("to the right neighbours: 2 x ucx posix/memory cma/memory, 2 x ucx "
                          "tcp/eth0\n", crew.told())
            for worker in range(4):
                listening = sockets.listening(crew.pid(worker))
                listening.discard(("0.0.0.0", MASTER_PORT))  # the TCPStore
                self.assertEqual({address for address, _ in listening}, {hosts[worker // 2].address})


class CutLink(HostsCase):
    """A cable is pulled: no error is told, frames just do not come. Heartbeats do not either."""
    # An end within this: the silence, the looks at it, and what it takes to tell.
    LIMIT = 2 * PEER_TIMEOUT + 3.0
    # Who is cut from worker 0 waits for its store's answer too (TcpPlace::answer_limit).
    STORE_LIMIT = LIMIT + 5.0

    def cut(self, count, cut, at="iteration 3/", **cyclic):
        """What the workers say when `cut` (a pair, or one host) is done to a run that is so far."""
        self.configure(iterations=1000000, workers=count, transport="ucx", **cyclic)
        with Hosts(count, Link(delay_ms=1, gbit=1)) as hosts:
            with Crew(TRAIN, hosts, self.folder) as crew:
                crew.wait_for(0, at)
                hosts.cut(*cut)
                since = time.monotonic()
                ended = crew.wait(60)
        for worker, each in enumerate(ended):
            self.assertEqual(each.code, LOST_PEER, f"worker {worker}: {each.stderr}")
            from_store = {0, worker} == set(cut) or (len(cut) == 1 and cut[0] in (0, worker))
            limit = self.STORE_LIMIT if from_store and worker != 0 else self.LIMIT
            self.assertLess(each.at - since, limit, f"worker {worker}: {each.stderr}")
        return [next(line for line in reversed(each.stderr.splitlines()) if "error: " in line)
                for each in ended]

    def test_one_host_is_cut_off(self):
        for host in range(3) if FULL else (1,):
            with self.subTest(host=host):
                errors = self.cut(3, (host,), rule="cdp_v2")
                for worker, error in enumerate(errors):
                    # Who has lost all others cannot know that it is the one: it names one of them.
                    lost = rf"{host}" if worker != host else f"[{''.join(str(w) for w in range(3) if w != host)}]"
                    self.assertRegex(error, rf"worker {worker}: worker {lost} gave no sign of life")

    def test_two_hosts_lose_each_other(self):
        errors = self.cut(3, (0, 1), rule="dp")
        # Both live. The first to notice tells worker 2, which tells the other one.
        silent = "gave no sign of life"
        itself = "another worker heard nothing of this one, though it lives"
        self.assertRegex(errors[0], rf"worker 0: (worker 1 {silent}|{itself}: worker 0 {silent})")
        self.assertRegex(errors[1], rf"worker 1: (worker 0 {silent}|{itself}: worker 1 {silent})")
        self.assertRegex(errors[2], rf"worker 2: worker [01] {silent}")


if __name__ == "__main__":
    unittest.main()
