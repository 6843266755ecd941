"""What a trainer cell makes of the facts: bursts of any length, and whose turn it is (A4, A9)."""

from gyre.records import BurstOpened, RoleChanged, WeightsPublished
from services.trainer.core.facts import Facts, Turn


def burst(number: int, first_step: int, steps: int, stays: bool = False) -> BurstOpened:
    return BurstOpened(
        burst=number, first_step=first_step, steps=steps, need_groups=0, carry_groups=0.0, core_stays=stays, at_s=0.0
    )


def role(target: str, phase: str, change: int = 0, number: int = 0, cell: str = "cell-0") -> RoleChanged:
    return RoleChanged(cell=cell, change=change, target=target, phase=phase, at_s=0.0, burst=number)


def folded(*facts, **about) -> Facts:
    found = Facts("cell-0", **about)
    for fact in facts:
        found.apply(fact)
    return found


def test_bursts_say_which_steps_are_open_and_which_versions_are_published():
    """A4: μ 2, then 3; a version is published where a burst ends, once."""
    facts = folded(burst(0, 0, 2), burst(0, 0, 9), burst(1, 2, 3))
    assert [facts.burst_number(step) for step in range(5)] == [0, 0, 1, 1, 1] and facts.burst(5) is None
    assert [version for version in range(7) if facts.is_publish_due(version)] == [2, 5]
    facts.apply(WeightsPublished(version=2, path="w", checksum="c", bytes=1, at_s=0.0))
    assert not facts.is_publish_due(2)
    facts.forget_before(5)
    assert set(facts.bursts) == {1}, "the burst whose publish may still be due is kept"


def test_a_cell_waits_in_a_burst_that_does_not_keep_it():
    """A4: it was asked into training in burst 0; in burst 1 it trains if it stays, or was asked anew, or has nowhere else to go."""
    trains = role("training", "training", change=1, number=0)
    assert folded(trains).is_wanted_in(burst(0, 0, 2)) and not folded(trains).is_wanted_in(burst(1, 2, 2))
    assert folded(trains).is_wanted_in(burst(1, 2, 2, stays=True))
    assert folded(role("training", "training", change=3, number=1)).is_wanted_in(burst(1, 2, 2))
    assert folded(trains, always_trains=True).is_wanted_in(burst(1, 2, 2))


def test_a_cell_without_a_rollout_process_trains_as_soon_as_it_is_asked():
    """A9, async: nobody has to unload first; other cells' facts are not its own, nor are those of an older change."""
    asked = role("training", "requested")
    assert folded(asked).turn is Turn.REST and folded(asked, always_trains=True).turn is Turn.LOAD
    facts = folded(role("rollout", "requested", change=2), asked, role("training", "unloaded", change=5, cell="cell-1"))
    assert facts.turn is Turn.RELEASE
