"""The examples, as their first lines say."""
import json
import pathlib
import re

import pytest

import workers

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"


def output(script: str, *args: str) -> str:
    ends = workers.run(2, str(EXAMPLES / script), *args)
    assert [end.code for end in ends] == [0, 0], ends
    return ends[0].out


def test_a_script_of_deepspeed_with_one_import_changed(tmp_path: pathlib.Path) -> None:
    config = json.loads((EXAMPLES / "fashion.json").read_text())
    del config["epochs"]
    (tmp_path / "short.json").write_text(json.dumps({**config, "iterations": 101}))
    out = output("fashion_deepspeed.py", "--deepspeed_config", str(tmp_path / "short.json"))
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", out)]
    assert len(losses) == 2 and losses[-1] < 0.9, out


def test_gpt2_learns_text(tmp_path: pathlib.Path) -> None:
    transformers = pytest.importorskip("transformers")
    out = output("gpt2_text.py", str(EXAMPLES / "gpt2_text.py"), "--iterations", "20", "--out", str(tmp_path / "out"))
    first, last = (float(loss) for loss in re.findall(r"([\d.]+) at", out))
    assert last < first - 1, out
    assert transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "out").config.n_layer == 4


def test_a_plain_loop() -> None:
    assert float(output("plain_loop.py").split()[0]) > 80
