"""Runs a script as the workers of a job.

    ends = run(2, "train_gpt.py", "dp", "0.1")
    ends[0].json, ends[1].code, ends[1].err
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

FOLDER = pathlib.Path(__file__).parent
LIMIT = 60  # seconds for a job


def some(choices: list, count: int) -> list:
    """So many of them, drawn by the commit; all of them in `./rz test --full`."""
    if os.environ.get("RINGZERO_TEST_FULL"):
        return choices
    return random.Random(os.environ.get("RINGZERO_TEST_SEED", "1")).sample(choices, count)


def digest(state: dict) -> str:
    """SHA-256 of names and values."""
    sha = hashlib.sha256()
    for name in sorted(state):
        sha.update(name.encode() + state[name].numpy().tobytes())
    return sha.hexdigest()


@dataclass
class End:
    code: int
    out: str
    err: str
    seconds: float  # from the job's start

    @property
    def json(self) -> dict:
        """The last line of the output."""
        return json.loads(self.out.strip().splitlines()[-1])


def run(workers: int, script: str, *args: str) -> list[End]:
    """By worker. One worker: without a launcher's variables."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for i in range(workers):
            job = {"RANK": i, "WORLD_SIZE": workers, "LOCAL_RANK": i, "LOCAL_WORLD_SIZE": workers, "RINGZERO_RENDEZVOUS": f"file://{folder}"}
            environment = {**os.environ, **({key: str(value) for key, value in job.items()} if workers > 1 else {})}
            # As a launcher's child, which does not ignore Ctrl-C.
            processes.append(subprocess.Popen([sys.executable, str(FOLDER / script), *args], env=environment, text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler)))

        def end_of(process: subprocess.Popen) -> End:
            out, err = process.communicate(timeout=LIMIT)
            return End(process.returncode, out, err, time.monotonic() - begin)
        try:
            with concurrent.futures.ThreadPoolExecutor(workers) as threads:
                return list(threads.map(end_of, processes))
        finally:
            for process in processes:
                process.kill()


def micro_batches(seed: int, laps: int, samples: int) -> list[list[int]]:
    """Of a lone worker's first epoch, with micro-batches of 2."""
    from ringzero import _ringzero
    text = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": laps, "seed": seed, "epochs": 1,
            "optimizer": {"type": "SGD", "params": {"lr": 1}}}
    config = _ringzero.Config(json.dumps(text), "config")
    numbers = _ringzero.SampleNumbers(config, _ringzero.Length(config, None, samples, 0), samples)
    return [numbers.train(step // laps, step % laps) for step in range(samples // 2)]
