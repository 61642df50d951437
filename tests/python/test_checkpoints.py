"""Checkpoints of `ringzero train` and files of the Python library safetensors, each read by the other."""
import gzip
import json
import os
import pathlib
import subprocess

import numpy
import pytest
import safetensors.torch
import torch

PROGRAM = os.environ.get("RINGZERO_PROGRAM", "ringzero")
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")


def configuration(folder: pathlib.Path) -> dict:
    return {
        "model": {"type": "mlp", "hidden": [64, 32]}, "data": {"type": "idx", "path": str(DATA)},
        "train_micro_batch_size_per_gpu": 32, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "iterations": 40, "seed": 5, "evaluation": {"every": 40, "batch_size": 500},
        "cyclic": {"workers": 2, "checkpoint": {"folder": str(folder / "run"), "every": 20}},
    }


def train(folder: pathlib.Path, config: dict, *options: str) -> dict:
    """The summary."""
    file, summary = folder / "config.json", folder / "summary.json"
    file.write_text(json.dumps(config))
    done = subprocess.run([PROGRAM, "train", str(file), "--summary", str(summary), *options], capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(summary.read_text())


def pixels(name: str) -> torch.Tensor:
    with gzip.open(next(DATA.glob(f"{name}*gz"))) as file:
        raw = file.read()
    return torch.from_numpy(numpy.frombuffer(raw, numpy.uint8, offset=16 if "images" in name else 8).copy())


def load(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    state: dict[str, torch.Tensor] = {}
    for file in set(index.values()):
        state |= safetensors.torch.load_file(folder / file)
    assert set(state) == set(index)
    return state


def plain_model(state: dict[str, torch.Tensor]) -> torch.nn.Module:
    model = torch.nn.Sequential()
    for i in range(3):
        rows, columns = state[f"linear{i}.weight"].shape
        model.add_module(f"linear{i}", torch.nn.Linear(columns, rows))
        if i < 2:
            model.add_module(f"relu{i}", torch.nn.ReLU())
    model.load_state_dict(state)
    return model


def test_a_checkpoint_gives_a_plain_model_the_evaluations_digits(tmp_path: pathlib.Path) -> None:
    [evaluation] = train(tmp_path, configuration(tmp_path))["evaluations"]
    model = plain_model(load(tmp_path / "run/iteration-000040"))
    training = pixels("train-images").double()
    mean, deviation = training.mean(), training.std(correction=0)
    images = ((pixels("t10k-images").double() - mean) / deviation).float().reshape(-1, 784)
    labels = pixels("t10k-labels").long()
    with torch.no_grad():
        outputs = model(images)
    assert (outputs.argmax(1) == labels).double().mean().item() == pytest.approx(evaluation["accuracy"], abs=2e-4)
    assert torch.nn.functional.cross_entropy(outputs, labels).item() == pytest.approx(evaluation["loss"], rel=1e-5)


def test_moments_stand_beside_their_parameters(tmp_path: pathlib.Path) -> None:
    train(tmp_path, configuration(tmp_path))
    folder = tmp_path / "run/iteration-000020"
    state = load(folder)
    moments: dict[str, torch.Tensor] = {}
    for file in folder.glob("optimizer-*.safetensors"):
        moments |= safetensors.torch.load_file(file)
    assert set(moments) == {f"{name}.{each}" for name in state for each in ("step", "exp_avg", "exp_avg_sq")}
    assert all(moments[f"{name}.exp_avg"].shape == state[name].shape for name in state)
    assert {int(moments[f"{name}.step"]) for name in state} == {20}


def test_a_file_of_the_python_library_begins_a_run(tmp_path: pathlib.Path) -> None:
    config = configuration(tmp_path)
    train(tmp_path, config)
    state = load(tmp_path / "run/iteration-000040")
    file = tmp_path / "python.safetensors"
    safetensors.torch.save_file(state, file)
    config["cyclic"]["checkpoint"] = None
    short = {**config, "iterations": 1}
    ends = {train(tmp_path, short, "--init", str(path))["parameters_sha256"]
            for path in (file, tmp_path / "run/iteration-000040")}
    assert len(ends) == 1
