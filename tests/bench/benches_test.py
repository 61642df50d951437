"""The benchmarks in Python without PyTorch and without hosts: of peers batches, parameters, losses,
numbers, tables, arguments, and how processes are ended; of latency table, picture and arguments; of
updates which waits count; of the study of rules what is done, and intervals; and in what order runs
take turns."""
import collections
import contextlib
import io
import math
import os
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get("RINGZERO_PROGRAM", os.path.join(ROOT, "build", "bin", "ringzero"))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "tests")]
sys.dont_write_bytecode = True

from checkpoints import __main__ as checkpoints  # noqa: E402
from charts import Bar, Panel, Series, write  # noqa: E402
from latency import __main__ as latency  # noqa: E402
from peers import __main__ as peers  # noqa: E402
from peers.batches import epoch_order, tokens_of  # noqa: E402
from peers.cases import CASES, CONFIGURATIONS, MEMORY_CASES, Case, Shape  # noqa: E402
from peers.processes import Command, PeakWatch, pss_mib, run_group  # noqa: E402
from peers.results import (TOLERANCE, CaseResult, MemorySlope, check_losses, make_rows,  # noqa: E402
                           memory_slope, over_program, page, paired_ratio, panels, step_table)
from peers.runs import Runner, RunReport, forecast_in, tensors_in  # noqa: E402
from ring_run import BenchError, read_config, run_command, take_turns  # noqa: E402
from rules_study import __main__ as study  # noqa: E402
from updates.__main__ import exposed  # noqa: E402

FSDP2 = latency.FSDP2
TINY = Case("tiny", Shape(layers=2, dim=64, sequence=8, vocabulary=40), micro_batch=2, iterations=2,
            workers=2)


def report(median: float, *losses: float, **changes: float) -> RunReport:
    numbers = {"step_min": median / 2, "step_max": median * 2, "step_mean": median,
               "cpu_seconds_per_step": 2 * median, "minor_faults_per_step": 40.0} | changes
    return RunReport(losses=list(losses or (5.5, 5.4)), step_median=median, **numbers)


class InFolder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)


class BatchesTest(unittest.TestCase):
    def test_are_ringzeros_own(self) -> None:
        """The file is written and checked by peers_batches_test, which runs RingZero's code."""
        case = Case("", Shape(layers=1, dim=64, sequence=6, vocabulary=300), micro_batch=2,
                    iterations=1, workers=3, samples=50, seed=7)
        lines = []
        for iteration in (0, 1, 7, 8, 17):
            for micro_batch in range(3):
                inputs, targets = (" ".join(str(token) for sample in side for token in sample)
                                   for side in tokens_of(case, iteration, micro_batch))
                lines.append(f"{iteration} {micro_batch}: {inputs} -> {targets}\n")
        golden = os.path.join(ROOT, "tests/bench/golden/random_batches.txt")
        with open(golden, encoding="ascii") as file:
            self.assertEqual(file.read(), "".join(lines))

    def test_order_of_an_epoch_is_that_of_dataset_test(self) -> None:
        self.assertEqual(epoch_order(0, 0, 8), (4, 6, 1, 2, 3, 0, 5, 7))
        self.assertEqual(epoch_order(7, 3, 8), (3, 4, 6, 0, 1, 7, 2, 5))


class CasesTest(unittest.TestCase):
    def test_parameters_of_the_issue(self) -> None:
        self.assertEqual(CASES["8x512-small"].shape.parameters, 25515008)  # as a run prints it
        millions = [round(case.shape.parameters / 1e6) for case in CASES.values()]
        self.assertEqual(millions, [26, 26, 152])

    def test_every_peer_has_its_wrapping(self) -> None:
        with open(os.path.join(ROOT, "bench/peers/wrappings.py"), encoding="utf-8") as file:
            wrappings = file.read()
        for configuration in CONFIGURATIONS.values():
            if not configuration.is_ring:
                name = configuration.name.removesuffix("+jemalloc")
                self.assertIn(f"\ndef {name}(spec: RunSpec", wrappings)

    def test_memory_cases_have_the_same_layers_for_the_same_stages(self) -> None:
        self.assertEqual({case.shape.layers for case in MEMORY_CASES}, {8})


