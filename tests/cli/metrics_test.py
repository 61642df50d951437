#!/usr/bin/env python3
"""What --metrics leaves, read by those for whom it is written: TensorBoard, DeepSpeed's users, a browser."""
import array
import collections
import csv
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import unittest

from ringzero import TestCase

ITERATIONS = 12
BATCH = 24
EPOCH = 256  # the last batch of each has 16
SMALL = {"cyclic.workers": 3, "iterations": ITERATIONS, "model.hidden": [24, 24, 24, 16]}
# Where `pip install --target FOLDER tensorboard` has put it, if it is not on the path anyhow.
TENSORBOARD = os.environ.get("RINGZERO_TENSORBOARD")


def accumulator():
    """TensorBoard's reader of event files; SkipTest where the package is not installed."""
    if TENSORBOARD:
        sys.path.insert(0, TENSORBOARD)
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise unittest.SkipTest(f"the package tensorboard is not installed ({error}): pip install --target FOLDER "
                                "tensorboard, and RINGZERO_TENSORBOARD=FOLDER") from error
    return EventAccumulator


def samples_after(iterations):
    """Of training."""
    epochs, left = divmod(iterations, -(-EPOCH // BATCH))
    return epochs * EPOCH + BATCH * left


class Metrics(TestCase):
    def run_with_metrics(self, *options, **changes):
        shutil.rmtree(self.path("run"), ignore_errors=True)
        self.plain = self.config(**{**SMALL, **changes})
        self.summary = self.train(self.plain, "--metrics", "run", *options)
        lines = self.json_lines("run/metrics.jsonl")
        return [line for line in lines if "Train/Samples/train_loss" in line["scalars"]], lines

    def test_json_lines_tell_of_every_iteration(self):
        training, lines = self.run_with_metrics()
        self.assertEqual([line["iteration"] for line in training], list(range(1, ITERATIONS + 1)))
        self.assertEqual([line["samples"] for line in training], [samples_after(t + 1) for t in range(ITERATIONS)])
        self.assertEqual(training[0]["scalars"]["Train/Samples/train_loss"], self.summary["loss"]["first"])
        self.assertEqual(training[-1]["scalars"]["Train/Samples/train_loss"], self.summary["loss"]["last"])
        evaluated = [{"iteration": line["iteration"], "loss": line["scalars"]["Train/Samples/eval_loss"],
                      "accuracy": line["scalars"]["Ring/Samples/eval_accuracy"]}
                     for line in lines if "Train/Samples/eval_loss" in line["scalars"]]
        self.assertEqual(evaluated, self.summary["evaluations"])
        allocated = self.summary["memory"]["allocated"]
        for line in training:
            scalars = line["scalars"]
            self.assertEqual(scalars["Train/Samples/lr"], 0.05)
            self.assertGreater(scalars["Ring/Samples/samples_per_second"], 0)
            self.assertGreater(scalars["Ring/Samples/mfu"], 0)
            self.assertLess(scalars["Ring/Samples/mfu"], 1)  # a share
            self.assertGreater(scalars["Train/Samples/elapsed_time_ms_forward"], 0)
            self.assertEqual(scalars["Ring/Samples/memory_masters"], allocated["masters"])
            self.assertEqual(scalars["Ring/Samples/memory_moments"], allocated["moments"])
        # What was sent up to the last micro-batch's report: all but what comes after it.
        sent = sum(value for line in training for name, value in line["scalars"].items()
                   if name in ("Ring/Samples/bytes_forward", "Ring/Samples/bytes_backward", "Ring/Samples/bytes_sum"))
        self.assertGreater(sent, 0)
        self.assertLessEqual(sent, self.summary["bytes_per_step"] * ITERATIONS)
        self.assertEqual(self.bits(self.plain), self.summary["parameters_sha256"])

    def parameters(self, *options):
        """All trained values, in the file's order."""
        self.train(self.plain, "--dump-parameters", "parameters.safetensors", *options)
        written = self.read("parameters.safetensors")
        (length,) = struct.unpack("<Q", written[:8])
        return array.array("f", written[8 + length:])

    def test_the_gradient_norm_is_what_plain_sgd_moves_by(self):
        for rule in ("dp", "cdp_v1", "cdp_v2"):
            with self.subTest(rule):
                self.run_with_metrics(**{
                    "cyclic.rule": rule, "gradient_accumulation_steps": 2, "evaluation.every": 0,
                    "optimizer": {"type": "SGD", "params": {"lr": 0.05}}})
                norms = self.scalars("Ring/Samples/gradient_norm")
                self.assertEqual(sorted(norms), list(range(1, ITERATIONS + 1)))
                for iteration in (1, 3, ITERATIONS):
                    after = self.parameters("--set", f"iterations={iteration}")
                    before = (self.parameters("--set", f"iterations={iteration - 1}") if iteration > 1 else
                              self.parameters("--set", "iterations=1", "--set", "optimizer.params.lr=0"))
                    moved = math.sqrt(sum((a - b) ** 2 for a, b in zip(after, before))) / 0.05
                    self.assertAlmostEqual(norms[iteration] / moved, 1, delta=1e-3)

    def test_a_run_of_one_iteration_tells_its_norm(self):
        for clipping in (0, 0.5):
            with self.subTest(clipping):
                self.run_with_metrics(**{"iterations": 1, "gradient_clipping": clipping})
                norms = self.scalars("Ring/Samples/gradient_norm")
                self.assertEqual(list(norms), [1])
                self.assertGreater(norms[1], 0)

    def test_line_summary_metrics_and_report_speak_of_the_same_numbers_by_the_same_names(self):
        tokens = {"model": {"type": "gpt", "layers": 2, "dim": 16, "heads": 2, "vocab": 5, "seq": 8},
                  "data": {"type": "random", "samples": 256, "classes": 5}}
        for changes, units in ((tokens, ["tokens_per_second", "samples_per_second"]), ({}, ["samples_per_second"])):
            shutil.rmtree(self.path("run"), ignore_errors=True)
            config = self.config(**{**SMALL, **changes})
            done = self.runs("train", config, "--metrics", "run", "--summary", "summary.json")
            names = ["lr", "gradient_norm", "pss_mib", "mfu"] + units
            summary = self.json("summary.json")
            lines = [line["scalars"] for line in self.json_lines("run/metrics.jsonl")]
            last = {name.split("/")[-1]: value for line in lines for name, value in line.items()}
            for name in names:
                self.assertGreater(summary[name], 0)
                self.assertGreater(last[name], 0)
            for name in ("lr", "gradient_norm", "pss_mib"):
                self.assertEqual(summary[name], last[name])
            self.assertEqual("tokens_per_second" in last, "tokens_per_second" in units)
            first, *_, end = [line for line in done.stderr.splitlines() if line.startswith("iteration ") and "left" in line]
            self.assertRegex(first, r"^iteration 1/12  loss ")
            self.assertIn("\ntraining begins\niteration 1/12", done.stderr)
            unit = units[0].split("_")[0]
            self.assertRegex(end, rf"  lr \S+  gradient_norm \S+  \d+ {unit}/s  .* left  pss \d+ MiB  mfu \d+ %  waits ")
            self.runs("report", "run", "--out", "report.html")
            html = self.text("report.html")
            for name in names:
                self.assertIn(name, html)

    def flops(self):
        return self.json("run/run.json")["flops_per_iteration"]

    def test_a_profile_that_makes_the_plan_changes_no_flops(self):
        self.run_with_metrics()
        counted = self.flops()
        self.run_program("plan", self.plain, "--profile", "profile.json", "--freeze")
        training, _ = self.run_with_metrics("--set", "cyclic.profile=profile.json")
        self.assertEqual(self.flops(), counted)
        self.assertGreater(training[-1]["scalars"]["Ring/Samples/mfu"], 0)

    def test_tensorboard_reads_them(self):
        reader = accumulator()
        training, lines = self.run_with_metrics()
        events = reader(self.path("run/tensorboard"), size_guidance={"scalars": 0})
        events.Reload()
        names = {name for line in lines for name in line["scalars"]}
        self.assertEqual(set(events.Tags()["scalars"]), names)
        read = events.Scalars("Train/Samples/train_loss")
        self.assertEqual([each.step for each in read], [line["samples"] for line in training])
        for each, line in zip(read, training):
            self.assertTrue(math.isclose(each.value, line["scalars"]["Train/Samples/train_loss"], rel_tol=1e-6))
            self.assertTrue(math.isclose(each.wall_time, line["wall_seconds"], rel_tol=1e-9))

    def test_threads_of_one_process_sum_alike(self):
        training, _ = self.run_with_metrics(**{"cyclic.transport": "local"})
        self.assertEqual(len(training), ITERATIONS)
        self.assertGreater(training[-1]["scalars"]["Ring/Samples/bytes_sum"], 0)

    def test_where_the_configuration_wants_them(self):
        config = self.config(**SMALL, tensorboard={"enabled": True, "output_path": self.path("boards"), "job_name": "a"},
                             csv_monitor={"enabled": True, "output_path": self.path("tables"), "job_name": "b"},
                             scheduler={"type": "WarmupLR", "params": {"warmup_min_lr": 0.01, "warmup_max_lr": 0.05,
                                                                       "warmup_num_steps": 4, "warmup_type": "linear"}})
        self.train(config)
        self.assertEqual(len(os.listdir(self.path("boards/a"))), 1)
        rates = [float(row[1]) for row in list(csv.reader(self.text("tables/b/Train_Samples_lr.csv").splitlines()))[1:]]
        self.assertEqual(len(rates), ITERATIONS)
        for rate, expected in zip(rates, [0.01, 0.01, 0.02, 0.03, 0.04, 0.05, 0.05]):  # the first rate holds for two updates
            self.assertAlmostEqual(rate, expected, places=12)

    def test_a_monitor_that_cannot_write(self):
        self.write("file", "")
        config = self.config(**SMALL, csv_monitor={"enabled": True, "output_path": self.path("file")})
        self.fails(self.run_program("train", config), 2, "csv_monitor.output_path", "cannot make the folder")

    def test_a_folder_that_cannot_be_written(self):
        self.write("file", "")
        self.fails(self.run_program("train", self.config(**SMALL), "--metrics", "file"), 2, "file: cannot make the folder")

    def test_a_folder_of_an_earlier_run(self):
        for name in ("run.json", "metrics.jsonl", "csv", "tensorboard", "config.json", "provenance.json", "summary.json"):
            folder = self.path("of-" + name)
            os.makedirs(os.path.join(folder, "flight"))
            for old in (name, "flight/worker-0.flight"):
                self.write(os.path.join(folder, old), "old")
            done = self.run_program("train", self.config(**SMALL), "--metrics", folder)
            self.fails(done, 2, f"--metrics {folder}", name, "earlier run")
            self.assertNotIn("iteration", done.stderr)
            self.assertEqual(self.text(os.path.join(folder, "flight/worker-0.flight")), "old")


class Report(TestCase):
    def report(self):
        self.train(self.config(**SMALL), "--metrics", "run")
        self.runs("report", "run", "--out", "report.html")
        return self.text("report.html")

    def browse(self, *options):
        browser = shutil.which("chromium")
        if browser is None:
            self.skipTest("chromium is not installed (Debian's package chromium)")
        done = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={self.path('browser')}",
             *options, "file://" + self.path("report.html")], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_one_page_with_everything(self):
        html = self.report()
        self.assertNotIn("http", html)
        run, = json.loads(re.search('<script id="runs" type="application/json">(.*?)</script>', html, re.DOTALL)[1])
        self.assertEqual((run["name"], run["workers"]), ("run", 3))
        self.assertEqual(run["config"]["/cyclic/workers"], 3)
        self.assertEqual((run["schedule"]["first"], run["schedule"]["last"]), (10, 11))
        self.assertEqual(len(run["scalars"]["Train/Samples/train_loss"]), ITERATIONS)

    def test_a_browser_draws_it(self):
        self.report()
        page = self.browse("--dump-dom").partition("<main>")[2].partition("</main>")[0]
        for part in ("Loss", "Samples a second", "measured, iterations 10 to 11", "predicted", "Sent by the whole ring",
                     "Model states and buffers", "Gradient norm", "</polyline>", "</polygon>", "Recv"):
            self.assertIn(part, page)
        self.browse("--window-size=1280,2200", f"--screenshot={self.path('page.png')}")
        colours = pixels(self.path("page.png"))
        # Blue forwards and curves, orange waits, green sums: not a white page.
        for colour in ((0x2f, 0x6f, 0xb2), (0x4a, 0x84, 0xc4), (0x2f, 0x5d, 0x50)):
            self.assertGreater(colours.get(colour, 0), 200, colour)

    def test_two_runs_are_compared(self):
        self.report()
        self.train(self.config(**SMALL, **{"cyclic.rule": "dp"}), "--metrics", "other")
        done = self.run_program("report", "run", "other", "--out", "report.html")
        self.assertEqual(done.returncode, 0, done.stderr)
        page = self.browse("--dump-dom").partition("<main>")[2]
        different = page.partition("Configuration keys that differ")[2].partition("</table>")[0]
        self.assertIn("<td>cyclic.rule</td><td>cdp_v2</td><td>dp</td>", different)
        self.assertNotIn("<td>cyclic.workers</td>", different)
        self.assertIn("other: train_loss", page)

    def test_folders_that_are_none(self):
        self.fails(self.run_program("report", "nowhere"), 2, "nowhere/run.json", "No such file")
        os.mkdir(self.path("bad"))
        self.write("bad/run.json", "[]")
        self.fails(self.run_program("report", "bad"), 2, "bad/run.json", "not a JSON object")


def pixels(path):
    """How often each colour is in a picture; SkipTest where no package reads it."""
    try:
        from matplotlib import image
    except ImportError as error:
        raise unittest.SkipTest(f"matplotlib is not installed (Debian's package python3-matplotlib): {error}") from error
    colours = (image.imread(path)[:, :, :3].reshape(-1, 3) * 255).round().astype(int)
    return collections.Counter(map(tuple, colours.tolist()))


if __name__ == "__main__":
    unittest.main()
