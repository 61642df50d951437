#!/usr/bin/env python3
"""ring_perf as somebody who knows nccl-tests would use it: flags, the table, files, exit codes, a
worker that dies."""
import contextlib
import csv
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "cli"))
from ringzero import TestCase, children  # noqa: E402

PROGRAM = os.environ.get("RINGZERO_RING_PERF", os.path.join(ROOT, "build", "bin", "ring_perf"))
HALF = ["time", "algbw", "busbw", "#wrong"]
IN_PLACE = [f"in-place {name}" for name in HALF]
COLUMNS = ["size", "count", "type", "redop", "root", *HALF, *IN_PLACE, "copied"]
MODES = ("shift", "relay", "reduce", "pingpong", "stream")
SMALL = ["-b", "8", "-e", "32K", "-f", "64", "-n", "4"]


def plan_text(workers=2, stages=3, rule="cdp_v2", clipping="off", strict=0):
    lines = [f"plan workers {workers} zero_stage 3 laps 1 rule {rule} slack 1 predict 0 pending 1 "
             "window 0 stagger 0 retain 0 exchange 1 iterations 4 "
             f"strict {strict} clipping {clipping} skip_overflows 0 evaluate_every 2 "
             "evaluation_laps 1 collect_every 0 collector 0 collect_versions 0"]
    for stage in range(stages):
        lines.append(f"stage layers {stage} {stage + 1} parameter_bytes 1024 master_bytes 0 "
                     "sum_bytes 1024 buffer_bytes 0 state_bytes 0 trained_parameters 1 costs 1 2 "
                     f"owner {workers - 1 - stage * workers // stages} last_use -1 has_backward 1 "
                     f"name stage{stage}")
    return "\n".join(lines) + "\n"


def table(text):
    """The lines of an nccl-tests table, by the names of its header; what begins with # is no line.
    Names of the second half of its 13 columns begin with "in-place "."""
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    heads = [line[1:].split() for line in text.splitlines() if re.match(r"#\s+size\s", line)]
    assert len(heads) == 1 and heads[0][5:13] == HALF + HALF, text
    names = heads[0][:9] + IN_PLACE + heads[0][13:]
    return [dict(zip(names, row)) for row in rows]


def footer(text):
    out = re.search(r"^# Out of bounds values : (\d+) (OK|FAILED)$", text, re.M)
    bandwidth = re.search(r"^# Avg bus bandwidth    : (\S+) $", text, re.M)
    return int(out[1]), out[2], float(bandwidth[1])


def mean(times):
    return sum(times) / len(times)


def await_header(process):
    for line in process.stdout:
        if "(elements)" in line:
            break


def run(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=120,
                          check=False)


