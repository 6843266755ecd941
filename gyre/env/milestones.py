"""When each milestone was first verified while an execution runs (D3, D5)."""

import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from gyre.env.environment import Environment
from gyre.env.worker import Hung, Rubbish, shown
from gyre.errors import InvalidInput

log = logging.getLogger(__name__)

NAMES_MAX = 1024
"""Looked at of what `verified` returns, repeats included: a generator without an end is cut here."""


class Milestones:
    """Asks `Environment.verified` after each turn, where the author wrote it, until everything declared was seen."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._declared = frozenset(environment.milestones)
        self._left = set(self._declared) if type(environment).verified is not Environment.verified else set()
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
            verified = await call(self._environment.verified, then=partial(_checked, self._declared))
        except (Hung, Rubbish):
            raise
        except Exception as error:
            log.info("%s: verified() failed after turn %d: %s", self._environment.task.task_id, turn, shown(error))
            return
        for name in sorted(verified & self._left):
            self.turns[name] = turn
        self._left -= set(self.turns)


def _checked(declared: frozenset[str], verified: Any) -> set[str]:
    if isinstance(verified, str) or not isinstance(verified, Iterable):
        raise InvalidInput(f"verified() must return a set of milestones' names, not {type(verified).__name__}")
    names = set()
    for name in itertools.islice(verified, NAMES_MAX):
        if not isinstance(name, str) or name not in declared:
            raise InvalidInput(
                f"verified() named a milestone that the environment does not declare: {str(name)[:80]!r}"
            )
        names.add(name)
    return names
