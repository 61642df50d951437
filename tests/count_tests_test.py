#!/usr/bin/env python3
"""The totals that ./rz test prints: nothing that did not pass may count as passed."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "cmake", "count_tests.py")

# As ctest 3.25 writes it.
CTEST = """<?xml version="1.0" encoding="UTF-8"?><testsuite name="x">
<testcase name="lint" status="run"/>
<testcase name="lint_bad" status="fail"><failure message=""/></testcase>
<testcase name="lint_skipped" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
<testcase name="lint_absent" status="notrun"><skipped message="Unable to find executable"/></testcase>
<testcase name="lint_off" status="disabled"/>
<testcase name="good" status="run"/>
<testcase name="bad" status="fail"><failure message=""/></testcase>
<testcase name="crashed" status="fail"><failure message=""/></testcase>
<testcase name="left_early" status="run"/>
<testcase name="torn" status="run"/>
<testcase name="leaked" status="fail"><failure message=""/></testcase>
</testsuite>"""

# As GoogleTest 1.12 writes it.
CASE = '<testcase name="{}" status="run" result="completed" classname="A">{}</testcase>'
PASS, FAIL = CASE.format("P", ""), CASE.format("F", '<failure message="m" type=""/>')
SKIP = '<testcase name="S" status="run" result="skipped" classname="A"><skipped message="a.cc:7&#xA;no GPU"/></testcase>'
OFF = '<testcase name="DISABLED_D" status="notrun" result="suppressed" classname="A"/>'
SUITES = "<testsuites><testsuite name='A'>{}</testsuite></testsuites>"
RESULTS = {
    "good": SUITES.format(PASS + PASS + SKIP + OFF),
    "bad": SUITES.format(PASS + FAIL),
    "torn": SUITES.format(PASS)[:-5],
    "leaked": SUITES.format(PASS),
}


# Each method counts: those of a skipped class, and one that fails or is skipped in a subtest.
PYTHON = """
import unittest

class Some(unittest.TestCase):
    def test_passes(self):
        with self.subTest("one"):
            pass
    def test_fails(self):
        with self.subTest("one"):
            self.fail()
    def test_breaks(self):
        raise ValueError
    def test_is_skipped(self):
        with self.subTest("one"):
            self.skipTest("no browser")

@unittest.skip("no torch")
class Marked(unittest.TestCase):
    def test_a(self):
        self.fail()

class NeedsMore(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest("no hosts")
    def test_a(self):
        self.fail()
    def test_b(self):
        self.fail()

class Broken(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise OSError
    def test_a(self):
        pass
"""


def run_cases(root, *classes):
    """Exit code and result file of a run of PYTHON's cases."""
    file, output = os.path.join(root, "some_test.py"), os.path.join(root, "results", "out.xml")
    with open(file, "w", encoding="utf-8") as out:
        out.write(PYTHON)
    done = subprocess.run([sys.executable, os.path.join(HERE, "run_cases.py"), "--gtest_output=xml:" + output, file, *classes],
                          capture_output=True, text=True, check=False)
    with open(output, encoding="utf-8") as written:
        return done.returncode, done.stdout.splitlines(), written.read()


def run(root, ctest, results):
    folder = os.path.join(root, "release")
    os.makedirs(os.path.join(folder, "test-results"), exist_ok=True)
    tests = [{"name": "lint", "command": ["lint"]}, {"name": "lint_absent"}]
    for name in ("good", "bad", "crashed", "left_early", "torn", "leaked"):
        file = os.path.join(folder, "test-results", name + ".xml")
        tests.append({"name": name, "command": [name, "--gtest_output=xml:" + file]})
        if name in results:
            with open(file, "w", encoding="utf-8") as out:
                out.write(results[name])
    for file, text in (("ctest.xml", ctest), ("entries.json", json.dumps({"tests": tests}))):
        with open(os.path.join(folder, "test-results", file), "w", encoding="utf-8") as out:
            out.write(text)
    done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def expect(what, actual, expected):
    if actual != expected:
        sys.exit(f"{what}: expected {expected!r}, got {actual!r}")


def main():
    with tempfile.TemporaryDirectory() as root:
        code, lines = run(root, CTEST, RESULTS)
        # Passed: lint, good 2, bad 1, leaked 1. Failed: lint_bad, lint_absent, bad 1, crashed, left_early, torn, leaked.
        # Skipped: lint_skipped, lint_off, good 2.
        expect("totals", lines[-1], "5 passed, 7 failed, 4 skipped")
        expect("exit code with failures", code, 1)
        expect("a failed case is named", "FAILED: release: bad: A.F" in lines, True)
        expect("a skipped case says why", "SKIPPED: release: good: A.S: no GPU" in lines, True)
    with tempfile.TemporaryDirectory() as root:
        code, lines = run(root, '<testsuite><testcase name="good" status="run"/></testsuite>', RESULTS)
        expect("totals", (code, lines[-1]), (0, "2 passed, 0 failed, 2 skipped"))
    with tempfile.TemporaryDirectory() as root:
        code, said, cases = run_cases(root)
        expect("a failed method is the exit code", code, 1)
        expect("skipped methods", sorted(said), ["SKIPPED Marked.test_a: no torch", "SKIPPED NeedsMore.test_a: no hosts",
                                                 "SKIPPED NeedsMore.test_b: no hosts", "SKIPPED Some.test_is_skipped: no browser"])
        code, lines = run(root, '<testsuite><testcase name="bad" status="fail"/></testsuite>', {"bad": cases})
        expect("methods", lines[-1], "1 passed, 3 failed, 4 skipped")
        expect("a skipped method", "SKIPPED: release: bad: NeedsMore.test_b: no hosts" in lines, True)
        code, _, cases = run_cases(root, "Marked", "NeedsMore")
        expect("skipped methods are no failure", (code, cases.count("<testcase")), (0, 3))
    with tempfile.TemporaryDirectory() as root:
        code, lines = run(root, "<testsuite/>", {})
        expect("nothing ran", (code, lines), (1, ["0 passed, 0 failed, 0 skipped"]))


if __name__ == "__main__":
    main()
