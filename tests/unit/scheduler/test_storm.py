"""Random event histories under one seed each (A1–A6, A9): safety on the way, liveness at the end (see storm.py)."""

import pytest

from tests.unit.scheduler.storm import Storm

BLOCK = 25


@pytest.mark.parametrize("block", range(8))
def test_two_hundred_histories_are_safe_and_come_to_their_end(block):
    """A3, A4: 200 seeds. A failure names its seed: `Storm(seed).run()` repeats it exactly."""
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        _run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(100))
def test_ten_thousand_histories_are_safe_and_come_to_their_end(block):
    """A3, A4: the longer target."""
    for seed in range(1_000 + block * 100, 1_000 + (block + 1) * 100):
        _run(seed)


def _run(seed: int) -> None:
    try:
        Storm(seed).run().assert_all_ended()
    except Exception as error:
        error.add_note(f"history of seed {seed}")
        raise


def test_the_storm_is_one():
    """A3: the first 40 histories have met every kind of trouble, else they prove nothing."""
    met = [Storm(seed).run() for seed in range(40)]
    assert sum(storm.truth.fenced for storm in met) > 50
    assert sum(max(storm._deliveries.values(), default=0) > 1 for storm in met) > 20
    assert {storm.settings.mode for storm in met} == {"elastic", "elastic_plus", "async", "colocate", "hybrid_switch"}
    for kind in ("ExecutionSuspended", "CellReported", "PlanChosen", "SampleDropped", "WeightsPublished"):
        assert sum(storm.said[kind] for storm in met) > 10, kind
