#!/usr/bin/env python3
"""Adds up the results of ctest runs: count_tests.py BUILD_FOLDER... prints 'N passed, N failed, N skipped' last.

Each folder holds, in test-results/: ctest.xml (ctest's --output-junit), entries.json (ctest's --show-only=json-v1) and,
for every entry that runs GoogleTest, a Python file's cases (tests/run_cases.py) or pytest, the file that its --gtest_output or
--junitxml names.
Such an entry counts by its cases; one that left no readable file has failed, whatever its exit code (a test may have called
exit). Any other entry counts as one. A disabled case is a skipped one. What did not pass is listed, a skipped case with its
reason. Exit code: 0 when nothing failed and something passed, else 1.
"""
import json
import os
import sys
import xml.etree.ElementTree as ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
OUTPUTS = ("--gtest_output=xml:", "--junitxml=")


def case_result(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return FAILED
    if case.find("skipped") is not None:
        return SKIPPED
    return PASSED if case.get("result", "completed") == "completed" else SKIPPED  # pytest has no results


def case_name(case):
    """With the reason, if it was skipped: GoogleTest's begins with a line for the place in the source."""
    skipped = case.find("skipped")
    reason = "" if skipped is None else skipped.get("message", "").strip().rpartition("\n")[2]
    return f"{case.get('classname')}.{case.get('name')}" + (f": {reason}" if reason else "")


def entry_result(entry):
    """The result of a ctest entry, by ctest's own account."""
    if entry.get("status") == "run":
        return PASSED
    skipped = entry.find("skipped")
    if entry.get("status") == "disabled" or (skipped is not None and "SKIP_" in skipped.get("message", "")):
        return SKIPPED
    return FAILED  # failed, timed out, or not run because its executable is missing


def read_cases(file):
    """(result, name) of every case in a result file; none when there is no whole file."""
    try:
        cases = ElementTree.parse(file).getroot().iter("testcase")
    except (OSError, ElementTree.ParseError):
        return []
    return [(case_result(case), case_name(case)) for case in cases]


def count(folder):
    """Yields (result, name) for all that ran in one build folder."""
    results = os.path.join(folder, "test-results")
    with open(os.path.join(results, "entries.json"), encoding="utf-8") as file:
        entries = json.load(file)["tests"]
    outputs = {entry["name"]: argument.removeprefix(known)
               for entry in entries for argument in entry.get("command", []) for known in OUTPUTS if argument.startswith(known)}
    for entry in ElementTree.parse(os.path.join(results, "ctest.xml")).getroot().iter("testcase"):
        name, outcome = entry.get("name"), entry_result(entry)
        if name not in outputs:
            yield outcome, name
            continue
        cases = read_cases(outputs[name])
        for result, case in cases:
            yield result, f"{name}: {case}"
        # It crashed, hung, left early, or a sanitizer stopped it: a failure that no case tells of.
        if not cases or (outcome == FAILED and all(result != FAILED for result, _ in cases)):
            yield FAILED, f"{name}: did not end well (its output is above)"


def main(folders):
    totals = {PASSED: 0, FAILED: 0, SKIPPED: 0}
    for folder in folders:
        for result, name in count(folder):
            totals[result] += 1
            if result != PASSED:
                print(f"{result.upper()}: {os.path.basename(folder)}: {name}")
    print(f"{totals[PASSED]} passed, {totals[FAILED]} failed, {totals[SKIPPED]} skipped")
    return 0 if totals[PASSED] and not totals[FAILED] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
