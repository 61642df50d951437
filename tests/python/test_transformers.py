"""GPT-2 and LLaMA of transformers, unmodified."""
import pytest
import torch

import train_transformers
import workers

FAMILIES = pytest.mark.parametrize("family", workers.some(["gpt2", "llama"], 1))


def result(count: int, family: str, dropout: float) -> dict:
    ends = workers.run(count, "train_transformers.py", family, str(dropout), str(4 // count))
    assert [end.code for end in ends] == [0] * count, ends
    return ends[0].json


@FAMILIES
def test_equal_bits_for_any_number_of_workers_with_dropout(family: str) -> None:
    alone = result(1, family, 0.1)
    for count in workers.some([2, 4], 1):
        assert result(count, family, 0.1) == alone
    assert result(1, family, 0)["losses"] != alone["losses"]


@FAMILIES
def test_losses_are_those_of_a_plain_loop(family: str) -> None:
    found = result(1, family, 0)["losses"]
    model, data = train_transformers.model_of(family, 0), train_transformers.samples()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    order = workers.micro_batches(5, 4, len(data))
    for t, loss_found in enumerate(found):
        optimizer.zero_grad()
        mean = 0.0
        for k in range(4):
            ids = torch.stack([data[i] for i in order[4 * t + k]])
            loss = model(input_ids=ids, labels=ids).loss / 4
            loss.backward()
            mean += loss.item()
        optimizer.step()
        assert abs(loss_found - mean) < 1e-5 * abs(mean)
