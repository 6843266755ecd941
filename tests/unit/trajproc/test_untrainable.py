"""What the trainer found impossible leaves training once, with what it had cost, and nothing of it is kept to be trained again (C9, D9)."""

import msgspec

from gyre import ids
from gyre import records as r
from tests.unit.scheduler.facts import updated
from tests.unit.trajproc.builders import Live, config, group, opened
from tests.unit.trajproc.test_elite import Holding, settings, solved

A, B = ids.group_id(0), ids.group_id(1)
BAD, GOOD = f"{A}-e0-a1", f"{A}-e1-a1"


def refused(step: int, samples: list[str], *bad: str) -> r.StepUpdated:
    return msgspec.structs.replace(updated(step, samples), set_aside=dict.fromkeys(bad, "the loss is not finite"))


def trained() -> Live:
    return Live(config(turns_per_step=4)).see(opened(0), *group(A, [1.0, 0.0], turns=2))


def test_a_sample_that_the_trainer_set_aside_is_dropped_with_what_it_had_cost():
    live = trained().see(refused(0, [GOOD], BAD))
    (drop,) = live.all(r.SampleDropped)
    assert (drop.sample_id, drop.reason, drop.detail, drop.step) == (BAD, "untrainable", "the loss is not finite", 0)
    assert (drop.turns, drop.tokens, drop.task_type, drop.age_steps) == (2, 4, "repair", 0)
    assert drop.reason in r.DROP_REASONS and live.processor.dropped == {"untrainable": 1}
    assert not live.processor.in_training, "what is remembered for this ends with the step"


def test_it_is_said_once_over_restarts_and_repeats():
    """Killed before it was said: said at the next start. Said, and the step told again: nothing more."""
    live = trained().see(refused(0, [GOOD], BAD))
    cut = live.stream.index(live.all(r.SampleDropped)[0])
    again = Live(config(turns_per_step=4), past=live.stream[:cut])
    assert again.drops() == {BAD: "untrainable"}
    whole = Live(config(turns_per_step=4), past=live.stream).see(refused(0, [GOOD], BAD))
    assert whole.said == [] and whole.processor.dropped == {"untrainable": 1}


def test_nobody_else_can_be_dropped_so():
    """A sample of no open step (a replay, a stranger) has its own fact already, or none."""
    live = trained().see(refused(0, [BAD, GOOD], f"{B}-e0-a1"))
    assert live.drops() == {}


def test_the_elite_store_lets_go_of_it():
    """D9: A's success is held since its batch took it; refused in its own step, or at its replay, it is not replayed (again)."""
    first = f"{A}-e0-a1"
    live = Holding(settings()).see(opened(0), *solved(A, [1.0, 0.0, 0.0, 0.0]))
    assert [one.sample_id for one in live.processor.elites] == [first]
    live.see(refused(0, [f"{A}-e{member}-a1" for member in (1, 2, 3)], first))
    assert list(live.processor.elites) == [] and not live.processor.unsaved and live.processor.elites.bytes == 0
    live.see(opened(1), *solved(B, [1.0, 0.0, 0.0, 0.0], version=1))
    assert live.batch().elites == []
    kept = Holding(settings()).see(opened(0), *solved(A, [1.0, 0.0, 0.0, 0.0]), updated(0, []))
    kept.see(opened(1), *solved(B, [1.0, 0.0, 0.0, 0.0], version=1), refused(1, [], first))
    assert kept.batch().elites == [first] and {one.group_id for one in kept.processor.elites} == {B}
    assert kept.drops() == {}, "it was trained in its own step"


def test_what_was_sent_is_wanted_until_the_newest_step_is_done():
    """Rows in the blob store go when step 0 is done, and stay when it is told again while step 1 is open, or closed and not done."""
    live = trained()
    assert live.processor.is_over(0) and live.processor.closed_step == 0
    live.see(updated(0, [BAD, GOOD]), opened(1))
    assert not live.processor.is_over(0)
    live.see(*group(B, [1.0, 0.0], turns=2, version=1))
    assert live.processor.batch is None and not live.processor.is_over(0) and live.processor.is_over(1)
