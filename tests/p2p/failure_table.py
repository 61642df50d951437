#!/usr/bin/env python3
"""Runs tests/p2p/strike_test.cc and prints the failure table of docs/p2p.md: what was killed or stopped, what the others noticed, when.

usage: tests/p2p/failure_table.py [P2P_TEST]      RINGZERO_TEST_FULL=1: 20 moments per cell instead of one
"""
import json
import subprocess
import sys
import tempfile

VICTIM = {"kill": "`kill -9`", "stop": "`SIGSTOP`"}
MOMENT = {"idle": "idle", "blocks": "in a stream of 64 MiB payloads"}


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/test/bin/p2p_test"
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = subprocess.run([program, "--files=strike_test.cc", f"--gtest_output=json:{file.name}"], stdout=subprocess.DEVNULL, check=False)
        cases = json.load(file)["testsuites"]
    print("| transport | victim | moment | survivors that named it | all had ended after |")
    print("| --- | --- | --- | --- | --- |")
    for case in (case for suite in cases for case in suite["testsuite"]):
        transport, victim, moment = case["name"].split("/")[-1].rsplit("_", 2)
        if "failures" in case or "slowest_ms" not in case:
            print(f"| {transport} | {VICTIM[victim]} | {MOMENT[moment]} | **failed** | |")
            continue
        print(f"| {transport} | {VICTIM[victim]} | {MOMENT[moment]} | {case['survivors']} of {case['survivors']} | "
              f"{int(case['slowest_ms']) / 1000:.2f} s |")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