class RingTest(InFolder):
    """With the program itself: what the bench relies on."""

    def test_initial_parameters_and_losses_of_a_rule(self) -> None:
        runner = Runner(PROGRAM, self.folder, 120)
        runner.dump_initial(TINY)
        tensors = {name: (shape, values) for name, shape, values in tensors_in(runner.initial)}
        ones = struct.pack("<64f", *[1.0] * 64)  # as initialised: not trained
        self.assertEqual(tensors["block1.mlp.norm.weight"], ((64,), ones))
        shape, token = tensors["embedding.token"]
        self.assertEqual(shape, (40, 64))
        self.assertLess(max(map(abs, struct.unpack("<2560f", token))), 0.02 * 6)
        self.assertEqual(len(tensors), 2 + 12 * 2 + 3)
        done = runner.run(CONFIGURATIONS["dp"], TINY, iterations=5)
        self.assertEqual(len(done.losses), 2)
        self.assertAlmostEqual(done.losses[0], 3.69, delta=0.1)  # ln 40
        self.assertLess(done.step_min, done.step_max)
        self.assertLess(0, done.cpu_seconds_per_step)
        # Four values a parameter, and the gradients that wait.
        forecast = runner.forecast_bytes(CONFIGURATIONS["dp"], TINY)
        self.assertGreater(forecast, 16 * TINY.shape.parameters)
        self.assertLess(forecast, 24 * TINY.shape.parameters)
        floor = runner.run(CONFIGURATIONS["floor"], TINY, iterations=5)
        self.assertEqual(floor.losses, [])
        self.assertLess(0, floor.step_median)

    def test_a_program_that_fails_is_told_of(self) -> None:
        broken = Case("broken", Shape(layers=2, dim=65, sequence=8), micro_batch=1, iterations=1,
                      workers=0)
        told = r"dp \(broken\): ended with exit code 2; its last lines:\n.*cyclic.workers"
        with self.assertRaisesRegex(BenchError, told):
            Runner(PROGRAM, self.folder, 60).run(CONFIGURATIONS["dp"], broken, iterations=1)

    def test_forecast_of_a_plan(self) -> None:
        plan = ("rule dp\ntotal 5 stages\n\nmemory       bytes, host  bytes/parameter\n"
                "masters   7   1.00\ntotal           12345678            20.14\nwarning: none\n")
        self.assertEqual(forecast_in(plan), 12345678)
        with self.assertRaisesRegex(BenchError, "no table of memory"):
            forecast_in("rule dp\n")


class LossesTest(unittest.TestCase):
    def test_agreement(self) -> None:
        for distance in (0, 0.5 * TOLERANCE):
            losses = {"dp": [5.6, 5.7], "ddp": [5.6, 5.7 * (1 + distance)], "cdp_v1": [5.6]}
            self.assertAlmostEqual(check_losses(losses), distance)
        self.assertEqual(check_losses({}), 0)

    def test_names_who_differs(self) -> None:
        good = [5.634084, 5.743018, 5.734418]
        for bad in ([5.634084, 5.743018, 5.735347],  # what clipping by a norm of 1 does
                    [5.634184, 5.743018, 5.734418], [5.634084, float("nan"), 5.734418]):
            told = "iteration [012]: fsdp2 should be within 1e-05 of 5\\.[0-9]+ "
            with self.assertRaisesRegex(BenchError, told):
                check_losses({"dp": good, "ddp": good, "fsdp2": bad})

    def test_one_alone_agrees_with_nobody(self) -> None:
        with self.assertRaisesRegex(BenchError, "only ddp has one of iteration 0"):
            check_losses({"ddp": [5.6]})
        with self.assertRaisesRegex(BenchError, "only ddp has one of iteration 1"):
            check_losses({"ddp": [5.6, 5.7], "cdp_v1": [5.6]})


