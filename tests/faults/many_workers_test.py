#!/usr/bin/env python3
"""Sixteen workers, whatever the number of cores: they start within 5 s, train 20 iterations, and end."""
import json
import os
import shutil
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from ringzero import PROGRAM  # noqa: E402
from run import Run, session_of  # noqa: E402

START_SECONDS = 5.0
CONFIG = {
    "model": {"type": "mlp", "hidden": [16] * 15},
    "data": {"type": "random", "samples": 1024, "input": [1, 6, 6], "classes": 5},
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 0,
    "optimizer": {"type": "SGD", "params": {"lr": 0.05}},
    "iterations": 20,
    "steps_per_print": 1,
    "evaluation": {"every": 0},
    "cyclic": {"rule": "cdp_v2", "workers": 16},
}


class ManyWorkers(unittest.TestCase):
    def test_sixteen(self):
        folder = tempfile.mkdtemp(prefix="ringzero-many-")
        self.addCleanup(shutil.rmtree, folder)
        with open(os.path.join(folder, "run.json"), "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        start = time.monotonic()
        with Run(PROGRAM, ["train", "run.json", "--summary", "summary.json"], folder) as run:
            self.assertTrue(run.wait_for("iteration 1/20"), run.lines)
            self.assertLess(time.monotonic() - start, START_SECONDS)
            self.assertEqual(len(run.workers()), 16)
            self.assertEqual(run.end(120), 0)
            run.rest()
            self.assertFalse(session_of(run.launcher))
        with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        self.assertEqual((summary["workers"], summary["iterations"]), (16, 20))


if __name__ == "__main__":
    unittest.main()
