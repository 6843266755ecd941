"""The transition table of executions."""

from gyre.records import DROP_REASONS, TRANSITIONS, ExecutionState, advance
from gyre.records.lifecycle import ENDED, FINAL


def test_every_state_has_a_row_and_every_target_exists():
    """E: one table, complete."""
    assert set(TRANSITIONS) == set(ExecutionState)
    assert all(targets <= set(ExecutionState) for targets in TRANSITIONS.values())


def test_every_execution_can_still_be_trained_or_dropped_until_it_is():
    """C9: dispatched = trained + dropped + in flight needs a way out of every state but the final ones."""
    for state in set(ExecutionState) - FINAL:
        reached, frontier = set(), {state}
        while frontier:
            reached |= frontier
            frontier = {to for at in frontier for to in TRANSITIONS[at]} - reached
        assert ExecutionState.DROPPED in reached, state
    for state in FINAL:
        assert not TRANSITIONS[state], "what is final stays so"


def test_nothing_that_has_not_been_evaluated_is_trained():
    """B4: an error or a missing evaluation is never a reward."""
    before = {state for state, targets in TRANSITIONS.items() if ExecutionState.TRAINED in targets}
    assert before == {ExecutionState.CLAIMED}
    assert not any(advance(ended, ExecutionState.READY) for ended in ENDED)


def test_an_execution_that_was_leased_may_be_leased_again():
    """C2: a new attempt fences the old one."""
    for state in (ExecutionState.LEASED, ExecutionState.RUNNING, ExecutionState.SUSPENDED):
        assert advance(state, ExecutionState.LEASED)
    assert not advance(ExecutionState.COMPLETED, ExecutionState.LEASED)


def test_every_reason_for_a_drop_is_explained():
    """C9: drops are counted by reason, and people can read it."""
    assert {"age", "wait", "quota", "evaluation_failed", "voided", "rolled_back", "no_gradient", "duplicate"} <= set(
        DROP_REASONS
    )
    assert all(len(meaning) > 10 for meaning in DROP_REASONS.values())
