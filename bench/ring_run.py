"""Runs `ringzero train` and returns what it says of itself."""
import json
import re
import subprocess
import sys
import tempfile

_LOSS = re.compile(r"iteration (\d+)/\d+  loss (\S+)")


class BenchError(Exception):
    pass


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def train(program: str, config: str, settings: dict[str, object]) -> tuple[dict, list[tuple[int, float]]]:
    """The summary, and the (iteration, loss) lines that it printed."""
    with tempfile.NamedTemporaryFile(suffix=".json") as summary:
        command = [program, "train", config, "--summary", summary.name]
        for key, value in settings.items():
            command += ["--set", f"{key}={json.dumps(value) if not isinstance(value, str) else value}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        if done.returncode != 0:
            raise BenchError(f"'{' '.join(command)}' ended with exit code {done.returncode}:\n{output[-2000:]}")
        losses = [(int(number), float(loss)) for number, loss in _LOSS.findall(output)]
        return json.load(open(summary.name, encoding="utf-8")), losses
