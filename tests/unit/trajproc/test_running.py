"""Running reward statistics as the baseline where a group cannot give one (D9)."""

import pytest

from gyre import ids
from gyre import records as r
from services.trajproc.core.running import SEEN_MIN, TYPES_MAX, RunningRewards
from tests.unit.trajproc.builders import Live, config, dispatched, ended, execution, group, opened, started


def test_the_mean_is_of_the_newest_executions_and_silent_before_it_knows_enough():
    """16 rewards of 1 of memory 4, then a 0: 1 + (0 − 1)/4 = .75. Types are apart; 15 executions say nothing."""
    running = RunningRewards(4)
    running.learn("a", [1.0] * (SEEN_MIN - 1))
    assert running.mean("a") is None
    running.learn("a", [1.0])
    assert running.mean("a") == 1.0 and running.mean("b") is None
    running.learn("a", [0.0])
    assert running.mean("a") == 0.75


def practised(fallback: str, **settings) -> Live:
    """Sixteen executions in eight groups, twelve of which succeeded: the mean reward is .75 (memory 256 forgets none)."""
    live = Live(config(turns_per_step=1000, baseline_fallback=fallback, **settings)).see(started(), opened(0))
    for index in range(8):
        live.see(*group(ids.group_id(index), [1.0, float(index % 2)]))
    return live


def advantages(live: Live, name: str) -> list[float]:
    return [fact.advantage for fact in live.all(r.SampleReady) if fact.group_id == name]


FAILED, SOLVED, ALONE, MIXED = (ids.group_id(index) for index in range(20, 24))


def test_a_group_without_differences_is_held_against_its_task_types_mean():
    """Two failures: −.75 each, and the mean falls by it to 12/18 before the next group is judged: two successes: 1 − 2/3. One alone with a
    reward, after 14/20: .3. A group that differs has its own baseline of .5."""
    live = practised("running")
    live.see(*group(FAILED, [0.0, 0.0]), *group(SOLVED, [1.0, 1.0]))
    live.see(
        dispatched(ALONE, 2),
        *execution(ALONE, 0, 1.0),
        ended(ALONE, 1, None, ending="failed"),
        *group(MIXED, [1.0, 0.0]),
    )
    assert advantages(live, FAILED) == pytest.approx([-0.75, -0.75])
    assert advantages(live, SOLVED) == pytest.approx([1 / 3, 1 / 3])
    assert advantages(live, ALONE) == pytest.approx([0.3])
    assert advantages(live, MIXED) == [0.5, -0.5]
    assert not live.drops().keys() & {f"{FAILED}-e0-a1", f"{SOLVED}-e0-a1"}, "they give a gradient, so they are trained"


def test_by_default_and_under_the_control_such_a_group_gives_no_gradient():
    """`none`, and advantage `zero`, which must not learn whatever else is set."""
    for live in (practised("none"), practised("running", advantage="zero")):
        live.see(*group(FAILED, [0.0, 0.0]))
        assert advantages(live, FAILED) == [0.0, 0.0]


def test_a_restart_has_the_same_means():
    live = practised("running")
    again = Live(live.processor.config, past=live.stream)
    assert again.said == [] and again.processor.running.mean("repair") == live.processor.running.mean("repair") == 0.75


def test_a_type_for_each_task_does_not_fill_the_memory():
    """agent-lightning#438: the types judged last are kept; one that is still judged stays however many come beside it."""
    running = RunningRewards(4)
    running.learn("kept", [1.0] * SEEN_MIN)
    for index in range(2 * TYPES_MAX):
        running.learn(f"t{index}", [0.0])
        if index % 100 == 0:
            running.learn("kept", [1.0])
    assert len(running._means) == TYPES_MAX and running.mean("kept") == 1.0
