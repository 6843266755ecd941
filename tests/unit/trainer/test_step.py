"""The step machine: who computes what, joining, deaths in every phase, exactly once."""

import ast
import random
from pathlib import Path

import pytest

from gyre.errors import InvariantBroken
from services.trainer.core import step as s
from services.trainer.core.step import Batch, Phase, StepState, Verdict, decide

CORE, ONE, TWO = "cell-0", "cell-1", "cell-2"
BATCH = Batch(("a", "b"), ("x", "y"), 2)


def play(state: StepState, *events: s.Event) -> tuple[StepState, list[s.Effect]]:
    """All events in order; effects of the last."""
    effects: list[s.Effect] = []
    for event in events:
        state, effects = decide(state, event)
    return state, effects


def opened(*cells: str, known: tuple[str, ...] = ("a", "b")) -> StepState:
    state = StepState(step=3, core=CORE)
    state, _ = play(state, s.Open(frozenset(known)), *map(s.Join, cells))
    return state


def computed_by(state: StepState, cell: str, *micros: str) -> StepState:
    for micro in micros:
        state, _ = play(state, s.Claim(cell, micro, 3), s.Computed(cell, micro))
    return state


def reducing() -> StepState:
    """cell-1 has computed a, the core b, cell-2 nothing."""
    state = computed_by(computed_by(opened(ONE, TWO), ONE, "a"), CORE, "b")
    state, effects = play(state, s.Closed(3, BATCH))
    assert state.phase is Phase.REDUCING and effects == [s.Reduce(1, (CORE, ONE, TWO))]
    return state


def updating() -> StepState:
    return play(reducing(), s.ReduceEnded(1, True))[0]


def sealed() -> StepState:
    """cell-1 died in the reduction: a is lost."""
    state, effects = play(reducing(), s.Leave(ONE), s.ReduceEnded(1, False))
    assert state.phase is Phase.SEALED and effects == [] and dict(state.computed) == {"b": CORE}
    return state


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
    kinds = set(s.Event.__args__)
    assert set(s.TABLE) == {(phase, kind) for phase in Phase for kind in kinds}


def test_a_micro_step_is_given_to_one_living_cell():
    """A7. The second claim of it is passed on, whoever asks; after the first cell's death it is given again."""
    state = opened(ONE)
    state, effects = play(state, s.Claim(ONE, "a", 3))
    assert effects == [s.Answer(ONE, "a", Verdict.COMPUTE)]
    assert play(state, s.Claim(CORE, "a", 3))[1] == [s.Answer(CORE, "a", Verdict.PASS)]
    state, _ = play(state, s.Computed(ONE, "a"))
    assert play(state, s.Claim(CORE, "a", 3))[1] == [s.Answer(CORE, "a", Verdict.PASS)]
    assert play(state, s.Leave(ONE), s.Claim(CORE, "a", 3))[1] == [s.Answer(CORE, "a", Verdict.COMPUTE)]


def test_a_claim_waits_until_its_micro_step_is_on_record():
    """A7. A micro-step is on the queue a moment before BatchExtended; one that the batch closed without is discarded."""
    state, effects = play(opened(known=()), s.Claim(CORE, "a", 3), s.Claim(CORE, "z", 3))
    assert effects == []
    state, effects = play(state, s.Extended(3, ("a",)))
    assert effects == [s.Answer(CORE, "a", Verdict.COMPUTE)]
    state, effects = play(state, s.Closed(3, BATCH))
    assert effects == [s.Answer(CORE, "z", Verdict.DISCARD)]


def test_micro_steps_of_other_steps_are_discarded_or_passed():
    """A8. A done step's redelivery is acknowledged; a later one's comes again."""
    for state in (opened(), reducing(), updating(), StepState(step=3, core=CORE)):
        assert play(state, s.Claim(CORE, "q", 2))[1] == [s.Answer(CORE, "q", Verdict.DISCARD)]
        assert play(state, s.Claim(CORE, "q", 4))[1] == [s.Answer(CORE, "q", Verdict.PASS)]


