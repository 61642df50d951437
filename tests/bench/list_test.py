#!/usr/bin/env python3
"""`./rz bench` in a fresh clone, on a machine where nothing can be built or installed."""
import glob
import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILDERS = ("apt-get", "c++", "cmake", "ninja", "python3", "sudo")


class List(unittest.TestCase):
    def setUp(self):
        self.clone = tempfile.mkdtemp(prefix="ringzero-clone-")
        self.addCleanup(shutil.rmtree, self.clone)
        shutil.copy(os.path.join(ROOT, "rz"), self.clone)
        for folder in ("cmake", "bench"):
            shutil.copytree(os.path.join(ROOT, folder), os.path.join(self.clone, folder))
        os.mkdir(os.path.join(self.clone, "useless"))
        for program in BUILDERS:
            os.symlink("/bin/false", os.path.join(self.clone, "useless", program))

    def bench(self, *arguments):
        environment = dict(os.environ, PATH=f"{self.clone}/useless:{os.environ['PATH']}")
        return subprocess.run([os.path.join(self.clone, "rz"), "bench", *arguments], env=environment,
                              capture_output=True, text=True, timeout=60, check=False)

    def test_benchmarks_are_listed_and_nothing_is_built(self):
        packages = glob.glob(os.path.join(ROOT, "bench", "*", "__main__.py"))
        names = {os.path.basename(os.path.dirname(file)) for file in packages} | {"ring"}
        done = self.bench()
        listed = " ".join(sorted(names))
        self.assertEqual((done.returncode, done.stdout), (0, f"benchmarks: {listed}\n"), done.stderr)
        done = self.bench("rnig")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(f"no benchmark 'rnig'; there are: {listed};", done.stderr)
        self.assertEqual(sorted(os.listdir(self.clone)), ["bench", "cmake", "rz", "useless"])


if __name__ == "__main__":
    unittest.main()
