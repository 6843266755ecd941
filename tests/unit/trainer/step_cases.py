"""States of the step machine on the way of one step of two micro-steps, a and b."""

from services.trainer.core import events as e
from services.trainer.core.step import Batch, Phase, StepState, decide

CORE, ONE, TWO = "cell-0", "cell-1", "cell-2"
BATCH = Batch(("a", "b"), ("x", "y"), 2)


def play(state: StepState, *events: e.Event) -> tuple[StepState, list[e.Effect]]:
    """All events in order; effects of the last."""
    effects: list[e.Effect] = []
    for event in events:
        state, effects = decide(state, event)
    return state, effects


def opened(*cells: str, known: tuple[str, ...] = ("a", "b")) -> StepState:
    state = StepState(step=3, core=CORE)
    state, _ = play(state, e.Open(frozenset(known)), *map(e.Join, cells))
    return state


def computed_by(state: StepState, cell: str, *micros: str) -> StepState:
    for micro in micros:
        state, _ = play(state, e.Claim(cell, micro, 3), e.Computed(cell, micro))
    return state


def reducing() -> StepState:
    """cell-1 has computed a, the core b, cell-2 nothing."""
    state = computed_by(computed_by(opened(ONE, TWO), ONE, "a"), CORE, "b")
    state, effects = play(state, e.Closed(3, BATCH))
    assert state.phase is Phase.REDUCING and effects == [e.Reduce(1, (CORE, ONE))]
    return state


def updating() -> StepState:
    return play(reducing(), e.ReduceEnded(1, True))[0]


def sealed() -> StepState:
    """cell-1 died in the reduction: a is lost."""
    state, effects = play(reducing(), e.Leave(ONE), e.ReduceEnded(1, False))
    assert state.phase is Phase.SEALED and effects == [] and dict(state.computed) == {"b": CORE}
    return state
