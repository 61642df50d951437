"""Runs a script as the workers of a job.

    ends = run(2, "train_gpt.py", "dp", "0.1")
    ends[0].json, ends[1].code, ends[1].err
"""
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

FOLDER = pathlib.Path(__file__).parent
LIMIT = 60  # seconds for a job


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
        try:
            ends = []
            for process in processes:
                out, err = process.communicate(timeout=max(1.0, LIMIT - (time.monotonic() - begin)))
                ends.append(End(process.returncode, out, err, time.monotonic() - begin))
            return ends
        finally:
            for process in processes:
                process.kill()
