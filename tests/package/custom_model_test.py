#!/usr/bin/env python3
"""examples/custom_model as a stranger's project: against what `cmake --install` leaves, found by CMAKE_PREFIX_PATH."""
import os
import unittest

from project import BUILD, ROOT, TestCase


class CustomModel(TestCase):
    def test_builds_and_learns(self):
        self.install(BUILD, self.path("prefix"))
        self.check_custom_model(self.path("prefix"))

    def test_is_short(self):
        with open(os.path.join(ROOT, "examples", "custom_model", "custom_model.cc"), encoding="utf-8") as file:
            self.assertLess(len(file.readlines()), 80)


if __name__ == "__main__":
    unittest.main()
