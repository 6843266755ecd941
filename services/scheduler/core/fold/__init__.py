"""Facts → state. One function a fact type; a repeat of a fact changes nothing."""

from collections.abc import Callable
from typing import Any

from services.scheduler.core.fold import executions, runs, steps
from services.scheduler.core.state import State

_HANDLERS: dict[type, Callable[[State, Any], None]] = {**runs.HANDLERS, **executions.HANDLERS, **steps.HANDLERS}

FOLDED: tuple[type, ...] = tuple(_HANDLERS)
"""The fact types that the scheduler follows."""


def apply(state: State, fact: Any) -> State:
    """Fold one fact, in place; facts of types that do not concern the scheduler change nothing."""
    handler = _HANDLERS.get(type(fact))
    if handler is not None:
        handler(state, fact)
    return state