class ResultsTest(InFolder):
    def result(self) -> CaseResult:
        names = ("floor", "dp", "fsdp2", "fsdp2+jemalloc")
        steps = ((1.0, 1.5, 3.0, 4.5), (2.0, 4.0, 9.0, 8.0), (1.0, 1.2, 3.0, 2.4))
        rounds = [dict(zip(names, map(report, each))) for each in steps]
        rounds[1]["dp"] = report(4.0, step_min=0.1)
        return CaseResult(case=TINY, iterations=2, losses={}, worst_loss_difference=3e-8,
                          rounds=rounds, pss_mib=dict(zip(names, (100.0, 300.0, 2000.0, 1900.0))))

    def test_ratios_are_taken_within_rounds(self) -> None:
        rounds = self.result().rounds
        self.assertEqual(paired_ratio(rounds, ["dp"], "floor"), 1.5)  # of 1.5, 2, 1.2
        self.assertEqual(paired_ratio(rounds, ["fsdp2"], "dp"), 2.25)  # of 2, 2.25, 2.5
        faster = ["fsdp2", "fsdp2+jemalloc"]
        self.assertEqual(paired_ratio(rounds, faster, "dp"), 2.0)  # of 2, 2, 2
        self.assertIsNone(paired_ratio(rounds, ["ddp"], "dp"))
        self.assertIsNone(paired_ratio(rounds, ["dp"], "ddp"))

    def test_means_of_ratios_over_the_program(self) -> None:
        rounds = self.result().rounds
        words = " ".join(" ".join(over_program(rounds)).split())
        of = "2.241 (1.975 to 2.542)"  # of 2, 2.25, 2.5
        self.assertIn(f"FSDP2 | {of} | {of}", words)
        self.assertEqual(over_program(rounds[:1]), [])
        self.assertEqual(over_program([{"fsdp2": report(1.0)}] * 2), [])

    def test_rows(self) -> None:
        rows = {row.label: row for row in make_rows(self.result(), {"dp": MemorySlope(20.0, 60.0)})}
        self.assertEqual(list(rows), ["floor (RingZero alone)", "RingZero dp", "FSDP2",
                                      "FSDP2, jemalloc"])
        dp = rows["RingZero dp"]
        self.assertEqual((dp.step_median, dp.step_min, dp.step_max), (1.5, 0.1, 8.0))
        self.assertAlmostEqual(dp.tokens_per_second, 2 * 2 * 8 / 1.5)
        self.assertEqual((dp.cpu_seconds, dp.faults), (3.0, 20.0))
        self.assertEqual((dp.over_floor, dp.fsdp2_over_this, dp.ddp_over_this), (1.5, 2.0, None))
        self.assertEqual((dp.pss_mib, dp.training_mib, dp.bytes_per_parameter), (300, 240, 20))
        self.assertEqual(rows["FSDP2"].fsdp2_over_this, 8 / 9)  # of 1, 8/9, 0.8

    def test_slope(self) -> None:
        points = [(2**10, 101.0), (2**20, 200.0), (2**21, 224.0)]
        slope = memory_slope(points)
        self.assertEqual(slope.bytes_per_parameter, 24.0)
        self.assertAlmostEqual(slope.base_mib, 101 - 24 / 1024)
        self.assertIsNone(slope.forecast)
        self.assertEqual(memory_slope(points, [0, 2**20, 24 * 2**20]).forecast, 23.0)

    def test_table_and_picture(self) -> None:
        result = self.result()
        rows = make_rows(result, {})
        table = step_table(rows)
        self.assertEqual(len({len(line) for line in table}), 1)
        self.assertTrue(table[3].startswith("| RingZero dp            |          1.500 | 0.100 |  8.000 "
                                            "|       21 |"), table)
        about = {"cores": 2, "processor": "P", "torch": "T", "deepspeed": "D", "revision": "R"}
        slopes = {"dp": MemorySlope(20.0, 60.0, 19.0)}
        text = "\n".join(page("./rz bench peers --rounds 3", about, [result], slopes))
        for words in ("`./rz bench peers --rounds 3`", "## tiny", "within 3e-08 of each other",
                      "![tiny: seconds per step and memory](peers-tiny.svg)",
                      "| RingZero dp |                20.0 |        19.0 |  1.05 |"):
            self.assertIn(words, text)
        steps, memory = panels(rows)
        self.assertEqual((steps.bars[-1].label, steps.bars[-1].parts),
                         (rows[-1].label, {"peers": rows[-1].step_median}))
        self.assertEqual([bar.text for bar in memory.bars], [f"{row.pss_mib:.0f}" for row in rows])

    def test_the_same_numbers_make_the_same_picture(self) -> None:
        series = [Series("dp", [(0, 1), (20, 3)], thin=True)]
        drawn = [Panel("seconds", "ms", series, (0, 4), [("1", 1.0)]),
                 Panel("MiB", "", bars=[Bar("gpt", {"dp": 3, "rest": 4}, "7", (6, 8), mark=5)])]
        files = []
        for name in ("a.svg", "b.svg"):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                write(self.path(name), "a < b", drawn)
            if "No module named 'matplotlib'" in said.getvalue():
                self.skipTest("matplotlib is not installed (Debian's package python3-matplotlib)")
            with open(self.path(name), encoding="utf-8") as file:
                files.append(file.read())
        self.assertIn("a &lt; b", files[0])
        self.assertEqual(*files)


