#!/usr/bin/env python3
"""Workers that somebody else starts: torchrun, mpirun, srun, a script; the same bits, one voice, the lost worker named.

torchrun itself runs where a Python with torch is found (this one, or .deps/peers of `./rz bench peers`); everywhere its
environment is made by a small agent of our own. mpirun and srun are their environments.
"""
import functools
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

from ringzero import PROGRAM, ROOT, TestCase, inject

LOST_LIMIT = 4.0  # seconds from a worker's death to the end of all others; peer_timeout is 1
LONG = {"iterations": 1000000, "evaluation.every": 0, "model.hidden": [512, 512, 512], "steps_per_print": 1,
        "cyclic.peer_timeout": 1}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@functools.lru_cache(maxsize=None)
def python_with_torch():
    """The environment in which this Python can import torch, or None."""
    for path in ("", os.path.join(ROOT, ".deps", "peers")):
        environment = dict(os.environ, PYTHONPATH=path) if path else dict(os.environ)
        found = subprocess.run([sys.executable, "-c", "import torch.distributed.run"], env=environment,
                               capture_output=True, check=False)
        if found.returncode == 0:
            return environment
    return None


def torchrun(worker, workers, port, restart=0, job="job"):
    return {"RANK": worker, "WORLD_SIZE": workers, "LOCAL_RANK": worker, "LOCAL_WORLD_SIZE": workers,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": job,
            "TORCHELASTIC_RESTART_COUNT": restart, "TORCHELASTIC_USE_AGENT_STORE": "False"}


def torchrun_job(port=None, restart=0):
    """Three workers."""
    port = port or free_port()
    return [torchrun(w, 3, port, restart) for w in range(3)]


def open_mpi(worker, workers):
    return {"OMPI_COMM_WORLD_RANK": worker, "OMPI_COMM_WORLD_SIZE": workers, "OMPI_COMM_WORLD_LOCAL_RANK": worker,
            "OMPI_COMM_WORLD_LOCAL_SIZE": workers, "PMIX_RANK": worker, "PMIX_NAMESPACE": "prterun-1@1"}


def pmi(worker, workers):
    return {"PMI_RANK": worker, "PMI_SIZE": workers, "MPI_LOCALRANKID": worker, "MPI_LOCALNRANKS": workers}


def slurm(worker, workers):
    return {"SLURM_PROCID": worker, "SLURM_NTASKS": workers, "SLURM_LOCALID": worker, "SLURM_JOB_ID": 17,
            "SLURM_STEP_ID": 0}


