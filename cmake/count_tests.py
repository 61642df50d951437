#!/usr/bin/env python3
"""Adds up the results of ctest runs: count_tests.py BUILD_FOLDER... prints 'N passed, N failed, N skipped' last.

Each folder holds test-results/ctest.xml (JUnit, from ctest) and, for every GoogleTest entry, test-results/<entry>.xml.
A GoogleTest entry counts by its cases; any other entry, and one that died before it wrote its cases, counts as one.
A disabled case is a skipped one. Exit code: 0 when nothing failed and something passed, else 1.
"""
import os
import sys
import xml.etree.ElementTree as ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def case_result(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return FAILED
    if case.find("skipped") is not None or case.get("status") == "notrun" or case.get("result") != "completed":
        return SKIPPED
    return PASSED


def entry_result(entry):
    """The result of a ctest entry, by ctest's own account."""
    if entry.get("status") == "run":
        return PASSED
    skipped = entry.find("skipped")
    if skipped is not None and "SKIP_" in skipped.get("message", ""):
        return SKIPPED
    return FAILED  # failed, timed out, or not run because its executable or a fixture is missing


def count(folder):
    """Yields (result, name) for every case of one build folder."""
    results = os.path.join(folder, "test-results")
    for entry in ElementTree.parse(os.path.join(results, "ctest.xml")).getroot().iter("testcase"):
        name = entry.get("name")
        outcome = entry_result(entry)
        cases = []
        if os.path.exists(os.path.join(results, name + ".xml")):
            root = ElementTree.parse(os.path.join(results, name + ".xml")).getroot()
            cases = [(case_result(case), name + ": " + case.get("classname", "") + "." + case.get("name", ""))
                     for case in root.iter("testcase")]
        yield from cases
        # Failed though no case did: it crashed, hung or was stopped by a sanitizer.
        if not cases or (outcome == FAILED and all(result != FAILED for result, _ in cases)):
            yield outcome, name


def main(folders):
    totals = {PASSED: 0, FAILED: 0, SKIPPED: 0}
    for folder in folders:
        for result, name in count(folder):
            totals[result] += 1
            if result != PASSED:
                print(f"{result}: {os.path.basename(folder)}: {name}")
    print(f"{totals[PASSED]} passed, {totals[FAILED]} failed, {totals[SKIPPED]} skipped")
    return 0 if totals[PASSED] and not totals[FAILED] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
