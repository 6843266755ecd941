"""What a trainer cell makes of the facts: bursts of any length, and whose turn it is (A4, A9)."""

from gyre.records import BurstOpened, RoleChanged, StepOpened, StepUpdated, WeightsPublished
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


def updated(step: int, samples: tuple[str, ...] = (), refused: tuple[str, ...] = ()) -> StepUpdated:
    return StepUpdated(
        step=step, version=step + 1, burst=0, sample_ids=list(samples), micro_cells={}, metrics={}, opened_at_s=0.0, at_s=0.0,
        set_aside=dict.fromkeys(refused, "why"),
    )  # fmt: skip


def test_steps_in_a_row_that_lost_every_sample_are_counted_over_restarts():
    """Step 0 lost, 1 trained one and lost one, 2 had no gradient at all, 3 and 4 lost: two in a row before step 5. A repeat counts once."""
    lost = [updated(0, refused=("a",)), updated(1, ("b",), ("c",)), updated(2), updated(3, refused=("d",))]
    facts = folded(*lost, updated(4, refused=("e",)), updated(4, refused=("e",)))
    assert [facts.lost_before(step) for step in (1, 2, 3, 4, 5)] == [1, 0, 0, 1, 2]


def test_what_is_remembered_of_steps_does_not_grow_with_the_run():
    """agent-lightning#438: a thousand steps later everything of before is forgotten but the burst whose publish may be due."""
    facts = Facts("cell-0")
    for step in range(1000):
        for fact in (burst(step, step, 1), StepOpened(step=step, burst=step, at_s=0.0), updated(step)):
            facts.apply(fact)
        facts.apply(WeightsPublished(version=step, path="w", checksum="c", bytes=1, at_s=0.0))
        facts.forget_before(step)
    assert {len(kept) for kept in (facts.opened, facts.updated, facts.published)} == {1} and len(facts.bursts) <= 2