def test_joining_is_open_until_all_is_computed():
    """A8. In OPEN a joiner gets the step, and is told whether it came in mid-batch; later it waits for the next step."""
    state = opened()
    assert state.joining_open
    assert play(state, s.Join(ONE))[1] == [s.SendStep(ONE, joined=True, mid_batch=False)]
    state = computed_by(state, CORE, "a")
    assert play(state, s.Join(ONE))[1] == [s.SendStep(ONE, joined=True, mid_batch=True)]
    for state in (reducing(), sealed(), updating()):
        assert not state.joining_open
        late, effects = play(state, s.Join("cell-9"))
        assert effects == [] and late.waiting == ("cell-9",) and "cell-9" not in late.cells
    done, _ = play(updating(), s.Join("cell-9"), s.Updated())
    _, effects = play(done, s.Open())
    assert s.SendStep("cell-9", joined=True) in effects and s.SendStep(ONE, joined=False) in effects


def test_a_death_in_mid_step_drops_what_the_cell_had():
    """A8. Its computed and its assigned micro-steps are nobody's; the step waits for them."""
    state = computed_by(opened(ONE), ONE, "a")
    state, _ = play(state, s.Claim(ONE, "b", 3), s.Leave(ONE))
    assert state.cells == (CORE,) and not state.assigned and not state.computed
    state, effects = play(state, s.Closed(3, BATCH))
    assert state.phase is Phase.OPEN and effects == []
    state = computed_by(state, CORE, "a", "b")
    assert state.phase is Phase.REDUCING


def test_a_death_in_the_reduction_repeats_only_what_is_lost():
    """A8. The others keep their gradients; after the lost micro-step is computed again there is another round, without the dead."""
    state = sealed()
    assert state.cells == (CORE, TWO)
    state, effects = play(state, s.Claim(TWO, "a", 3), s.Computed(TWO, "a"))
    assert effects == [s.Reduce(2, (CORE, TWO))]
    state, effects = play(state, s.ReduceEnded(2, True))
    assert effects == [s.Update(BATCH, {"a": TWO, "b": CORE})]


def test_a_cell_that_died_after_giving_its_part_has_given_it():
    """A8. The core's own success means that the sum is whole; the dead cell is not committed to."""
    state, effects = play(reducing(), s.Leave(ONE), s.ReduceEnded(1, True))
    assert effects == [s.Update(BATCH, {"a": ONE, "b": CORE})]
    _, effects = play(state, s.Updated())
    assert effects == [s.Commit(3, (CORE, TWO), ("a", "b"))]


def test_a_death_while_updating_changes_nothing_but_who_is_present():
    """A8."""
    state, effects = play(updating(), s.Leave(ONE))
    assert effects == [] and state.cells == (CORE, TWO)
    _, effects = play(state, s.Updated())
    assert effects == [s.Commit(3, (CORE, TWO), ("a", "b"))]


def test_a_death_between_steps_is_only_an_absence():
    """A8."""
    state, _ = play(updating(), s.Updated(), s.Leave(ONE))
    assert state.phase is Phase.IDLE and state.step == 4 and state.cells == (CORE, TWO)


def test_the_end_of_an_old_round_says_nothing_of_the_present_one():
    """A8."""
    state = computed_by(sealed(), CORE, "a")
    assert state.round == 2
    assert play(state, s.ReduceEnded(1, True)) == (state, [])


def test_a_cell_that_joins_again_during_a_reduction_waits():
    """A8. What it had computed died with its old stream; it is not in two places."""
    state, _ = play(reducing(), s.Join(ONE), s.ReduceEnded(1, False))
    assert state.waiting == (ONE,) and state.cells == (CORE, TWO) and dict(state.computed) == {"b": CORE}


def test_reductions_that_fail_without_a_death_end_with_the_core_alone():
    """A8. A bound on repeating: after FAILED_ROUNDS_MAX the satellites are expelled and the core computes their share."""
    state = reducing()
    for number in range(1, s.FAILED_ROUNDS_MAX + 1):
        state, effects = play(state, s.ReduceEnded(number, False))
    assert [effect.cell for effect in effects if isinstance(effect, s.Expel)] == [ONE, TWO]
    assert state.phase is Phase.SEALED and state.cells == (CORE,)
    assert computed_by(state, CORE, "a").phase is Phase.REDUCING


