"""When each milestone was first verified while an execution runs (D3, D5)."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from gyre.env.environment import Environment
from gyre.env.worker import Hung
from gyre.errors import InvalidInput

log = logging.getLogger(__name__)


class Milestones:
    """Asks `Environment.verified` after each turn, where the author wrote it, until everything declared was seen."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._left = set(environment.milestones) if type(environment).verified is not Environment.verified else set()
        self.turns: dict[str, int] = {}
        """Milestone → model calls after which it was first verified; 0: it held from the start."""

    def go_back(self, turn: int) -> None:
        """The world is as it was after `turn` model calls: what was verified later is looked for again (C4)."""
        lost = {name for name, seen in self.turns.items() if seen > turn}
        self.turns = {name: seen for name, seen in self.turns.items() if name not in lost}
        self._left |= lost

    async def look(self, turn: int, call: Callable[..., Awaitable[Any]]) -> None:
        """After `turn` model calls; `call` runs the author's method. Raises Hung, and InvalidInput for what is no collection of declared names.

        A method that raises is asked again after the next turn: credit is finer with it, and the execution is as good without.
        """
        if not self._left:
            return
        try:
            verified = await call(self._environment.verified)
        except Hung:
            raise
        except Exception as error:
            log.info("%s: verified() failed after turn %d: %s", self._environment.task.task_id, turn, error)
            return
        for name in sorted(_checked(verified, self._environment.milestones) & self._left):
            self.turns[name] = turn
        self._left -= set(self.turns)


def _checked(verified: Any, declared: dict[str, float]) -> set[str]:
    if isinstance(verified, str) or not isinstance(verified, Iterable):
        raise InvalidInput(f"verified() must return a set of milestones' names, not {type(verified).__name__}")
    names = list(verified)
    for name in names:
        if not isinstance(name, str) or name not in declared:
            raise InvalidInput(
                f"verified() named a milestone that the environment does not declare: {str(name)[:80]!r}"
            )
    return set(names)