class MemoryTest(unittest.TestCase):
    def test_pages_are_counted_once(self) -> None:
        """A process and its child with 64 MiB between them: the sum grows by that, not twice."""
        program = ("import mmap,os,sys; m = mmap.mmap(-1, 64 << 20)\n"
                   "for i in range(0, 64 << 20, 4096): m[i] = 1\n"
                   "c = os.fork()\nsum(m[i] for i in range(0, 64 << 20, 4096))\n"
                   "print(flush=True)\nsys.stdin.read()")
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            assert process.stdout and process.stdin
            process.stdout.readline(), process.stdout.readline()
            watch = PeakWatch()
            watch.sample([process.pid])
            self.assertGreater(watch.peak_mib, 64)
            self.assertLess(watch.peak_mib, 64 + 40)
            process.stdin.close()
            self.assertEqual(process.wait(30), 0)  # it goes on after it was stopped
        self.assertEqual(pss_mib(process.pid), 0)


class ProcessesTest(InFolder):
    def command(self, name: str, program: str) -> Command:
        argv = [sys.executable, "-c", program]
        return Command(name, argv, {"NAME": name}, self.path(f"{name}.log"))

    def test_runs_to_the_end(self) -> None:
        program = "import os; print(os.environ['NAME'])"
        run_group([self.command(name, program) for name in ("a", "b")], 60)
        for name in ("a", "b"):
            with open(self.path(f"{name}.log"), encoding="ascii") as log:
                self.assertEqual(log.read(), name + "\n")

    def test_one_that_fails_ends_all(self) -> None:
        started = time.monotonic()
        commands = [self.command("a", "import time; time.sleep(60)"),
                    self.command("b", "import sys; print('why'); sys.exit(3)")]
        told = "b: ended with exit code 3; its last lines:\n  \\| why"
        with self.assertRaisesRegex(BenchError, told):
            run_group(commands, 50)
        self.assertLess(time.monotonic() - started, 30)

    def test_one_that_hangs_is_named(self) -> None:
        told = "b: not done within 2 s: wanted an end, found it running"
        with self.assertRaisesRegex(BenchError, told):
            run_group([self.command("a", ""), self.command("b", "import time; time.sleep(60)")], 2)


