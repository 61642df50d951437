"""Builds projects as a stranger would: in a folder of their own, with a clean environment."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("RINGZERO_BUILD", os.path.join(ROOT, "build", "release"))

# What would tell CMake where to look, or how to compile.
LEADING = ("CMAKE_", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "LD_LIBRARY_PATH", "Torch_",
           "TORCH_", "absl_", "GTest_", "hwy_")


def hiding(*folders):
    """A command's beginning that hides these folders from it, where that is allowed."""
    hide = "".join(f'[ ! -d "{folder}" ] || mount -t tmpfs tmpfs "{folder}"; ' for folder in folders)
    prefix = ("unshare", "-Urm", "sh", "-ec", hide + 'exec "$@"', "sh")
    allowed = subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL, check=False)
    return prefix if allowed.returncode == 0 else ()


class TestCase(unittest.TestCase):
    """A temporary folder, removed with all that is in it."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ringzero-package-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def run_command(self, *command, timeout=3000, prefix=()):
        """What the command printed; it must succeed."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(LEADING)}
        done = subprocess.run([*prefix, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=clean, cwd=self.folder, timeout=timeout, check=False)
        self.assertEqual(done.returncode, 0, f"{' '.join(command)}\n{done.stdout[-8000:]}")
        return done.stdout

    def configure(self, source, build, *options):
        return self.run_command("cmake", "-G", "Ninja", "-S", source, "-B", build, *options)

    def build(self, folder, *targets):
        return self.run_command("cmake", "--build", folder, *(("--target", *targets) if targets else ()))

    def install(self, build, prefix):
        return self.run_command("cmake", "--install", build, "--prefix", prefix)

    def check_custom_model(self, prefix, *options):
        """Builds examples/custom_model against the package in `prefix`; it must learn."""
        self.configure(os.path.join(ROOT, "examples", "custom_model"), self.path("custom"),
                       f"-DCMAKE_PREFIX_PATH={prefix}", *options)
        self.build(self.path("custom"))
        printed = self.run_command(self.path("custom", "custom_model"), timeout=300)
        losses = [float(loss) for loss in re.findall(r"^iteration .* (\S+)$", printed, re.M)]
        self.assertEqual(len(losses), 7, printed)
        self.assertLess(losses[-1], 0.1 * losses[0], printed)
        # in and out have 2 parameters each, the 4 blocks 6 each, and each is shown once.
        shown = [line.split(":")[0] for line in printed.splitlines() if line.endswith(" values")]
        self.assertEqual(len(shown), 28, printed)
        self.assertEqual(len(set(shown)), 28, printed)
