#!/usr/bin/env python3
"""bench/latency without PyTorch and without hosts: its table, its picture, its arguments."""
import contextlib
import io
import os
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "tests")]
sys.dont_write_bytecode = True

from latency import __main__ as command  # noqa: E402
from latency.__main__ import FSDP2  # noqa: E402
from peers.runs import RunReport  # noqa: E402
from ring_run import BenchError, run_command  # noqa: E402


def report(seconds: float, *losses: float) -> RunReport:
    return RunReport(losses=list(losses or (5.5, 5.4)), step_median=seconds, step_min=seconds, step_max=seconds,
                     step_mean=seconds, cpu_seconds_per_step=seconds, minor_faults_per_step=0)


# The second round was slow as a whole: what is left of it in a ratio is nothing.
ROUNDS = [{("dp", 0): report(0.1), ("dp", 20): report(0.2), (FSDP2, 0): report(0.3), (FSDP2, 20): report(1.5)},
          {("dp", 0): report(0.9), ("dp", 20): report(1.8), (FSDP2, 0): report(0.9), (FSDP2, 20): report(4.5)},
          {("dp", 0): report(0.2), ("dp", 20): report(0.4), (FSDP2, 0): report(0.2), (FSDP2, 20): report(1.0)}]


class TableTest(unittest.TestCase):
    def test_medians_and_ratios(self) -> None:
        self.assertEqual(command.rows_of(ROUNDS, ["dp", FSDP2], [0, 20]), [
            "|       |  0 ms | 20 ms | growth |",
            "| ----- | ----: | ----: | -----: |",
            "| dp    | 0.200 | 0.400 |   2.00 |",
            "| FSDP2 | 0.300 | 1.500 |   5.00 |"])

    def test_the_page_says_what_made_it(self) -> None:
        about = {"cores": 2, "processor": "a processor", "torch": "2.0", "revision": "abc"}
        page = "\n".join(command.page("./rz bench latency", about, "lines of 10 Gbit/s", ROUNDS, ["dp", FSDP2], [0, 20]))
        for words in ("`./rz bench latency`", "a processor", "PyTorch 2.0", "RingZero abc", "4 hosts", "1.7 M parameters", "10 Gbit/s", "3 rounds",
                      "| FSDP2 | 0.300", "latency.svg"):
            self.assertIn(words, page)

    def test_picture(self) -> None:
        steps, growth = command.panels(ROUNDS, ["dp", FSDP2], [0, 20])
        self.assertEqual([(each.label, each.points) for each in steps.series],
                         [("dp", [(0, 0.2), (20, 0.4)]), ("FSDP2", [(0, 0.3), (20, 1.5)])])
        self.assertEqual([each.points[1] for each in growth.series], [(20, 2.0), (20, 5.0)])


class CommandTest(unittest.TestCase):
    def outcome(self, *words: str) -> int:
        return run_command(command.parser(), command.bench, [*words, "--check"])

    def refused(self, *words: str) -> str:
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as ended:
            self.outcome(*words)
        self.assertEqual(ended.exception.code, 2)
        return said.getvalue()

    def test_arguments(self) -> None:
        self.assertEqual(self.outcome(), 0)
        self.assertEqual(self.outcome("--only", "dp", "--latency", "7.5"), 0)
        self.assertIn("--rounds", self.refused("--rounds", "0"))
        self.assertIn("'ddp'", self.refused("--only", "ddp"))

    def test_losses_that_differ_end_it(self) -> None:
        same = {"dp": report(1, 5.5, 5.4), "cdp_v1": report(1, 5.5, 5.3), FSDP2: report(1, 5.5, 5.9, 5.4)}
        command.check_all_losses(same)
        for name, other in ((FSDP2, report(1, 5.6, 5.4)), ("cdp_v1", report(1, 5.6, 5.3)), (FSDP2, report(1, 5.5, 5.3))):
            with self.assertRaises(BenchError):
                command.check_all_losses(same | {name: other})


if __name__ == "__main__":
    unittest.main()
