"""Lists of layers, BatchNorm, evaluation, what is saved."""
import pytest

import workers


def result(count: int, kind: str, laps: int, length: str = "planned") -> dict:
    ends = workers.run(count, "train_images.py", kind, str(laps), length)
    assert [end.code for end in ends] == [0] * count, ends
    return ends[0].json


@pytest.mark.parametrize("kind", workers.some(["sequential", "functions", "modules"], 1))
def test_batch_norm_and_evaluations_have_the_same_bits_for_any_number_of_workers(kind: str) -> None:
    alone = result(1, kind, 4)
    assert alone["evaluations"] and alone["evaluations"][-1][0] == 6
    assert any(name.endswith("running_mean") for name in alone["names"])
    for count in (2, 4):
        found = result(count, kind, 4 // count)
        assert found["sha"] == alone["sha"] and found["losses"] == alone["losses"]
        for one, other in zip(found["evaluations"], alone["evaluations"], strict=True):
            assert one == pytest.approx(other)


@pytest.mark.parametrize("laps", [1, 2])
def test_what_worker_0_asks_for_comes_at_all_workers(laps: int) -> None:
    found = result(2, "sequential", laps, "asks")
    version = found["asked"][0]
    assert found["asked"] == [version, version] and [when for when, _ in found["evaluations"]] == [version]
    shorter = result(2, "sequential", laps, str(version))
    assert found["sha"] == shorter["sha"] and found["losses"] == shorter["losses"]


def test_a_list_of_modules_trains_as_one_sequence() -> None:
    assert result(1, "modules", 4)["losses"] == result(1, "sequential", 4)["losses"]
