"""The same model through Python and through `ringzero train`: equal bits."""
import json
import os
import pathlib
import random
import subprocess

import pytest

import workers

PROGRAM = os.environ.get("RINGZERO_PROGRAM", "ringzero")


def configuration(folder: pathlib.Path, rule: str, count: int) -> dict:
    text = folder / "text"
    text.write_bytes(random.Random(4).randbytes(4000))
    return {
        "model": {"type": "gpt", "layers": 4, "dim": 32, "heads": 4, "vocab": 256, "seq": 16},
        "data": {"type": "text", "path": str(text)},
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4 // count, "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}},
        "iterations": 6, "seed": 5, "evaluation": {"every": 0},
        # Costs are counted differently: by shape there, by what runs here.
        "cyclic": {"rule": rule, "warmup_updates": 0, "predict": False, "boundaries": [0, 2, 4, 7]},
    }


def train(config: dict, *options: str) -> str:
    """The SHA-256 of the parameters."""
    folder = pathlib.Path(config["data"]["path"]).parent
    file, summary = folder / "config.json", folder / "summary.json"
    file.write_text(json.dumps(config))
    done = subprocess.run([PROGRAM, "train", str(file), "--summary", str(summary), *options], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    sha = json.loads(summary.read_text())["parameters_sha256"]
    summary.unlink()
    return sha


CASES = [(rule, count) for rule in ("dp", "cdp_v1", "cdp_v2") for count in (1, 2, 4)]


@pytest.mark.parametrize("rule,count", workers.some(CASES, 3))
def test_python_and_the_program_train_the_same_bits(rule: str, count: int, tmp_path: pathlib.Path) -> None:
    config = configuration(tmp_path, rule, count)
    begin = str(tmp_path / "begin.safetensors")
    # Initial values: a rate of 0 keeps them.
    untrained = {**config, "iterations": 1, "optimizer": {"type": "SGD", "params": {"lr": 0}}}
    train(untrained, "--set", "cyclic.workers=1", "--dump-parameters", begin)
    wanted = train(config, "--set", f"cyclic.workers={count}", "--init", begin)
    ends = workers.run(count, "train_twin.py", json.dumps(config), begin)
    assert [end.code for end in ends] == [0] * count, ends
    assert ends[0].json == wanted
