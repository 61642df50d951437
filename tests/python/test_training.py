"""Modules of Python on the ring: bits, losses, errors."""
import json
import os
import pathlib

import pytest
import torch

import ringzero
import train_gpt
import workers


def train(count: int, **options: object) -> list[workers.End]:
    return workers.run(count, "train_gpt.py", json.dumps(options))


def result(count: int, **options: object) -> dict:
    ends = train(count, **options)
    assert [end.code for end in ends] == [0] * count, ends
    return ends[0].json


@pytest.fixture(scope="module")
def alone() -> dict:
    return result(1, laps=4)


@pytest.mark.parametrize("count", [2, 4])
def test_dp_has_the_same_bits_for_any_number_of_workers(alone: dict, count: int) -> None:
    assert result(count, laps=4 // count) == alone


def test_dropout_is_on(alone: dict) -> None:
    assert result(1, laps=4, dropout=0)["losses"] != alone["losses"]


def test_all_names_are_there(alone: dict) -> None:
    model = train_gpt.Gpt()
    assert alone["names"] == sorted(name for name, _ in model.named_parameters(remove_duplicate=False))


# With dropout a part is what masks are keyed by.
@pytest.mark.parametrize("cut", workers.some(["blocks.*", "blocks.*.ln2"], 1))
def test_the_cut_changes_no_bit_without_dropout(cut: str) -> None:
    assert result(2, laps=2, dropout=0, cut=cut)["sha"] == result(1, laps=4, dropout=0)["sha"]


@pytest.mark.parametrize("rule", workers.some(["cdp_v1", "cdp_v2"], 1))
def test_a_cyclic_rule_repeats_its_bits(rule: str) -> None:
    once = result(2, rule=rule)
    assert once == result(2, rule=rule)
    assert once["losses"][-1] < once["losses"][0]


def test_losses_are_those_of_a_plain_loop() -> None:
    found = result(1, laps=4, dropout=0)["losses"]
    torch.manual_seed(3)
    model, data = train_gpt.Gpt(dropout=0), train_gpt.samples()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    order = workers.micro_batches(5, 4, len(data))
    for t in range(5):
        optimizer.zero_grad()
        mean = 0.0
        for k in range(4):
            ids, labels = (torch.stack(each) for each in zip(*(data[i] for i in order[4 * t + k])))
            loss = model(ids, labels)["loss"] / 4
            loss.backward()
            mean += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert abs(found[t] - mean) < 1e-5 * abs(mean)


def test_each_stage_of_zero_has_the_same_bits_and_the_same_begin(alone: dict) -> None:
    assert result(2, laps=2, zero_stage=0) == alone
    for end in train(2, zero_stage=0, seeded=False):
        assert end.code == 2 and "initial values (seed torch alike everywhere)" in end.err, end


def test_states_on_nvme_have_the_same_bits(tmp_path: pathlib.Path) -> None:
    assert result(2, dim=128, nvme=str(tmp_path)) == result(2, dim=128)
    assert not list(tmp_path.iterdir())
    for end in train(2, dim=128, nvme=str(tmp_path / "nowhere")):
        assert end.code == 2 and "zero_optimization.offload_optimizer.nvme_path" in end.err, end


def test_a_run_says_before_it_begins_whether_it_waits_for_its_disk(tmp_path: pathlib.Path) -> None:
    ends = train(2, dim=128, nvme=str(tmp_path), hidden=0.001)
    assert [end.code for end in ends] == [2, 2] and ends[0].err.count("disk        needs ") == 2, ends
    for end in ends:
        assert "cyclic.offload.require_hidden: a step would wait for the disk" in end.err, end
    assert not list(tmp_path.iterdir())


# fault: exit code of worker 1, of the others, and what the others say of it.
FAULTS = {
    "kill": (-9, 3, "worker 1 died"),
    "raise": (1, 5, "worker 1: ValueError: my own error"),
    "interrupt": (-2, 3, "worker 1: interrupted by signal 2"),
    "exit": (2, 2, "worker 1: the script ended after 3 of 5 iterations"),
    "break": (2, 2, "worker 1: the script ended after 3 of 5 iterations"),
}
TRIALS = 20 if os.environ.get("RINGZERO_TEST_FULL") else 1


@pytest.mark.parametrize("fault", workers.some(list(FAULTS), 3))
def test_a_fault_of_one_worker_ends_all_with_its_name(fault: str) -> None:
    own, others, words = FAULTS[fault]
    for _ in range(TRIALS):
        ends = train(3, fault=fault, rule="cdp_v2")
        assert [end.code for end in ends] == [others, own, others], ends
        assert max(end.seconds for end in ends) - ends[1].seconds < 10, ends
        for worker in (0, 2):
            assert words in ends[worker].err, ends[worker].err
        if fault == "raise":
            assert "in throw" in ends[1].err  # the traceback


class Wrong:
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
    example = train_gpt.example()


@pytest.mark.parametrize("changed,words", [
    ({"optimizer": 1}, "optimizer=: .*optimizer.type"),
    ({"mpu": 1}, "mpu=:"),
    ({"config": {**Wrong.config, "model": {"type": "gpt"}}}, "model: the program brings it"),
    ({"config": {**Wrong.config, "train_micro_batch_size_per_gpuu": 1}}, "unknown key"),
    ({"iterations": None}, "length must be known"),
    ({"cut": "nothing.*"}, "names no submodule"),
    ({"cut": ["blocks.7"]}, "'blocks.7' names no submodule"),
    ({"cut": ["blocks.2", "blocks.1"]}, "order of cut="),
    ({"example": None}, "example=:"),
    ({"model": 7}, "wanted an nn.Module"),
])
def test_what_cannot_be_trained_is_refused_by_name(changed: dict, words: str) -> None:
    given = {"model": train_gpt.Gpt(), "config": Wrong.config, "iterations": 1, "example": Wrong.example, **changed}
    with pytest.raises(ringzero.InputError, match=words):
        ringzero.initialize(**given)