class Job(TestCase):
    """Workers started one by one, each with its environment and options."""

    def start_worker(self, config, *options, **environment):
        clean = {key: value for key, value in os.environ.items() if not key.startswith("RINGZERO_JO")}
        clean.update({key: str(value) for key, value in environment.items()})
        process = subprocess.Popen([PROGRAM, "train", config, *map(str, options)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, cwd=self.folder, env=clean)
        self.addCleanup(self._end, process)
        return process

    def start_job(self, config, environments, *options):
        return [self.start_worker(config, *options, **environment) for environment in environments]

    def ends(self, processes, timeout=60):
        """What all of them left: (code, stdout, stderr)."""
        deadline = time.monotonic() + timeout
        outputs = []
        for process in processes:
            out, err = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
            outputs.append((process.returncode, out, err))
        return outputs

    def meeting(self, name="meeting"):
        return "file://" + self.path(name)

    def succeeds(self, processes):
        """Worker 0 speaks, the others are silent; its stderr."""
        outputs = self.ends(processes)
        for worker, (code, out, err) in enumerate(outputs):
            self.assertEqual(code, 0, f"worker {worker}: {err}")
            if worker != 0:
                self.assertEqual((out, err), ("", ""))
        self.assertIn("parameters sha256", outputs[0][1])
        return outputs[0][2]

    def digest(self, name="summary.json"):
        return self.json(name)["parameters_sha256"]

    def all_fail(self, processes, code, *words, timeout=60):
        """All end with one line each that names its writer and has the words."""
        for worker, (returncode, out, err) in enumerate(self.ends(processes, timeout)):
            self.assertEqual(returncode, code, f"worker {worker}: {err}")
            lines = [line for line in err.splitlines() if "error:" in line]
            self.assertEqual(len(lines), 1, err)
            self.assertRegex(lines[0], f"^ringzero: error: worker {worker}[ :]")
            for word in words:
                self.assertIn(word, lines[0])
            self.assertEqual(out, "")


class SameBits(Job):
    def test_every_launcher(self):
        config = self.config()
        ours = self.train(config, "--workers", 3)
        launchers = {
            "command line": [{}] * 3,
            "torchrun": torchrun_job(),
            "Open MPI": [open_mpi(w, 3) for w in range(3)],
            "PMI": [pmi(w, 3) for w in range(3)],
            "Slurm": [slurm(w, 3) for w in range(3)],
        }
        for source, environments in launchers.items():
            with self.subTest(source=source):
                started = []
                for worker, environment in enumerate(environments):
                    options = ["--summary", self.path("summary.json")]
                    if source != "torchrun":
                        options += ["--rendezvous", self.meeting()]
                    if not environment:
                        options += ["--worker", worker, "--workers", 3]
                    started.append(self.start_worker(config, *options, **environment))
                said = self.succeeds(started)
                self.assertEqual(said.count(f"worker 0 of 3 ({source})"), 1, said)
                self.assertEqual(said.count("transport: shm between all workers (one host)"), 1, said)
                summary = self.json("summary.json")
                for key in ("workers", "parameters_sha256", "loss", "accuracy", "bytes_per_step", "parameters",
                            "iterations"):
                    self.assertEqual(summary[key], ours[key], key)
                self.assertEqual(len(summary["pss_peak_mib"]), 3)
                if source != "torchrun":  # its files are gone
                    self.assertEqual(os.listdir(self.path("meeting")), [])

    def test_a_signal_to_one_worker_saves_and_the_job_goes_on(self):
        saving = {"folder": "run", "every": 1000, "at_end": False}
        config = self.config(**{"iterations": 400, "steps_per_print": 1, "model.hidden": [64, 64],
                                **{f"cyclic.checkpoint.{key}": value for key, value in saving.items()}})
        wanted = self.bits(config, "--workers", 3)
        seats = [slurm(w, 3) for w in range(3)]
        workers = self.start_job(config, seats, "--rendezvous", self.meeting(), "--summary", self.path("first.json"))
        self.wait_for_line(workers[0], "iteration 5/")
        workers[1].send_signal(signal.SIGTERM)
        self.assertEqual([code for code, _, _ in self.ends(workers)], [3, 128 + signal.SIGTERM, 3])
        saved = self.json("first.json")["iterations"]
        self.assertLess(saved, 400)
        self.assertEqual(self.text("run/latest"), f"iteration-{saved:06d}\n")
        notes = self.succeeds(self.start_job(config, seats, "--rendezvous", self.meeting("second"), "--resume", "--summary",
                                             self.path("summary.json")))
        self.assertIn(f"after iteration {saved}", notes)
        self.assertEqual(self.digest(), wanted)

    def test_mpirun_on_one_host_needs_no_place(self):
        config = self.config()
        expected = self.bits(config, "--workers", 3)
        place = self.path(f"ringzero-{os.getuid()}")
        said = self.succeeds(self.start_job(config, [dict(open_mpi(w, 3), TMPDIR=self.folder) for w in range(3)],
                                            "--summary", self.path("open_mpi.json")))
        self.assertIn(f"rendezvous file://{place}", said)
        # MPICH names no job: its ranks are descendants of one proxy, also through a script of the user's.
        script = self.write("start.sh", f"{PROGRAM} train {config} --summary {self.path('mpich.json')}\nexit $?\n")
        ranks = [" ".join(f"{key}={value}" for key, value in pmi(w, 3).items()) for w in range(3)]
        proxy = self.write("hydra_pmi_proxy", "#!/bin/sh\n" + "".join(f"env {rank} sh {script} &\n" for rank in ranks)
                           + "wait\n")
        os.chmod(proxy, 0o700)
        done = subprocess.run([proxy], env=dict(os.environ, TMPDIR=self.folder, RINGZERO_JOIN_TIMEOUT="20"),
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertIn(f"worker 0 of 3 (PMI), 0 on this host of 3, rendezvous file://{place}", done.stderr)
        for summary in ("open_mpi.json", "mpich.json"):
            self.assertEqual(self.digest(summary), expected)
        self.assertEqual(os.listdir(place), [])

    def test_our_own_launcher_says_what_it_takes(self):
        for transport, why in (("auto", "one host"), ("shm", "asked for")):
            done = self.runs("train", self.config(), "--set", f"cyclic.transport={transport}")
            self.assertIn(f"transport: shm between all workers ({why})", done.stderr)

    def test_one_worker(self):
        said = self.succeeds([self.start_worker(self.config(), "--worker", 0, "--workers", 1)])
        self.assertIn("worker 0 of 1 (command line)", said)

    def test_a_slurm_shell_is_no_worker(self):
        done = self.start_worker(self.config(), **slurm(0, 1))
        _, err = done.communicate(timeout=60)
        self.assertEqual(done.returncode, 0, err)
        self.assertIn("2 workers (auto)", err)
        self.assertNotIn("Slurm", err)


class Ucx(Job):
    def setUp(self):
        super().setUp()
        asked = self.run_program("train", self.config(), "--set", "cyclic.transport=ucx")
        if "ucx is not built in" in asked.stderr:
            self.skipTest("built without UCX")
        self.assertEqual(asked.returncode, 0, asked.stderr)
        self.said = asked.stderr

    def test_every_rule_has_the_bits_of_shm(self):
        self.assertIn("transport: ucx between all workers (asked for; one host)", self.said)
        for rule in ("dp", "cdp_v1", "cdp_v2"):
            config = self.config(**{"cyclic.rule": rule, "gradient_accumulation_steps": 2})
            digests = {self.bits(config, "--workers", 3, "--set", f"cyclic.transport={transport}")
                       for transport in ("shm", "ucx")}
            self.assertEqual(len(digests), 1, rule)

    def test_auto_takes_it_between_hosts(self):
        config = self.config()
        expected = self.bits(config, "--workers", 3)
        environments = [dict(slurm(w, 3), RINGZERO_HOST=f"node{w // 2}") for w in range(3)]
        said = self.succeeds(self.start_job(config, environments, "--rendezvous", self.meeting(), "--summary",
                                            "summary.json"))
        self.assertIn("transport: shm within a host, ucx between hosts (2 hosts)", said)
        self.assertEqual(self.digest(), expected)

    def test_rule_auto_is_worker_0s_decision(self):
        config = self.config(**{"cyclic": {"workers": 2, "rule": "auto"}})
        expected = self.bits(self.config(name="named.json", **{"cyclic": {"workers": 2, "rule": "cdp_v1"}}))
        environments = [dict(slurm(w, 2), RINGZERO_HOST=f"node{w}") for w in range(2)]
        said = self.succeeds(self.start_job(
            config, environments, "--rendezvous", self.meeting(), "--summary", "summary.json", "--efficiency",
            self.studied("mlp", "SGD", batch=16)))
        self.assertIn("rule auto: cdp_v1", said)
        self.assertEqual(said.count("rule auto"), 1, "worker 0 alone decides")
        self.assertEqual(self.digest(), expected)

    def test_over_tcp_no_payload_is_written_into_a_block_that_was_given_up(self):
        # UCX's own table of what it does with which sizes, and the words to whoever chose its transports.
        config = self.config(**{"model.hidden": [64, 64]})  # payloads that are offered
        worker = self.start_worker(config, "--set", "cyclic.transport=ucx", UCX_TLS="tcp,self", UCX_PROTO_INFO="y",
                                   UCX_LOG_FILE=self.path("ucx.%p"))
        _, said = worker.communicate(timeout=60)
        self.assertEqual(worker.returncode, 0, said)
        self.assertIn("UCX_TLS=tcp,self was given: UCX's TCP, if it allows that, is for a trusted network only", said)
        rows = {"(egr)": set(), "(multi,rndv)": set()}
        for name in os.listdir(self.folder):
            if name.startswith("ucx."):
                self.read_table(self.text(name).splitlines(), rows)
        for rows_of_one in rows.values():
            self.assertTrue(rows_of_one, "UCX_PROTO_INFO says nothing that this test understands")
        for _, how in rows["(egr)"]:
            self.assertNotIn("zero-copy", how)
        for last, how in rows["(multi,rndv)"]:
            self.assertIn("rendezvous", how, last)

    @staticmethod
    def read_table(lines, rows):
        """(last size, how) of active messages: those that bring their payload, and those that offer it."""
        table = None
        for line in lines:
            if " host memory" in line:  # the head of a table
                table = next((rows[mark] for mark in rows if "active message" in line and mark in line), None)
            row = re.search(r"\|\s*(?:\d+\w?\.\.)?(\d+|\d+K|inf) \| (.*?) \|", line)
            if table is not None and row:
                table.add(row.groups())


class Disagreement(Job):
    def start_odd(self, options_of_2, **environment_of_2):
        config = self.config()
        places = ["--workers", 3, "--rendezvous", self.meeting()]
        processes = [self.start_worker(config, "--worker", w, *places) for w in range(2)]
        processes.append(self.start_worker(options_of_2.pop("config", config), "--worker", 2, *places,
                                           *options_of_2.get("options", []), **environment_of_2))
        return processes

    def test_configuration(self):
        self.all_fail(self.start_odd({"options": ["--set", "cyclic.pending=2"]}), 2,
                      "worker 2 has cyclic.pending = 2, worker 0 has 1 (configuration)")

    def test_model(self):
        other = self.config("other.json", **{"model.hidden": [24, 17]})
        self.all_fail(self.start_odd({"config": other}), 2,
                      "worker 2 has model.hidden = [24, 17], worker 0 has [24, 16] (configuration)")

    def test_a_worker_that_cannot_begin(self):
        self.all_fail(self.start_odd({"config": self.path("missing.json")}), 2, "worker 2: ", "missing.json")

    def test_secrets(self):
        # One that was given a secret, and two that were not.
        self.all_fail(self.start_odd({}, RINGZERO_JOB_SECRET="x"), 2, "worker 2 has one, worker 0 has none")


class Refused(Job):
    def lonely(self, *options, **environment):
        return self.ends([self.start_worker(self.config(), *options, **environment)])[0]

    def refused(self, word, *options, **environment):
        code, out, err = self.lonely(*options, **environment)
        self.assertEqual(code, 2, err)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn(word, err)
        self.assertEqual(out, "")

    def test_identity(self):
        """What else is refused: tests/p2p/identity_test.cc."""
        self.refused("RANK is 2, but there are only 2 workers", **torchrun(2, 2, 1))
        self.refused("--workers 4 contradicts torchrun", "--workers", 4, **torchrun(0, 2, 1))
        # Each process would train a job of its own.
        self.refused("JOB_COMPLETION_INDEX is set, but WORLD_SIZE is not; --workers N", JOB_COMPLETION_INDEX=0)
        self.refused("RINGZERO_RENDEZVOUS: which worker is this?", RINGZERO_RENDEZVOUS=self.meeting())
        self.refused("RINGZERO_JOIN_TIMEOUT", "--worker", 0, "--workers", 1, RINGZERO_JOIN_TIMEOUT="soon")

    def test_a_folder_for_others(self):
        os.mkdir(self.path("meeting"), 0o755)
        os.chmod(self.path("meeting"), 0o755)
        self.refused("wanted 700", "--worker", 0, "--workers", 2, "--rendezvous", self.meeting())

    def test_transports_that_are_not_possible(self):
        environments = [dict(slurm(w, 2), RINGZERO_HOST=f"node{w}") for w in range(2)]
        self.all_fail(self.start_job(self.config(), environments, "--rendezvous", self.meeting(), "--set",
                                     "cyclic.transport=shm"), 2,
                      "shm is for workers of one host, but worker 1 is on node1 and worker 0 on node0")
        self.all_fail(self.start_job(self.config(), [slurm(w, 2) for w in range(2)], "--rendezvous", self.meeting(),
                                     "--set", "cyclic.transport=local"), 2, "local is for threads of one process")
        done = self.run_program("train", self.config(), "--set", "cyclic.transport=nccl")
        self.fails(done, 2, "cyclic.transport", "nccl")

    def test_a_worker_that_never_comes(self):
        for place in (self.meeting(), f"tcp://127.0.0.1:{free_port()}"):
            with self.subTest(place=place):
                processes = [self.start_worker(self.config(), "--worker", w, "--workers", 4, "--rendezvous", place,
                                               RINGZERO_JOIN_TIMEOUT=2) for w in (0, 2)]
                (code, _, err), (other, _, _) = self.ends(processes)
                self.assertEqual(code, 4, err)
                self.assertIn("workers 1, 3 of 4 did not come within 2", err)
                self.assertIn(other, (3, 4))  # worker 0 takes a store of its own with it

    def test_two_jobs_in_one_folder(self):
        twice = [self.start_worker(self.config(), "--worker", 1, "--workers", 2, "--rendezvous", self.meeting(),
                                   RINGZERO_JOIN_TIMEOUT=3) for _ in range(2)]
        outputs = self.ends(twice)
        self.assertIn(2, [code for code, _, _ in outputs])
        self.assertTrue(any("another process is worker 1" in err for _, _, err in outputs), outputs)


class Told(Job):
    """Who started a worker reads why it ended."""

    def test_torchrun(self):
        environment = dict(torchrun(0, 2, free_port()), TORCHELASTIC_ERROR_FILE=self.path("error.json"), RINGZERO_JOIN_TIMEOUT=0.1)
        _, _, err = self.ends([self.start_worker(self.config(), **environment)])[0]
        line, = err.splitlines()
        told = self.json("error.json")["message"]  # as torchelastic's ProcessFailure reads it
        self.assertEqual("ringzero: error: " + told["message"], line)
        self.assertEqual(told["extraInfo"]["py_callstack"], told["message"])
        self.assertLess(abs(int(told["extraInfo"]["timestamp"]) - time.time()), 60)

    def test_a_file_that_cannot_be_written(self):
        environment = dict(os.environ, TORCHELASTIC_ERROR_FILE=self.path("none/error.json"))
        done = self.fails(self.run_program("train", self.path("none.json"), env=environment), 2, "none.json")
        self.assertIn("ringzero: warning: TORCHELASTIC_ERROR_FILE: ", done.stderr)

    def test_kubernetes(self):
        # A /dev of its own, with the file that Kubernetes puts there.
        apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
        if subprocess.run([*apart, "mount -t tmpfs none /dev"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no namespaces here")
        done = subprocess.run([*apart, f"mount -t tmpfs none /dev && : > /dev/termination-log && {PROGRAM} train none.json; "
                               f"{PROGRAM} train other.json; cat /dev/termination-log"], capture_output=True, text=True,
                              cwd=self.folder, check=False)
        told = [line.removeprefix("ringzero: error: ") for line in done.stderr.splitlines()]
        self.assertEqual(len(told), 2, done.stderr)
        self.assertEqual(done.stdout.splitlines(), told)


class Agent(Job):
    """Starts workers as torchrun does: when one ends badly, all are ended, and started again."""

    def test_the_lost_worker_is_named(self):
        config = self.config(**LONG)
        for lost in (0, 1, 2):
            with self.subTest(lost=lost):
                workers = self.start_job(config, torchrun_job())
                self.wait_for_line(workers[0])
                since = time.monotonic()
                workers[lost].kill()
                for worker, (code, _, err) in enumerate(self.ends(workers, LOST_LIMIT)):
                    if worker == lost:
                        self.assertEqual(code, -signal.SIGKILL)
                        continue
                    self.assertEqual(code, 3, err)
                    self.assertRegex(err, rf"ringzero: error: worker {worker}: .*worker {lost} died")
                self.assertLess(time.monotonic() - since, LOST_LIMIT)

    def test_a_signal_ends_the_job_with_a_summary(self):
        for signalled in ((0, 1, 2), (1,)):
            with self.subTest(signalled=signalled):
                summary = self.path(f"summary-{len(signalled)}.json")
                workers = self.start_job(self.config(**LONG), torchrun_job(), "--summary", summary)
                self.wait_for_line(workers[0])
                for worker in signalled:
                    for _ in range(2):  # a terminal and torchrun both send it
                        workers[worker].send_signal(signal.SIGTERM)
                for worker, (code, _, err) in enumerate(self.ends(workers)):
                    self.assertEqual(code, 143 if worker in signalled else 3, err)
                    words = r"interrupted by signal 15" if worker in signalled else "another worker was interrupted"
                    self.assertRegex(err.splitlines()[-1], rf"worker {worker}: {words}")
                told = self.json(summary)
                self.assertTrue(told["interrupted"])
                self.assertGreater(told["iterations"], 0)
                self.assertLess(told["iterations"], LONG["iterations"])

    def test_a_worker_that_dies_before_they_are_connected_is_named(self):
        config = self.config(**{"cyclic.peer_timeout": 1})
        for place in ("tcp", "file"):
            for lost in (0, 2):
                with self.subTest(place=place, lost=lost):
                    where = ["--rendezvous", self.meeting()] if place == "file" else []
                    kill = inject("kill", at="start", worker=lost)
                    # Long before RINGZERO_JOIN_TIMEOUT, which is two minutes.
                    ends = self.ends(self.start_job(config, torchrun_job(), *where, *kill))
                    for worker, (code, out, err) in enumerate(ends):
                        if worker == lost:
                            self.assertEqual(code, -signal.SIGKILL)
                            continue
                        self.assertEqual((code, out), (3, ""), err)
                        self.assertRegex(err, rf"ringzero: error: worker {worker}: worker {lost}[ ,]")
                        if "sign of life" in err:  # by this run's peer_timeout
                            self.assertRegex(err, r"gave no sign of life for [1-4]\.")

    def test_a_restart_gives_the_same_bits(self):
        config = self.config(**{"iterations": 40, "cyclic.peer_timeout": 1})
        expected = self.bits(config, "--workers", 3)
        kill = inject("kill", at="lap", worker=1, number=9)
        for place in ("tcp", "file"):
            with self.subTest(place=place):
                port = free_port()
                where = ["--rendezvous", self.meeting()] if place == "file" else []
                first = self.start_job(config, torchrun_job(port), *where, *kill)
                codes = [code for code, _, _ in self.ends(first)]
                self.assertEqual(codes, [3, -signal.SIGKILL, 3])
                again = self.start_job(config, torchrun_job(port, restart=1), *where, "--summary", "summary.json")
                self.assertIn("restart 1", self.succeeds(again))
                self.assertEqual(self.digest(), expected)

    def test_an_error_of_one_is_everybodys_end(self):
        # A wait of a microsecond is always too long.
        config = self.config(**{"iterations": 3, "cyclic.wait_timeout": 0.001, "model.hidden": [512, 512, 512],
                                "cyclic.rule": "dp"})
        for code, out, err in self.ends(self.start_job(config, torchrun_job())):
            self.assertEqual((code, out), (4, ""), err)


@unittest.skipUnless(python_with_torch(), "no Python with torch here (./rz bench peers installs one)")
class RealTorchrun(Job):
    def torchrun(self, *arguments, timeout=240):
        return subprocess.run([sys.executable, "-m", "torch.distributed.run", *map(str, arguments)],
                              env=python_with_torch(), capture_output=True, text=True, timeout=timeout,
                              cwd=self.folder, check=False)

    def test_one_node(self):
        config = self.config(**{"cyclic.workers": 4})
        expected = self.bits(config)
        done = self.torchrun("--master-port", free_port(), "--nproc-per-node", 4, "--no-python", PROGRAM, "train",
                             config)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"parameters sha256 {expected}", done.stdout)
        self.assertEqual(done.stdout.count("samples/s"), 1)
        self.assertEqual(done.stderr.count("worker 0 of 4 (torchrun)"), 1)
        self.assertNotIn("worker 1 of 4", done.stderr)

    def test_its_report_has_the_error(self):
        done = self.torchrun("--nproc-per-node", 2, "--no-python", PROGRAM, "train", self.path("none.json"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertNotIn("<N/A>", done.stderr)
        self.assertRegex(done.stderr, r"Root Cause.*\n(.*\n)*  error_file: /.*\n  traceback : worker \d: .*none\.json")

    def test_a_restart(self):
        config = self.config(**{"iterations": 40, "cyclic.peer_timeout": 1})
        expected = self.bits(config)
        script = self.write("start.sh", f"""
            if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then set -- {" ".join(inject("kill", at="lap", worker=1, number=9))}; fi
            exec {PROGRAM} train {config} "$@"
            """)
        done = self.torchrun("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--max-restarts",
                             1, "--nproc-per-node", 2, "--no-python", "sh", script)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("restart 1", done.stderr)
        self.assertEqual(re.findall("parameters sha256 (.*)", done.stdout), [expected])

    def test_two_nodes(self):
        config = self.config(**{"cyclic.workers": 4})
        expected = self.bits(config)
        endpoint = f"127.0.0.1:{free_port()}"
        nodes = [subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node",
                                   "2", "--rdzv-backend", "c10d", "--rdzv-id", "two", "--rdzv-endpoint", endpoint,
                                   "--no-python", PROGRAM, "train", config],
                                  env=python_with_torch(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  cwd=self.folder) for _ in range(2)]
        for node in nodes:
            self.addCleanup(self._end, node)
        outputs = self.ends(nodes, 240)
        self.assertEqual([code for code, _, _ in outputs], [0, 0], outputs)
        together = "".join(out for _, out, _ in outputs)
        self.assertEqual(re.findall("parameters sha256 (.*)", together), [expected])


if __name__ == "__main__":
    unittest.main()