class CommandTest(unittest.TestCase):
    def outcome(self, command, *words: str) -> tuple[int, str]:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            try:
                code = run_command(command.parser(), command.bench, ["--check", *words])
            except SystemExit as end:
                code = int(end.code or 0)
        return code, said.getvalue()

    def test_arguments(self) -> None:
        for command, words in ((peers, "--case 8x512,12x1024 --peers dp,ddp --rounds 2"),
                               (latency, ""), (latency, "--only dp --latency 7.5")):
            self.assertEqual(self.outcome(command, *words.split())[0], 0)
        for command, words, told in (
                (peers, "--case 9x9", "'9x9' is none of 8x512, 8x512-small, 12x1024"),
                (peers, "--peers dp,horovod", "'horovod' is none of floor, cdp_v1"),
                (peers, "--rounds 0", "wanted 1 or more, found 0"),
                (peers, "--round 2", "unrecognized arguments"),
                (latency, "--rounds 0", "--rounds"), (latency, "--only ddp", "'ddp'")):
            code, said = self.outcome(command, *words.split())
            self.assertEqual(code, 2, words)
            self.assertIn(told, said)


# The second round was slow as a whole: what is left of it in a ratio is nothing.
ROUNDS = [dict(zip((("dp", 0), ("dp", 20), (FSDP2, 0), (FSDP2, 20)), map(report, steps)))
          for steps in ((0.1, 0.2, 0.3, 1.5), (0.9, 1.8, 0.9, 4.5), (0.2, 0.4, 0.2, 1.0))]


class LatencyTest(unittest.TestCase):
    def test_medians_and_ratios(self) -> None:
        self.assertEqual(latency.rows_of(ROUNDS, ["dp", FSDP2], [0, 20]), [
            "|       |  0 ms | 20 ms | growth |",
            "| ----- | ----: | ----: | -----: |",
            "| dp    | 0.200 | 0.400 |   2.00 |",
            "| FSDP2 | 0.300 | 1.500 |   5.00 |"])

    def test_the_page_says_what_made_it(self) -> None:
        about = {"cores": 2, "processor": "a processor", "torch": "2.0", "revision": "abc"}
        page = "\n".join(latency.page("./rz bench latency", about, "lines of 10 Gbit/s", ROUNDS,
                                      ["dp", FSDP2], [0, 20]))
        for words in ("`./rz bench latency`", "a processor", "PyTorch 2.0", "RingZero abc",
                      "4 hosts", "1.7 M parameters", "10 Gbit/s", "3 rounds", "| FSDP2 | 0.300",
                      "latency.svg"):
            self.assertIn(words, page)

    def test_picture(self) -> None:
        steps, growth = latency.panels(ROUNDS, ["dp", FSDP2], [0, 20])
        self.assertEqual([(each.label, each.points) for each in steps.series],
                         [("dp", [(0, 0.2), (20, 0.4)]), ("FSDP2", [(0, 0.3), (20, 1.5)])])
        self.assertEqual([each.points[1] for each in growth.series], [(20, 2.0), (20, 5.0)])

    def test_losses_that_differ_end_it(self) -> None:
        same = {"dp": report(1, 5.5, 5.4), "cdp_v1": report(1, 5.5, 5.3),
                FSDP2: report(1, 5.5, 5.9, 5.4)}
        latency.check_all_losses(same)
        for name, *losses in ((FSDP2, 5.6, 5.4), ("cdp_v1", 5.6, 5.3), (FSDP2, 5.5, 5.3)):
            with self.assertRaises(BenchError):
                latency.check_all_losses(same | {name: report(1, *losses)})


def slice_of(worker: int, category: str, op: str, begin: float, end: float) -> dict:
    return {"ph": "X", "pid": worker, "cat": category, "ts": begin, "dur": end - begin,
            "args": {"op": op}}


class ExposedTest(unittest.TestCase):
    def test_a_wait_counts_until_its_update_is_over(self) -> None:
        update = slice_of(1, "updates", "Update s1 t2 v3", 100, 300)
        for name, micros, *wait in (
                ("its own update", 50, 1, "waits", "Update s1 t2 v3", 250, 310),
                ("a copy of that", 100, 0, "waits", "Recv forward s1 t3 l0 v3 w1", 200, 400),
                ("over before it", 0, 0, "waits", "Recv inject s1 t3 l0 v3 w1", 300, 400),
                ("another version", 0, 0, "waits", "Recv forward s1 t3 l0 v2 w1", 200, 400),
                ("a sum", 0, 0, "waits", "Recv sum s1 t3 l0 w1", 200, 400),
                ("too early", 0, 0, "waits", "Recv forward s1 t1 l0 v3 w1", 200, 400)):
            computing = slice_of(0, "computing", "F1 t2 l0 v2", 0, 90)
            found = exposed([update, slice_of(*wait), computing], iterations=4)
            # Two workers, two iterations.
            self.assertAlmostEqual(found.waits, 1e-6 * micros / 2 / 2, msg=name)
            self.assertAlmostEqual(found.updates, 1e-6 * 200 / 2, msg=name)


