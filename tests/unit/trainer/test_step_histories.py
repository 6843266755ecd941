"""The step machine in random histories."""

import random

import pytest

from services.trainer.core import events as e
from services.trainer.core.step import Batch, Phase, StepState, Verdict, decide
from tests.unit.trainer.step_cases import CORE, ONE, TWO, play


@pytest.mark.parametrize("seed", range(200))
def test_any_order_of_claims_departures_and_deaths_trains_each_micro_step_once(seed):
    """A8. A model of cells whose accumulators are multisets: at every successful reduction their union over living cells is the batch."""
    random_ = random.Random(seed)
    micros = tuple(f"m{index}" for index in range(6))
    batch = Batch(micros, ("x",), 1)
    satellites = (ONE, TWO)
    held: dict[str, list[str]] = {CORE: []}
    state, _ = play(StepState(step=0, core=CORE), e.Open(frozenset(micros)))
    giving: dict[str, str] = {}
    summed: list[str] = []
    for turn in range(2000):
        if turn == 1000 and state.parked:
            state, _ = decide(state, e.Resume())
        event = _random_event(random_, state, held, giving, micros, satellites, batch, turn)
        if event is None:
            continue
        if isinstance(event, e.HandOverEnded) and event.ok:
            held[CORE] += held.pop(event.cell)
        state, effects = decide(state, event)
        for effect in effects:
            match effect:
                case e.SendStep():
                    held[effect.cell] = []
                case e.Answer() if effect.verdict is Verdict.COMPUTE:
                    giving[effect.micro_id] = effect.cell
                case e.Expel() | e.Release():
                    held.pop(effect.cell, None)
                case e.Update():
                    assert sorted(summed) == sorted(micros)
                    return
                case e.Reduce():
                    assert effect.cells[0] == CORE and all(held[cell] for cell in effect.cells[1:])
                    summed = [micro for cell in effect.cells for micro in held[cell]]
    raise AssertionError("the step never ended")


def _random_event(random_, state, held, giving, micros, satellites, batch, turn) -> e.Event | None:
    """Deaths stop after a while, so that the step must end."""
    if state.phase is Phase.REDUCING:
        if turn < 1000 and random_.random() < 0.3 and len(state.cells) > 1:
            return _die(random_.choice([cell for cell in state.cells if cell != CORE]), held, giving)
        return e.ReduceEnded(state.round, not state.left and random_.random() < 0.7)
    kind = random_.choice(["claim", "claim", "compute", "compute", "join", "die", "close", "depart", "handed", "park"])
    cells = [cell for cell in state.cells if cell in held]
    if kind == "park" and turn < 1000:
        return e.Resume() if state.parked else e.Park()
    if kind == "depart" and len(cells) > 1 and turn < 1000:
        return e.Depart(random_.choice([cell for cell in cells if cell != CORE]))
    if kind == "handed" and state.handing:
        ok = state.handing in held and random_.random() < 0.7
        return e.HandOverEnded(state.handing, ok)
    if kind == "claim":
        return e.Claim(random_.choice(cells), random_.choice(micros), 0)
    if kind == "compute" and giving:
        micro, cell = giving.popitem()
        held[cell].append(micro)
        return e.Computed(cell, micro)
    absent = [cell for cell in satellites if cell not in state.cells and cell not in state.waiting]
    if kind == "join" and absent and turn < 1000:
        return e.Join(random_.choice(absent))
    if kind == "die" and len(cells) > 1 and turn < 1000:
        return _die(random_.choice([cell for cell in cells if cell != CORE]), held, giving)
    if kind == "close" and state.batch is None and turn > 20:
        return e.Closed(0, batch)
    return None


def _die(cell, held, giving) -> e.Leave:
    held.pop(cell, None)
    for micro in [micro for micro, owner in giving.items() if owner == cell]:
        del giving[micro]
    return e.Leave(cell)