class RingPerfTest(TestCase):
    def run_perf(self, *arguments, code=0):
        done = run("--skip_host", *([] if "train" in arguments else ["--cached"]), *arguments)
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stdout}{done.stderr}")
        return done

    def need_ucx(self):
        done = run("--transport", "ucx", "--workers", 2, "-b", 64, "-e", 64, "-n", 1, "--skip_host")
        if "this build has" in done.stderr:
            self.skipTest("a build without UCX")

    @contextlib.contextmanager
    def running(self, *arguments, environments=({},)):
        """A process for each environment; all are gone at the end."""
        with contextlib.ExitStack() as stack:
            processes = []
            for own in environments:
                processes.append(stack.enter_context(subprocess.Popen(
                    [PROGRAM, *arguments], env={**os.environ, **own}, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)))
                stack.callback(processes[-1].kill)
            yield processes

    def strikes_worker_1(self, number, seconds, words, *arguments):
        with self.running(*arguments) as [process]:
            workers = int(arguments[-1])
            self.wait_until(lambda: len(children(process.pid)) == workers, 60, "workers are there")
            victim = children(process.pid)[1]
            self.loses_a_worker(process, lambda: os.kill(victim, number), seconds, words)

    def loses_a_worker(self, process, strike, seconds, words):
        """It ends in time after the strike, and says so."""
        await_header(process)
        strike()
        began = time.monotonic()
        _, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - began, seconds)
        self.assertEqual(process.returncode, 3, errors)
        self.assertIn(words, errors)

    def test_help_names_nccl_tests_flags(self):
        text = self.run_perf("--help").stdout
        for flag in ("-b,--minbytes", "-e,--maxbytes", "-f,--stepfactor", "-i,--stepbytes",
                     "-n,--iters", "-w,--warmup_iters", "-m,--agg_iters", "-c,--check",
                     "-d,--datatype", "-a,--average", "-T,--timeout", "-J,--output_file",
                     "-S,--report_timestamps", "-N,--run_cycles", "-I,--per_iter_timing"):
            self.assertRegex(text, rf"{flag} ")

    def test_every_mode_over_every_transport(self):
        for transport in ("local", "shm"):
            for mode in MODES:
                for extra in ([], ["--copy", "-m", "3"]):
                    with self.subTest(transport=transport, mode=mode, extra=extra):
                        self.check_mode(transport, mode, extra)

    def check_mode(self, transport, mode, extra):
        workers = 2 if mode in ("pingpong", "stream") else 3
        printed = self.run_perf(*SMALL, "--transport", transport, "--mode", mode, "-c", 2,
                                "--workers", workers, *extra).stdout
        rows = table(printed)
        self.assertEqual([row["size"] for row in rows], ["8", "512", "32768"])
        for row in rows:
            self.assertEqual(list(row), COLUMNS)
            self.assertEqual(int(row["count"]) * 4, int(row["size"]))
            self.assertEqual(row["type"], "float")
            self.assertEqual(row["redop"], "sum" if mode == "reduce" else "none")
            self.assertEqual(row["#wrong"], "0")
            self.assertEqual({row[name] for name in IN_PLACE}, {"N/A"})
            self.assertEqual(row["copied"], "yes" if "--copy" in extra else "no")
            self.assertGreater(float(row["time"]), 0)
        self.assertEqual(footer(printed)[:2], (0, "OK"))
        self.assertIn(f"# nWorkers {workers} mode: {mode} transport: {transport}", printed)
        self.assertRegex(printed, rf"#  Worker  0 Pid +\d+ on +\S+ core any: right {transport}, left")

    def test_bandwidths_follow_from_size_and_time(self):
        for mode, factor in (("shift", 1), ("relay", 3), ("reduce", 3)):
            [row] = table(self.run_perf("-b", "1M", "-e", "1M", "-n", 3, "--mode", mode,
                                        "--workers", 3).stdout)
            algbw = 2 ** 20 / 1e9 / (float(row["time"]) / 1e6)
            for column, wanted in (("algbw", algbw), ("busbw", factor * algbw)):
                self.assertAlmostEqual(float(row[column]), wanted, delta=0.006 + 0.01 * wanted)

    def test_sizes(self):
        for flags, sizes in ((["-b1K", "-e", "4k", "-f", "2"], [1024, 2048, 4096]),
                             (["--minbytes=1K", "--maxbytes", "2K", "-i", "512"], [1024, 1536, 2048]),
                             (["-b", "10", "-e", "10"], [8]),  # whole elements, as in nccl-tests
                             (["-b", "0.5K", "-e", "0.5KB"], [512])):
            done = self.run_perf(*flags, "-n", 1, "-w", 0, "-c", 0, "--transport", "local")
            self.assertEqual([int(row["size"]) for row in table(done.stdout)], sizes)

    def test_optional_columns_and_cycles(self):
        done = self.run_perf(*SMALL, "-I", 1, "-K", 1, "-S", 1, "-N", 2, "-c", 0,
                             "--transport", "local", "--workers", 2)
        rows = table(done.stdout)
        self.assertEqual(len(rows), 6)
        for row in rows:
            self.assertEqual(list(row)[:19], COLUMNS + ["i_min", "i_max", "i_p99", "i_cv%", "i_p50"])
            self.assertEqual(row["#wrong"], "N/A")
            self.assertLessEqual(float(row["i_min"]), float(row["i_p50"]))
            self.assertLessEqual(float(row["i_p50"]), float(row["i_max"]))
            self.assertRegex(row["timestamp"], r"^\d{4}-\d\d-\d\d$")

    def test_all_datatypes(self):
        for mode, names in (("shift", 10), ("reduce", 8)):
            rows = table(self.run_perf("-b", 64, "-e", 64, "-n", 2, "-d", "all", "--mode", mode,
                                       "--transport", "local", "--workers", 3).stdout)
            self.assertEqual(len({row["type"] for row in rows}), names)
            self.assertEqual({row["#wrong"] for row in rows}, {"0"})

    def test_files_agree_with_the_table(self):
        printed = self.run_perf(*SMALL, "-J", self.path("out.json"), "--csv", self.path("out.csv"),
                                "--workers", 2, "-I", 1).stdout
        rows, data = table(printed), self.json("out.json")
        lines = list(csv.DictReader(self.text("out.csv").splitlines()))
        self.assertEqual((len(data["results"]), len(lines)), (len(rows), len(rows)))
        for row, result, line in zip(rows, data["results"], lines):
            measured, each = result["out_of_place"], result["out_of_place_per_iter"]
            for column, value, text in (("time", measured["time"], line["time_us"]),
                                        ("algbw", measured["alg_bw"], line["algbw"]),
                                        ("busbw", measured["bus_bw"], line["busbw"]),
                                        ("#wrong", measured["nwrong"], line["wrong"]),
                                        ("i_p50", each["p50_us"], line["p50_us"]),
                                        ("i_max", each["max_us"], line["max_us"])):
                self.assertAlmostEqual(float(row[column]), value, delta=0.06 + 0.006 * value)
                self.assertAlmostEqual(float(text), value, delta=1e-5 * abs(value))
            self.assertEqual((row["size"], line["size"]), (str(result["size"]), row["size"]))
            self.assertEqual((row["copied"], line["copied"], result["copied"]), ("no", "no", False))
            of_workers = each["per_process_max_times_us"]
            self.assertEqual([len(times) for times in (each["times_us"], *of_workers)], [4, 4, 4])
            # What is printed follows from the times that the file has.
            self.assertEqual([max(pair) for pair in zip(*of_workers)], each["times_us"])
            self.assertAlmostEqual(measured["time"], mean(list(map(mean, of_workers))),
                                   delta=1e-6 * measured["time"])
        average = data["average_bus_bandwidth"]["bandwidth"]
        self.assertAlmostEqual(footer(printed)[2], average, delta=1e-3)
        self.assertEqual(data["config"]["transport"], "shm")
        self.assertEqual([device["link_right"] for device in data["devices"]], ["shm", "shm"])

    def test_the_host_is_measured_and_buffers_rotate(self):
        done = run("-b", 8, "-e", 8, "-J", self.path("host.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("buffers rotate past the last cache", done.stdout)
        host = self.json("host.json")["host"]
        for when in ("before", "after"):
            self.assertRegex(done.stdout,
                             rf"# {when.capitalize()}: memcpy [\d.]+ GB/s, core to core")
            self.assertGreater(host[when]["memcpy_gb_per_s"], 0)
            if len(host["cores"]) > 1:
                self.assertGreater(host[when]["core_to_core_us"], 0)
        self.assertGreater(host["last_cache_bytes"], 0)

    def test_average_chooses_among_workers(self):
        for flag, combine in ((0, lambda means: means[0]), (2, min), (3, max)):
            self.run_perf("-b", 64, "-e", 64, "-n", 5, "-a", flag, "-J", self.path("a.json"),
                          "--transport", "local")
            [result] = self.json("a.json")["results"]
            means = list(map(mean, result["out_of_place_per_iter"]["per_process_max_times_us"]))
            self.assertAlmostEqual(result["out_of_place"]["time"], combine(means),
                                   delta=1e-6 * max(means))

    def test_wrong_data(self):
        for transport in ("local", "shm"):
            for mode in MODES:
                for copy in ([], ["--copy"]):
                    with self.subTest(transport=transport, mode=mode, copy=copy):
                        done = self.run_perf(*SMALL, "--transport", transport, "--mode", mode,
                                             "--workers", 2, "--inject", "flip", *copy, code=1)
                        rows = table(done.stdout)
                        # One bit, which in a relay everybody who comes after sees, too.
                        self.assertGreaterEqual(int(rows[0]["#wrong"]), 1)
                        self.assertEqual([row["#wrong"] for row in rows[1:]], ["0", "0"])
                        self.assertEqual(footer(done.stdout)[1], "FAILED")

    def test_bad_flags(self):
        for flags, *words in (
                ("--mood shift", "--mood", "nearest", "--mode"),
                ("-b 12Q", "--minbytes", "12Q"),
                ("-b 2M -e 1M", "-b 2097152", "-e 1048576"),
                ("-g 1", "-g", "--workers"),
                ("-n 0", "--iters", "at least 1", '"0"'),
                ("-n", "--iters", "required N"),
                ("-d floot", "--datatype", "floot"),
                ("-d half --mode reduce", "half", "reduce"),
                ("--poll=1", "--poll", "flag override"),
                ("--mode pingpong --workers 3", "--workers 3", "2 workers"),
                ("--mode train", "--plan"),
                ("--mode train --plan /none", "--plan /none"),
                ("--mode train --plan /none -b 8", "--minbytes", "train"),
                ("--memory cuda --transport shm", "--memory cuda"),
                ("--transport nccl --mode reduce", "--transport nccl", "reduce"),
                ("--transport nccl --inject flip", "--transport nccl", "--inject"),
                ("-J /nowhere/out.json", "/nowhere/out.json"),
                ("-J out.txt", ".json"),
                ("-J out.json --csv ./out.json", "--csv and --output_file name one file"),
                ("--compare --mode reduce", "--compare", "reduce"),
                ("-b 900G -e 900G", "MiB"),
                ("shift", "shift", "--help")):
            with self.subTest(flags=flags):
                done = self.run_perf(*flags.split(), code=2)
                self.assertEqual(done.stdout, "")
                [line] = done.stderr.splitlines()
                for word in ["ring_perf: error: ", *words]:
                    self.assertIn(word, line)

    def test_standard_output_that_cannot_be_written(self):
        for flags in (["--help"], SMALL + ["--workers", "2"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([PROGRAM, *flags], stdout=full, stderr=subprocess.PIPE,
                                      text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            [line] = done.stderr.splitlines()
            self.assertIn("ring_perf: error: standard output: cannot write it: ", line)

    def test_a_killed_worker(self):
        self.strikes_worker_1(signal.SIGKILL, 10, "worker 1 was killed by signal 9", "-b", "8M",
                              "-e", "8M", "-n", "1000000", "--copy", "--workers", "3")

    def test_a_stopped_worker(self):
        self.strikes_worker_1(signal.SIGSTOP, 30, "worker 1", "-b", "8", "-e", "8", "-n", "100000000",
                              "--cached", "--workers", "2")

    def test_a_timeout(self):
        # A second is not enough for this many iterations of one wait.
        done = self.run_perf("-b", 8, "-e", 8, "-n", 100000000, "-T", 1, "--workers", 2, code=3)
        self.assertIn("waited 1000 ms for shift, 8 bytes", done.stderr)

    def train(self, plan, *arguments):
        """What it prints, and the one line of its table."""
        done = self.run_perf("--mode", "train", "--plan", self.write("plan.txt", plan), *arguments)
        [row] = table(done.stdout)
        self.assertEqual(row["#wrong"], "0")
        return done.stdout, row

    def test_a_plan(self):
        # Exact clipping keeps a sum until its norm is known; per_stage and previous do not wait.
        for rule, clipping, strict in (
                ("dp", "off", 0), ("cdp_v1", "off", 0), ("cdp_v2", "off", 0), ("dp", "exact", 0),
                ("cdp_v1", "exact", 0), ("cdp_v2", "exact", 1), ("cdp_v2", "per_stage", 0),
                ("cdp_v2", "previous", 0)):
            plan = plan_text(workers=3, stages=4, rule=rule, clipping=clipping, strict=strict)
            for transport in ("local", "shm"):
                with self.subTest(rule=rule, clipping=clipping, transport=transport):
                    printed, row = self.train(plan, "--transport", transport, "-n", 5, "-c", 2)
                    # 2 (N - 1) of the parameters, N - 1 of the sums and those that worker 2 does
                    # not own, metrics; squares of the stages that worker 0 does not own, and the
                    # norm for the other owners, 8 bytes each.
                    norms = 8 * (3 + 2) if clipping in ("exact", "previous") else 0
                    self.assertEqual(int(row["size"]),
                                     4 * 1024 * (2 * 2 + 2) + 2 * 1024 + 3 * 32 + norms)
                    self.assertEqual(row["copied"], "no")
                    self.assertIn(f"# Plan: rule {rule}, 3 workers, 4 stages", printed)

    def test_ucx(self):
        self.need_ucx()
        for mode in MODES:
            for extra in ([], ["--poll"], ["--inject", "flip"]):
                with self.subTest(mode=mode, extra=extra):
                    flips = "flip" in extra
                    done = self.run_perf(*SMALL, "--transport", "ucx", "--mode", mode, "-m", 2,
                                         "--workers", 2, *extra, code=1 if flips else 0)
                    self.assertRegex(done.stdout, r"#  Worker  1 Pid.*: right ucx \S+")
                    self.assertEqual(footer(done.stdout)[1], "FAILED" if flips else "OK")
                    self.assertEqual({row["copied"] for row in table(done.stdout)}, {"yes"})
        self.train(plan_text(workers=3, stages=4), "--transport", "ucx", "-n", 4)
        # This one lends memory in training, and its laps end at owners here.
        lends = plan_text(workers=3, stages=4, rule="dp").replace("laps 1", "laps 2")
        lends = lends.replace("versions 0", "versions 0 one_host 1")
        self.train(lends, "--transport", "ucx", "-n", 4)

    def test_ucx_beside_its_own_tool(self):
        self.need_ucx()
        few = ("-b", "64K", "-e", "64K", "-n", 8, "-m", 4)
        for mode, words, told in (("pingpong", ("-b", 64, "-e", 64, "-n", 20), "lat -e -E sleep"),
                                  ("stream", few, "bw -e -E sleep -O 8"),
                                  ("shift", few, "bw -e -E sleep -O 4, one each way")):
            done = self.run_perf(*words, "--transport", "ucx", "--workers", 2, "--mode", mode,
                                 "--compare")
            self.assertIn(f"ucx_perftest -t tag_{told}", done.stdout)
            self.assertGreater(float(table(done.stdout)[0]["p_time"]), 0)

    def run_outside_job(self, *arguments, code=0, each=({}, {}), launcher=("PMI_RANK", "PMI_SIZE")):
        """Two processes that somebody else started; their (stdout, stderr), by worker. `launcher`:
        the variables that tell a worker and the number; none: the command line does."""
        with tempfile.TemporaryDirectory(prefix="ringzero-test-", dir=self.folder) as place:
            with contextlib.ExitStack() as stack:
                processes = []
                for worker in (0, 1):
                    own = {"RINGZERO_RENDEZVOUS": f"file://{place}", **each[worker]}
                    own.update({launcher[0]: str(worker), launcher[1]: "2"} if launcher else {})
                    words = [str(word).replace("{worker}", str(worker)) for word in arguments]
                    processes += stack.enter_context(
                        self.running("--skip_host", "--cached", *words, environments=[own]))
                outputs = [process.communicate(timeout=120) for process in processes]
        self.assertEqual([process.returncode for process in processes], [code, code], outputs)
        return outputs

    def test_a_worker_of_an_outside_job(self):
        for launcher, source, extra in (
                (("PMI_RANK", "PMI_SIZE"), "PMI", []),
                (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), "Open MPI", []),
                (("RANK", "WORLD_SIZE"), "torchrun", []),
                (None, "command line", ["--worker", "{worker}", "--workers", 2])):
            for transport in ("shm", "auto"):
                with self.subTest(source=source, transport=transport):
                    first, other = self.run_outside_job(
                        *SMALL, "--transport", transport, "-J", self.path("job.json"), *extra,
                        launcher=launcher)
                    self.assertEqual([row["#wrong"] for row in table(first[0])], ["0", "0", "0"])
                    self.assertIn("# nWorkers 2 ", first[0])
                    self.assertEqual(first[0].count(f"2 by {source}, rendezvous file://"), 1)
                    self.assertIn("# Transport: shm between all workers", first[0])
                    self.assertEqual((first[1], other), ("", ("", "")))
                    devices = self.json("job.json")["devices"]
                    self.assertEqual([device["rank"] for device in devices], [0, 1])
                    os.remove(self.path("job.json"))

    def test_an_outside_job_over_hosts(self):
        self.need_ucx()
        each = ({"RINGZERO_HOST": "one"}, {"RINGZERO_HOST": "two"})
        first, other = self.run_outside_job(*SMALL, "--transport", "auto", each=each)
        self.assertIn("# Transport: ucx between all workers (2 hosts); to the right neighbours: 2 x "
                      "ucx", first[0])
        self.assertRegex(first[0], r"#  Worker  1 Pid.*: right ucx \S+")
        self.assertEqual(other, ("", ""))
        for output in self.run_outside_job(*SMALL, "--transport", "shm", each=each, code=2):
            self.assertIn("shm is for workers of one host", output[1])

    def test_what_an_outside_job_cannot(self):
        for words, wanted in ((["--transport", "local"], "threads of one process"),
                              (["--mode", "pingpong", "--compare"], "workers inherit"),
                              (["-n", "1{worker}"], "has --iters = 11, worker 0 has 10")):
            with self.subTest(words=words):
                for out, errors in self.run_outside_job("-b", 64, "-e", 64, *words, code=2):
                    self.assertEqual(out, "")
                    self.assertIn(wanted, errors)
                    self.assertEqual(len(errors.splitlines()), 1)
        for out, errors in self.run_outside_job(*SMALL, "--rendezvous", "tcp://127.0.0.1:9", code=2):
            self.assertIn("tcp", errors)
        first, other = self.run_outside_job(*SMALL, "--inject", "flip", code=1)
        self.assertEqual(footer(first[0])[1], "FAILED")
        self.assertEqual(other, ("", ""))

    def test_a_killed_worker_of_an_outside_job(self):
        os.mkdir(self.path("place"), mode=0o700)
        environments = [{"RINGZERO_RENDEZVOUS": f"file://{self.path('place')}", "PMI_SIZE": "2",
                         "PMI_RANK": rank} for rank in "01"]
        with self.running("-b", "1M", "-e", "1M", "-n", "1000000", "--copy", "--skip_host",
                          environments=environments) as [first, other]:
            self.loses_a_worker(first, other.kill, 10, "worker 1 died")

    def test_auto_and_nccl(self):
        done = self.run_perf(*SMALL, "--transport", "auto", "--workers", 2)
        self.assertIn("# Transport: shm between all workers (one host)", done.stdout)
        self.assertEqual(footer(done.stdout)[1], "OK")
        done = self.run_perf("--transport", "nccl", code=2)
        self.assertRegex(done.stderr, r"--transport nccl: .*(not built|GPU|librar)")

    def test_compare(self):
        for flags, peer in ((["--mode", "shift", "--copy"], "memcpy"),
                            (["--mode", "pingpong"], "futex wake")):
            for transport in ("local", "shm"):
                done = self.run_perf("-b", "64K", "-e", "64K", "-n", 8, "--transport", transport,
                                     "--workers", 2, "--compare", "-J", self.path("c.json"), *flags)
                [row] = table(done.stdout)
                self.assertEqual(list(row)[14:], ["p_time", "p_busbw", "ratio", "diff"])
                self.assertRegex(done.stdout, f"# Compared with: .*{peer}")
                [result] = self.json("c.json")["results"]
                compared = result["peer"]
                ratios = sorted(theirs / ours for theirs, ours in
                                zip(compared["rounds_us"], compared["our_rounds_us"]))
                self.assertEqual(len(ratios), 4)
                self.assertAlmostEqual(compared["ratio"], (ratios[1] + ratios[2]) / 2, delta=1e-6)
                self.assertAlmostEqual(float(row["ratio"]), compared["ratio"],
                                       delta=0.006 + 0.01 * compared["ratio"])


if __name__ == "__main__":
    unittest.main()
