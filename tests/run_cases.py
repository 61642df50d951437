#!/usr/bin/env python3
"""Runs the unittest cases of a file, and writes down each test method as GoogleTest does (cmake/count_tests.py counts them):

    run_cases.py --gtest_output=xml:RESULTS.xml tests/cli/metrics_test.py [CLASS ...]

Exit code: 0 when none failed, else 1. A skipped method is printed with its reason.
"""
import importlib.util
import os
import sys
import unittest
import xml.etree.ElementTree as ElementTree

OUTPUT = "--gtest_output=xml:"
PASSED, FAILED = object(), object()


def methods(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from methods(test)
        else:
            yield test


class Outcomes(unittest.TextTestResult):
    """What became of each method, by its id. A skipped class or module has an id, too: "setUpClass (metrics_test.Metrics)"."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.ends = {}  # PASSED, FAILED, or why it was skipped

    def startTest(self, test):
        super().startTest(test)
        self.ends[test.id()] = PASSED

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.ends[getattr(test, "test_case", test).id()] = reason

    def addError(self, test, err):
        super().addError(test, err)
        self.ends[test.id()] = FAILED

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.ends[test.id()] = FAILED

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.ends[test.id()] = FAILED

    def end_of(self, test):
        name = f"{type(test).__module__}.{type(test).__qualname__}"
        places = (test.id(), f"setUpClass ({name})", f"setUpModule ({type(test).__module__})")
        return next((self.ends[place] for place in places if place in self.ends), FAILED)


def write(file, tests, outcomes):
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite")
    for test in tests:
        names = {"classname": type(test).__name__, "name": test.id().rpartition(".")[2]}
        end = outcomes.end_of(test)
        skipped = end not in (PASSED, FAILED)
        case = ElementTree.SubElement(suite, "testcase", names, result="skipped" if skipped else "completed")
        if end is FAILED:
            ElementTree.SubElement(case, "failure")
        elif skipped:
            ElementTree.SubElement(case, "skipped", message=end)
            print(f"SKIPPED {names['classname']}.{names['name']}: {end}")
    os.makedirs(os.path.dirname(file), exist_ok=True)
    ElementTree.ElementTree(suites).write(file, encoding="utf-8", xml_declaration=True)


def main(output, file, *classes):
    sys.path[0] = os.path.dirname(os.path.abspath(file))
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(file))[0], file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromNames(classes, module) if classes else loader.loadTestsFromModule(module)
    tests = list(methods(suite))
    outcomes = unittest.TextTestRunner(resultclass=Outcomes).run(suite)
    write(output.removeprefix(OUTPUT), tests, outcomes)
    return 0 if outcomes.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