class CheckpointsTest(unittest.TestCase):
    def test_durable_is_from_the_last_update_of_a_version_to_its_commit(self) -> None:
        def event(operation: str, begin: float, seconds: float) -> dict:
            return {"ph": "X", "ts": 1e6 * begin, "dur": 1e6 * seconds, "args": {"op": operation}}

        events = [event("Commit t10", 4, 3), event("Update s1 t9 v10", 2, 0.5),
                  event("Update s0 t9 v10", 2, 1), event("Update s0 t10 v11", 5, 1), {"ph": "M"},
                  event("Save s0 t10", 2, 1), event("Update s0 t19 v20", 8, 1),
                  event("Commit t20", 9, 0.5), {"ph": "X", "ts": 0, "dur": 1, "args": {}}]
        self.assertEqual(checkpoints.seconds_until_durable(events), [4, 0.5])

    def test_a_form_is_compared_with_its_own_runs_without_saves(self) -> None:
        def found(step: float) -> checkpoints.Found:
            return checkpoints.Found(report(step), [], 0)

        def report(step: float) -> RunReport:
            return RunReport([], step, step, step, step, 0, 0)

        forms = [("RingZero", ""), ("RingZero", "saving"), ("ddp", ""), ("ddp", "torch.save")]
        rounds = [dict(zip(forms, map(found, (0.1, 0.11, 0.3, 0.6)))),
                  dict(zip(forms[:2], map(found, (0.2, 0.22))))]
        extra = {form: [checkpoints.Found(report(9), saves, mib)] for form, saves, mib in
                 zip(forms, ([], [2, 3, 9], [], [7]), (100, 102, 300, 600))}
        extra[forms[1]].append(checkpoints.Found(report(9), [4, 3], 0))  # without memory
        rows = checkpoints.rows(rounds, extra, forms)
        self.assertEqual(rows[1], ["RingZero, saving", "2", "165.0", "1.100", "1.100 to 1.100",
                                   "3.00", "+2"])
        self.assertEqual(rows[3], ["ddp, torch.save", "1", "600.0", "2.000", "-", "7.00", "+300"])


class TakeTurnsTest(unittest.TestCase):
    def test_every_round_begins_with_another_one(self) -> None:
        order: list[str] = []
        with contextlib.redirect_stderr(io.StringIO()) as said:
            found = take_turns(["a", "b", "c"], 4, lambda run: order.append(run) or len(order))
        self.assertEqual(order, [*"abc", *"bca", *"cab", *"abc"])
        self.assertIn("round 1 of 4: c\nround 2 of 4: b\n", said.getvalue())
        self.assertEqual(found[:2], [{"a": 1, "b": 2, "c": 3}, {"b": 4, "c": 5, "a": 6}])

    def test_a_run_that_was_not_alone_is_told(self) -> None:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other, \
                contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                take_turns(["a"], 1, lambda run: time.sleep(1.5))
            finally:
                other.kill()
        self.assertRegex(said.getvalue(), r"other processes took \d+\.\d cores meanwhile")


