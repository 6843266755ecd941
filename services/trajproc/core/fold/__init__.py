"""The processor: a fold of facts that decides as it folds, and says afterwards what is not on record yet.

    fold(fact)     apply one fact of the stream, and decide what follows from it (which group is taken next, when a batch closes)
    tick(now_s)    decide what follows from time alone (the wait policy)
    intents        decisions whose facts are not on record, in the order they must be said
    records(i)     the messages of one intent; folding them confirms it

| question | answered in |
|---|---|
| what is remembered | pool.py |
| what a fact of others changes | executions.py (groups, executions, calls), steps.py (steps, boundaries) |
| what an own fact confirms | own.py |
| what evaluators said | scores.py |
| which records will not come | absent.py |
| what follows | decide.py |
| in which words it is said | speak.py |

Decisions depend on the order of other services' facts and on nothing else, so a restart that folds the stream again decides
again what was decided, its own facts only confirm, and what is left among the intents is exactly what a crash cut off: it is said
again under the same names. That is why a micro-step can be sent before the fact that lists it: no restart can change its
mind about it. What time alone decided is one fact (BatchClosed) without anything said before it; where the
fold came to another view, the fact on record wins.
"""

from collections.abc import Callable, Iterator
from typing import Any

from gyre.records import CallSetAside
from services.trajproc.core.fold import absent, decide, executions, own, scores, speak, steps
from services.trajproc.core.fold.decide import STARVED_S
from services.trajproc.core.fold.pool import NO_NEWS, Intent, Pool

HANDLERS: dict[type, Callable[[Any, Any], object]] = {
    **executions.HANDLERS,
    **steps.HANDLERS,
    **scores.HANDLERS,
    **own.HANDLERS,
}
"""Fact type → handler(pool, fact). Others' facts to decide by, its own to know what was said."""

FOLDED = tuple(HANDLERS)
"""Facts that the processor follows."""


class Processor(Pool):
    """The pool with its fold."""

    def fold(self, fact: Any) -> None:
        """Apply one fact; a repeat, and a type not in FOLDED, changes nothing."""
        handler = HANDLERS.get(type(fact))
        if handler is not None and handler(self, fact) is not NO_NEWS:
            decide.decide(self, fact.at_s)

    def tick(self, now_s: float) -> None:
        """The wait policy (C5)."""
        decide.tick(self, now_s)

    def overdue_records(self, now_s: float) -> Iterator[CallSetAside]:
        """What is to be said of call records that will not come. To be folded when it comes on the stream, and not before."""
        return absent.overdue(self, now_s)

    def records(self, intent: Intent, now_s: float) -> Iterator[Any]:
        """Messages of an intent that are not on record, in order. Lazy: each may be folded before the next is made."""
        return speak.SPEAKERS[intent.kind](self, self.intents[intent], now_s)


__all__ = ["FOLDED", "HANDLERS", "STARVED_S", "Intent", "Processor"]