def test_a_satellite_that_computed_what_it_was_not_given_is_expelled():
    """A8. Its accumulator holds something twice: all of it is thrown away."""
    state, effects = play(computed_by(opened(ONE), CORE, "a"), s.Computed(ONE, "a"))
    assert [type(effect) for effect in effects] == [s.Expel] and ONE not in state.cells


def test_a_batch_that_closes_without_what_it_took_in_is_a_defect():
    """A8. A gradient that cannot be taken out again must not be there."""
    state = computed_by(opened(known=("a", "b", "c")), CORE, "c")
    with pytest.raises(InvariantBroken):
        play(state, s.Closed(3, BATCH))


def test_a_batch_without_micro_steps_updates_at_once():
    """C10."""
    _, effects = play(opened(known=()), s.Closed(3, Batch((), ("x",), 1)))
    assert effects == [s.Update(Batch((), ("x",), 1), {})]


def test_a_step_that_is_set_aside_begins_anew():
    """A6. Satellites are released, nothing computed is kept, the step is the same."""
    state, effects = play(computed_by(opened(ONE), CORE, "a"), s.Dissolve())
    assert effects == [s.Release(ONE)] and state.step == 3 and state.phase is Phase.IDLE
    state, _ = play(state, s.Open(frozenset({"a", "b"}), BATCH))
    assert computed_by(state, CORE, "a", "b").phase is Phase.REDUCING


@pytest.mark.parametrize("seed", range(200))
def test_any_order_of_claims_and_deaths_trains_each_micro_step_once(seed):
    """A8. A model of cells whose accumulators are multisets: at every successful reduction their union over living cells is the batch."""
    random_ = random.Random(seed)
    micros = tuple(f"m{index}" for index in range(6))
    batch = Batch(micros, ("x",), 1)
    satellites = (ONE, TWO)
    held: dict[str, list[str]] = {CORE: []}
    state, _ = play(StepState(step=0, core=CORE), s.Open(frozenset(micros)))
    giving: dict[str, str] = {}
    summed: list[str] = []
    for turn in range(2000):
        event = _random_event(random_, state, held, giving, micros, satellites, batch, turn)
        if event is None:
            continue
        state, effects = decide(state, event)
        for effect in effects:
            match effect:
                case s.SendStep():
                    held[effect.cell] = []
                case s.Answer() if effect.verdict is Verdict.COMPUTE:
                    giving[effect.micro_id] = effect.cell
                case s.Expel():
                    held.pop(effect.cell, None)
                case s.Update():
                    assert sorted(summed) == sorted(micros)
                    return
                case s.Reduce():
                    summed = [micro for cell in effect.cells for micro in held[cell]]
    raise AssertionError("the step never ended")


def _random_event(random_, state, held, giving, micros, satellites, batch, turn) -> s.Event | None:
    """Deaths stop after a while, so that the step must end."""
    if state.phase is Phase.REDUCING:
        if turn < 1000 and random_.random() < 0.3 and len(state.cells) > 1:
            return _die(random_.choice([cell for cell in state.cells if cell != CORE]), held, giving)
        return s.ReduceEnded(state.round, not state.left and random_.random() < 0.7)
    kind = random_.choice(["claim", "claim", "compute", "compute", "join", "die", "close"])
    cells = [cell for cell in state.cells if cell in held]
    if kind == "claim":
        return s.Claim(random_.choice(cells), random_.choice(micros), 0)
    if kind == "compute" and giving:
        micro, cell = giving.popitem()
        held[cell].append(micro)
        return s.Computed(cell, micro)
    absent = [cell for cell in satellites if cell not in state.cells and cell not in state.waiting]
    if kind == "join" and absent and turn < 1000:
        return s.Join(random_.choice(absent))
    if kind == "die" and len(cells) > 1 and turn < 1000:
        return _die(random_.choice([cell for cell in cells if cell != CORE]), held, giving)
    if kind == "close" and state.batch is None and turn > 20:
        return s.Closed(0, batch)
    return None


def _die(cell, held, giving) -> s.Leave:
    held.pop(cell, None)
    for micro in [micro for micro, owner in giving.items() if owner == cell]:
        del giving[micro]
    return s.Leave(cell)