class RulesStudyTest(unittest.TestCase):
    def test_the_configurations_of_all_cases_are_read_without_their_comments(self) -> None:
        folder = os.path.join(ROOT, "bench", "rules_study")
        for case in study.CASES.values():
            config = read_config(os.path.join(folder, case.config))
            self.assertEqual(config["model"]["type"], case.family)

    def test_what_is_done_is_known_to_the_next_call(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "runs.jsonl")
            runs = [("dp", "plain", 1, 0.1, seed) for seed in (1, 2, 3)]
            results = study.Results(path)
            results.keep("text", runs[0], [3.0, 2.5])
            results.keep("text", runs[1], [3.0, float("inf")])
            for known in (results, study.Results(path)):
                self.assertEqual([known.of("text", run) for run in runs], [2.5, float("inf"), None])
                self.assertIsNone(known.of("images", runs[0]))

    def test_rates_come_first_then_seeds_of_all_forms(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            results = study.Results(os.path.join(folder, "runs.jsonl"))
            rates = list(results.missing("text-muon", 2, 5))
            self.assertEqual({turn for turn, _ in rates}, {0})
            self.assertEqual({run[3] for _, run in rates}, set(study.CASES["text-muon"].rates))
            for _, run in rates:
                results.keep("text-muon", run, [abs(run[3] - 0.01)])
            turns = collections.Counter(turn for turn, _ in results.missing("text-muon", 2, 5))
            self.assertEqual(turns, {1: 4, 2: 6, 3: 6, 4: 3, 5: 3}, "dp and cdp_v2 with both are tuned with seed 1")
            self.assertEqual({run[3] for _, run in results.missing("text-muon", 2, 5)}, {0.01}, "the best rate")

    def test_a_row_of_the_table_turns_loss_into_updates(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            results, form = study.Results(os.path.join(folder, "runs.jsonl")), ("cdp_v2", "both")
            for rate in study.CASES["text"].rates:
                for each in (study.DP, form):
                    results.keep("text", (*each, 1, rate, 1), [2.0 + 100 * rate])
            best, seeds = min(study.CASES["text"].rates), (1, 2, 3)
            self.assertIsNone(study.table_row(results, "text", form, 1), "one seed")
            worth = 0.1 * math.log(1.25)  # of the updates that the shorter run has not
            for seed in seeds:
                results.keep("text", (*study.DP, 1, best, seed), [2.0])
                results.keep("text", (*study.SHORTER, 1, best, seed), [2.0 + worth + seed * 1e-9])
                results.keep("text", (*form, 1, best, seed), [2.0 + 0.1 * math.log(1 + seed / 10)])
            row = study.table_row(results, "text", form, 1)
            self.assertAlmostEqual(row["updates"], (1.1 * 1.2 * 1.3) ** (1 / 3), places=3)
            self.assertLess(row["least"], row["updates"])
            self.assertGreater(row["most"], row["updates"])
            self.assertEqual((row["rule"], row["strict"], row["batch"], row["warmup_updates"], row["predict"],
                              row["seeds"]), ("cdp_v2", False, 4, 300, True, 3))
            for seed in seeds:
                results.keep("text", (*study.SHORTER, 1, best, seed), [1.9])
            self.assertIsNone(study.table_row(results, "text", form, 1), "more updates were worth nothing")

    def test_the_interval_is_students(self) -> None:
        low, high = study.interval([1.0, 2.0, 3.0])
        self.assertAlmostEqual(low, 2 - 4.303 / 3 ** 0.5)
        self.assertAlmostEqual(high, 2 + 4.303 / 3 ** 0.5)
        self.assertIsNone(study.interval([1.0]))
        self.assertIsNone(study.interval([1.0, float("inf")]))


class RequirementsTest(unittest.TestCase):
    def test_all_are_pinned_with_hashes_and_torch_is_ringzeros(self) -> None:
        torch = {}
        for path in ("bench/peers/requirements.txt", "bench/peers/requirements-deepspeed.txt",
                     "cmake/requirements.txt"):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                text = "".join(line for line in file if not line.startswith("#")).replace("\\\n", "")
            for line in text.splitlines():
                self.assertRegex(line, r"^[a-z0-9-]+==[0-9.]+( +--hash=sha256:[0-9a-f]{64}){1,2}$")
                if line.startswith("torch=="):
                    torch[path] = line.split()[:2]  # its version, and the hash of the wheel for x86-64
        self.assertEqual(torch["bench/peers/requirements.txt"], torch["cmake/requirements.txt"])


if __name__ == "__main__":
    unittest.main()
