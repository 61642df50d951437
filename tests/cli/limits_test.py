#!/usr/bin/env python3
"""What the system does not allow is said before the run: one line, what is wanted and what is there."""
import os
import resource
import unittest

from ringzero import TestCase, limited

USER = 61234  # whose processes nobody else starts: `ulimit -u` counts all of a user's


class Limits(TestCase):
    def run_limited(self, *before, prepare=None, **changes):
        config = self.config(**changes)
        try:
            return self.run_program("train", config, before=before, preexec_fn=prepare)
        except PermissionError as error:
            self.skipTest(f"another user cannot start the program: {error}")

    def test_open_files(self):
        done = self.run_limited(prepare=limited(resource.RLIMIT_NOFILE, 50), **{"cyclic.workers": 8})
        self.fails(done, 5, "open files are wanted in one process for 8 worker processes", "64 sockets among them",
                   "`ulimit -n` is 50")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_processes(self):
        if os.geteuid() != 0:
            self.skipTest("only root starts a program as another user")
        def prepare():
            limited(resource.RLIMIT_NPROC, 10)()
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
        os.chmod(self.folder, 0o755)
        for transport, wanted, who in (("shm", 24, "3 worker processes"), ("local", 25, "1 worker process")):
            with self.subTest(transport=transport):
                done = self.run_limited(prepare=prepare, **{"cyclic.workers": 3, "cyclic.transport": transport})
                if done.returncode == 127:
                    self.skipTest(f"another user cannot start the program: {done.stderr.strip()}")
                self.fails(done, 5, f"{wanted} processes and threads are wanted for {who}, but the system made ",
                           "`ulimit -u` is 10 ")
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_addresses(self):
        # From where the program's libraries do not fit to where the run does: never by a signal.
        codes, kib = [], 200000
        while 0 not in codes and kib < 1 << 27:
            kib = int(1.03 * kib)
            done = self.run_limited(prepare=limited(resource.RLIMIT_AS, kib << 10))
            if "Sanitizer" in done.stderr:
                self.skipTest("a sanitizer wants all addresses")
            codes.append(done.returncode)
            if done.returncode == 2:
                self.fails(done, 2, "out of memory", "`ulimit -v`")
            elif done.returncode != 0:
                self.assertIn("error while loading shared libraries", done.stderr, f"{done.returncode} with {kib} KiB")
        self.assertIn(0, codes)
        self.assertIn(2, codes)

    def test_small_shared_memory_for_ucx(self):
        for size, free in (("16m", "16.0"), ("20m", "20.0"), ("1m", "1.0")):
            with self.subTest(size=size):
                small = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                         f'mount -t tmpfs -o size={size} tmpfs /dev/shm || exit 77; exec "$@"', "sh"]
                done = self.run_limited(*small, **{"cyclic.transport": "ucx"})
                if "ringzero: error:" not in done.stderr and done.returncode in (1, 77):
                    self.skipTest(f"/dev/shm cannot be mounted: {done.stderr.strip()}")
                if "ucx is not built in" in done.stderr:
                    self.skipTest("this build has no UCX")
                self.fails(done, 5, "4.25 MiB of /dev/shm for each worker", "16 MiB that stay free",
                           f"of which {free} are free")


if __name__ == "__main__":
    unittest.main()
