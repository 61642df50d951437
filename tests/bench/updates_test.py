#!/usr/bin/env python3
"""bench/updates without a run: which waits count, and in what order configurations take turns."""
import contextlib
import io
import os
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
sys.dont_write_bytecode = True

from ring_run import take_turns  # noqa: E402
from updates.exposed import exposed  # noqa: E402


def slice_of(worker: int, category: str, op: str, begin: float, end: float) -> dict:
    return {"ph": "X", "pid": worker, "cat": category, "ts": begin, "dur": end - begin, "args": {"op": op}}


class ExposedTest(unittest.TestCase):
    def test_a_wait_counts_until_its_update_is_over(self) -> None:
        update = slice_of(1, "updates", "Update s1 t2 v3", 100, 300)
        cases = {
            "its own update": (slice_of(1, "waits", "Update s1 t2 v3", 250, 310), 50),
            "a copy of what it made": (slice_of(0, "waits", "Recv forward s1 t3 l0 v3 w1", 200, 400), 100),
            "over before the wait": (slice_of(0, "waits", "Recv inject s1 t3 l0 v3 w1", 300, 400), 0),
            "another version": (slice_of(0, "waits", "Recv forward s1 t3 l0 v2 w1", 200, 400), 0),
            "a sum": (slice_of(0, "waits", "Recv sum s1 t3 l0 w1", 200, 400), 0),
            "of the first two iterations": (slice_of(0, "waits", "Recv forward s1 t1 l0 v3 w1", 200, 400), 0)}
        for name, (wait, micros) in cases.items():
            found = exposed([update, wait, slice_of(0, "computing", "F1 t2 l0 v2", 0, 90)], iterations=4)
            self.assertAlmostEqual(found.waits, 1e-6 * micros / 2 / 2, msg=name)  # two workers, two iterations
            self.assertAlmostEqual(found.updates, 1e-6 * 200 / 2, msg=name)


class TakeTurnsTest(unittest.TestCase):
    def test_every_round_begins_with_another_one(self) -> None:
        order: list[str] = []
        with contextlib.redirect_stderr(io.StringIO()) as said:
            found = take_turns(["a", "b", "c"], 2, lambda run: order.append(run) or len(order))
        self.assertEqual(order, ["a", "b", "c", "b", "c", "a"])
        self.assertIn("round 1 of 2: c\nround 2 of 2: b\n", said.getvalue())
        self.assertEqual(found, [{"a": 1, "b": 2, "c": 3}, {"b": 4, "c": 5, "a": 6}])


if __name__ == "__main__":
    unittest.main()
