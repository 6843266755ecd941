"""The step machine when cells leave: satellites hand over what they have, the core is parked."""

from services.trainer.core import events as e
from services.trainer.core.step import Phase, StepState, Verdict
from tests.unit.trainer.step_cases import BATCH, CORE, ONE, TWO, computed_by, opened, play, reducing, updating


def test_a_satellite_that_leaves_in_mid_step_gives_what_it_has_to_the_core():
    """A6, A9. It finishes what it is computing, claims nothing more, hands over, and is released; nothing is computed twice."""
    state = computed_by(opened(ONE), ONE, "a")
    state, effects = play(state, e.Claim(ONE, "b", 3), e.Depart(ONE))
    assert effects == []
    assert play(state, e.Claim(ONE, "c", 3))[1] == [e.Answer(ONE, "c", Verdict.PASS)]
    state, effects = play(state, e.Computed(ONE, "b"))
    assert effects == [e.HandOver(1, ONE)] and state.handing == ONE
    state, effects = play(state, e.HandOverEnded(ONE, True))
    assert effects == [e.Release(ONE)] and dict(state.computed) == {"a": CORE, "b": CORE}
    _, effects = play(state, e.Closed(3, BATCH))
    assert effects == [e.Reduce(2, (CORE,))]


def test_nothing_is_reduced_before_a_hand_over_has_ended():
    """A8. Else the gradient that is on its way would count twice."""
    state, effects = play(
        computed_by(opened(ONE), ONE, "a"), e.Depart(ONE), e.Claim(CORE, "b", 3), e.Computed(CORE, "b")
    )
    state, effects = play(state, e.Closed(3, BATCH))
    assert effects == [] and state.phase is Phase.OPEN
    state, effects = play(state, e.HandOverEnded(ONE, True))
    assert effects == [e.Release(ONE), e.Reduce(2, (CORE,))]


def test_a_cell_that_wants_to_leave_when_all_is_computed_takes_part_in_the_reduction():
    """A8. That is as quick, and it is committed to."""
    state = computed_by(computed_by(opened(ONE, TWO), ONE, "a"), TWO, "b")
    state, effects = play(state, e.Closed(3, BATCH), e.Depart(ONE))
    assert state.phase is Phase.REDUCING and effects == []


def test_a_hand_over_that_fails_is_a_death():
    """A8. What the cell had is computed again, whether it said so or its stream broke, and it is not in two places when it joins again."""
    handing, _ = play(computed_by(opened(ONE), ONE, "a"), e.Depart(ONE))
    state, effects = play(handing, e.HandOverEnded(ONE, False))
    assert effects == [e.Release(ONE)] and not state.computed and state.cells == (CORE,)
    again, _ = play(handing, e.Leave(ONE), e.Join(ONE))
    assert again.waiting == (ONE,) and dict(again.computed) == {"a": ONE}
    state, effects = play(again, e.HandOverEnded(ONE, False))
    assert effects == [e.SendStep(ONE, joined=True)] and not state.computed and state.cells == (CORE, ONE)
    state, _ = play(again, e.HandOverEnded(ONE, True))
    assert dict(state.computed) == {"a": CORE}, "its part had arrived"


def test_a_satellite_with_nothing_to_give_is_released_at_once():
    """A6. Between steps, or before it has computed anything; in a reduction when the update is done."""
    for state in (opened(ONE), StepState(step=3, core=CORE, cells=(CORE, ONE)), opened()):
        state, effects = play(state, e.Depart(ONE))
        assert effects == [e.Release(ONE)] and ONE not in state.cells
    for state in (reducing(), updating()):
        state, effects = play(state, e.Depart(ONE))
        assert effects == []
        if state.phase is Phase.REDUCING:
            state, _ = play(state, e.ReduceEnded(1, True))
        state, effects = play(state, e.Updated())
        assert effects == [e.Commit(3, (CORE, ONE, TWO), ("a", "b")), e.Release(ONE)] and state.cells == (CORE, TWO)


def test_a_core_that_is_asked_back_in_mid_step_keeps_everything():
    """A9. It claims nothing and reduces nothing until it trains again; satellites may give their part meanwhile."""
    state = computed_by(computed_by(opened(ONE, known=("a", "b")), CORE, "a"), ONE, "b")
    state, effects = play(state, e.Claim(CORE, "z", 3), e.Park())
    assert effects == [e.Answer(CORE, "z", Verdict.PASS)]
    assert play(state, e.Claim(CORE, "b", 3))[1] == [e.Answer(CORE, "b", Verdict.PASS)]
    state, effects = play(state, e.Depart(ONE), e.HandOverEnded(ONE, True), e.Closed(3, BATCH))
    assert effects == [] and state.phase is Phase.OPEN
    state, effects = play(state, e.Resume())
    assert effects == [e.Reduce(2, (CORE,))] and dict(state.computed) == {"a": CORE, "b": CORE}


def test_a_core_cannot_be_parked_once_all_is_computed():
    """A9. The reduction and the update come first."""
    for state in (reducing(), updating(), StepState(step=3, core=CORE)):
        assert not play(state, e.Park())[0].parked
