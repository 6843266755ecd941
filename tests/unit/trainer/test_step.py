"""The step machine: who computes what, joining, deaths in every phase, exactly once."""

import ast
from pathlib import Path

import pytest

from gyre.errors import GaveUp, InvariantBroken
from services.trainer.core import events as e
from services.trainer.core import step as s
from services.trainer.core.step import Batch, Phase, StepState, Verdict
from tests.unit.trainer.step_cases import BATCH, CORE, ONE, TWO, computed_by, opened, play, reducing, sealed, updating


def test_the_core_reads_no_clock_and_knows_no_transport():
    """E. Decisions are values: nothing in services/trainer/core imports what it could act with."""
    forbidden = {"torch", "asyncio", "grpc", "nats", "time", "random", "datetime", "threading"}
    for path in Path(s.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & forbidden, path.name


def test_every_phase_knows_every_event():
    """A8. One table, no pair of phase and event without its line."""
    kinds = set(e.Event.__args__)
    assert set(s.TABLE) == {(phase, kind) for phase in Phase for kind in kinds}


def test_a_micro_step_is_given_to_one_living_cell():
    """A7. The second claim of it is passed on, whoever asks; after the first cell's death it is given again."""
    state = opened(ONE)
    state, effects = play(state, e.Claim(ONE, "a", 3))
    assert effects == [e.Answer(ONE, "a", Verdict.COMPUTE)]
    assert play(state, e.Claim(CORE, "a", 3))[1] == [e.Answer(CORE, "a", Verdict.PASS)]
    state, _ = play(state, e.Computed(ONE, "a"))
    assert play(state, e.Claim(CORE, "a", 3))[1] == [e.Answer(CORE, "a", Verdict.PASS)]
    assert play(state, e.Leave(ONE), e.Claim(CORE, "a", 3))[1] == [e.Answer(CORE, "a", Verdict.COMPUTE)]


def test_a_claim_waits_until_its_micro_step_is_on_record():
    """A7. A micro-step is on the queue a moment before BatchExtended; one that the batch closed without is discarded."""
    state, effects = play(opened(known=()), e.Claim(CORE, "a", 3), e.Claim(CORE, "z", 3))
    assert effects == []
    state, effects = play(state, e.Extended(3, ("a",)))
    assert effects == [e.Answer(CORE, "a", Verdict.COMPUTE)]
    state, effects = play(state, e.Closed(3, BATCH))
    assert effects == [e.Answer(CORE, "z", Verdict.DISCARD)]


def test_micro_steps_of_other_steps_are_discarded_or_passed():
    """A8. A done step's redelivery is acknowledged; a later one's comes again."""
    for state in (opened(), reducing(), updating(), StepState(step=3, core=CORE)):
        assert play(state, e.Claim(CORE, "q", 2))[1] == [e.Answer(CORE, "q", Verdict.DISCARD)]
        assert play(state, e.Claim(CORE, "q", 4))[1] == [e.Answer(CORE, "q", Verdict.PASS)]


def test_joining_is_open_until_all_is_computed():
    """A8. In OPEN a joiner gets the step, and is told whether it came in mid-batch; later it waits for the next step."""
    state = opened()
    assert state.joining_open
    assert play(state, e.Join(ONE))[1] == [e.SendStep(ONE, joined=True, mid_batch=False)]
    state = computed_by(state, CORE, "a")
    assert play(state, e.Join(ONE))[1] == [e.SendStep(ONE, joined=True, mid_batch=True)]
    for state in (reducing(), sealed(), updating()):
        assert not state.joining_open
        late, effects = play(state, e.Join("cell-9"))
        assert effects == [] and late.waiting == ("cell-9",) and "cell-9" not in late.cells
    done, _ = play(updating(), e.Join("cell-9"), e.Updated())
    _, effects = play(done, e.Open())
    assert e.SendStep("cell-9", joined=True) in effects and e.SendStep(ONE, joined=False) in effects


def test_a_satellite_joins_a_batch_that_is_closed_and_takes_what_is_left_of_it():
    """A3, A8. The burst's last batch is whole and a is computed; b is still on the queue: the joiner computes it, and both are reduced."""
    state, _ = play(computed_by(opened(), CORE, "a"), e.Closed(3, BATCH))
    state, effects = play(state, e.Join(ONE))
    assert effects == [e.SendStep(ONE, joined=True, mid_batch=True)]
    state, effects = play(state, e.Claim(ONE, "b", 3))
    assert effects == [e.Answer(ONE, "b", Verdict.COMPUTE)]
    state, effects = play(state, e.Computed(ONE, "b"))
    assert effects == [e.Reduce(1, (CORE, ONE))]


def test_a_death_in_mid_step_drops_what_the_cell_had():
    """A8. Its computed and its assigned micro-steps are nobody's; the step waits for them."""
    state = computed_by(opened(ONE), ONE, "a")
    state, _ = play(state, e.Claim(ONE, "b", 3), e.Leave(ONE))
    assert state.cells == (CORE,) and not state.assigned and not state.computed
    state, effects = play(state, e.Closed(3, BATCH))
    assert state.phase is Phase.OPEN and effects == []
    state = computed_by(state, CORE, "a", "b")
    assert state.phase is Phase.REDUCING


def test_a_death_in_the_reduction_repeats_only_what_is_lost():
    """A8. The others keep their gradients; after the lost micro-step is computed again there is another round, without the dead."""
    state = sealed()
    assert state.cells == (CORE, TWO)
    state, effects = play(state, e.Claim(TWO, "a", 3), e.Computed(TWO, "a"))
    assert effects == [e.Reduce(2, (CORE, TWO))]
    state, effects = play(state, e.ReduceEnded(2, True))
    assert effects == [e.Update(BATCH, {"a": TWO, "b": CORE})]


def test_a_satellite_that_still_loads_when_all_is_computed_costs_nobody_anything():
    """A8. cell-2 joins while the last micro-step is computed: it has nothing to add, so the round is not its; it is committed to all the same, and
    its death meanwhile neither spoils the round nor excuses one that fails."""
    state = computed_by(opened(ONE), ONE, "a")
    state, _ = play(state, e.Closed(3, BATCH), e.Claim(CORE, "b", 3), e.Join(TWO))
    state, effects = play(state, e.Computed(CORE, "b"))
    assert effects == [e.Reduce(1, (CORE, ONE))] and state.cells == (CORE, ONE, TWO)
    _, effects = play(state, e.ReduceEnded(1, True), e.Updated())
    assert effects == [e.Commit(3, (CORE, ONE, TWO), ("a", "b"))]
    again, effects = play(state, e.Leave(TWO), e.ReduceEnded(1, False))
    assert again.failures == 1 and again.cells == (CORE, ONE) and effects == [e.Reduce(2, (CORE, ONE))]


def test_a_cell_that_died_after_giving_its_part_has_given_it():
    """A8. The core's own success means that the sum is whole; the dead cell is not committed to."""
    state, effects = play(reducing(), e.Leave(ONE), e.ReduceEnded(1, True))
    assert effects == [e.Update(BATCH, {"a": ONE, "b": CORE})]
    _, effects = play(state, e.Updated())
    assert effects == [e.Commit(3, (CORE, TWO), ("a", "b"))]


def test_a_death_while_updating_changes_nothing_but_who_is_present():
    """A8."""
    state, effects = play(updating(), e.Leave(ONE))
    assert effects == [] and state.cells == (CORE, TWO)
    _, effects = play(state, e.Updated())
    assert effects == [e.Commit(3, (CORE, TWO), ("a", "b"))]


def test_a_death_between_steps_is_only_an_absence():
    """A8."""
    state, _ = play(updating(), e.Updated(), e.Leave(ONE))
    assert state.phase is Phase.IDLE and state.step == 4 and state.cells == (CORE, TWO)


def test_the_end_of_an_old_round_says_nothing_of_the_present_one():
    """A8."""
    state = computed_by(sealed(), CORE, "a")
    assert state.round == 2
    assert play(state, e.ReduceEnded(1, True)) == (state, [])


def test_a_cell_that_joins_again_during_a_reduction_waits():
    """A8. What it had computed died with its old stream; it is not in two places."""
    state, _ = play(reducing(), e.Join(ONE), e.ReduceEnded(1, False))
    assert state.waiting == (ONE,) and state.cells == (CORE, TWO) and dict(state.computed) == {"b": CORE}


def test_reductions_that_fail_without_a_death_end_with_the_core_alone():
    """A8. A bound on repeating: after FAILED_ROUNDS_MAX the satellites are expelled and the core computes their share."""
    state = reducing()
    for number in range(1, s.FAILED_ROUNDS_MAX + 1):
        state, effects = play(state, e.ReduceEnded(number, False))
    assert [effect.cell for effect in effects if isinstance(effect, e.Expel)] == [ONE, TWO]
    assert state.phase is Phase.SEALED and state.cells == (CORE,)
    assert computed_by(state, CORE, "a").phase is Phase.REDUCING


def test_a_satellite_that_computed_what_it_was_not_given_is_expelled():
    """A8. Its accumulator holds something twice: all of it is thrown away."""
    state, effects = play(computed_by(opened(ONE), CORE, "a"), e.Computed(ONE, "a"))
    assert [type(effect) for effect in effects] == [e.Expel] and ONE not in state.cells


def test_a_batch_that_closes_without_what_it_took_in_is_a_defect():
    """A8. A gradient that cannot be taken out again must not be there."""
    state = computed_by(opened(known=("a", "b", "c")), CORE, "c")
    with pytest.raises(InvariantBroken):
        play(state, e.Closed(3, BATCH))


def test_a_sum_that_is_not_finite_is_thrown_away_and_everything_is_computed_again():
    """Nothing was applied: satellites drop their part and may join again at once, the core forgets its own; then the same batch is updated."""
    state, effects = play(updating(), e.Spoiled())
    assert [type(effect) for effect in effects] == [e.Expel, e.Expel, e.Forget]
    assert state.phase is Phase.OPEN and state.cells == (CORE,) and not state.computed and state.batch == BATCH
    state, effects = play(state, e.Join(ONE))
    assert effects == [e.SendStep(ONE, joined=True, mid_batch=False)]
    state, effects = play(
        state, e.Claim(ONE, "a", 3), e.Computed(ONE, "a"), e.Claim(CORE, "b", 3), e.Computed(CORE, "b")
    )
    assert effects == [e.Reduce(2, (CORE, ONE))]
    state, effects = play(state, e.ReduceEnded(2, True))
    assert effects == [e.Update(BATCH, {"a": ONE, "b": CORE})]
    assert play(state, e.Updated())[0].step == 4


def test_a_step_whose_sum_is_never_finite_is_given_up():
    """A bound on repeating, by step: the next one begins to count anew."""
    state = updating()
    for _ in range(s.SPOILED_MAX - 1):
        state, _ = play(state, e.Spoiled())
        state = computed_by(state, CORE, "a", "b")
        state, _ = play(state, e.ReduceEnded(state.round, True))
    with pytest.raises(GaveUp, match="version 3, on disk"):
        play(state, e.Spoiled())
    assert play(state, e.Updated(), e.Open())[0].spoiled == 0


def test_a_batch_without_micro_steps_updates_at_once():
    """C10."""
    _, effects = play(opened(known=()), e.Closed(3, Batch((), ("x",), 1)))
    assert effects == [e.Update(Batch((), ("x",), 1), {})]
