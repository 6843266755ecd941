"""Every question there is to the books, by name: what the service's Ask, `--print` and the commands have in common."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from gyre.config import Config
from gyre.errors import InvalidInput
from services.ledger.queries.agreement import agreement
from services.ledger.queries.audit import audit
from services.ledger.queries.bill import bill
from services.ledger.queries.books import books
from services.ledger.queries.coverage import coverage
from services.ledger.queries.doctor import Room, doctor
from services.ledger.queries.drops import drops
from services.ledger.queries.explain import explain
from services.ledger.queries.good import LIMIT as GOOD_LIMIT
from services.ledger.queries.good import good
from services.ledger.queries.lineage import LIMIT, lineage
from services.ledger.queries.paging import paged
from services.ledger.queries.queues import queues
from services.ledger.queries.tiers import POINTS, tiers
from services.ledger.queries.trace import trace


@dataclass(frozen=True)
class Asked:
    """One question's circumstances."""

    run: str
    config: Config
    names: tuple[str, ...] = ()
    after: str = ""
    """Cursor of a page: `next` of the one before it."""
    limit: int = 0
    """Rows of a page or points of a curve; 0: as many as the question has by default."""
    room: Callable[[], Room] = Room
    """What is left where the books are kept; asked for only by who needs it."""


Answer = Callable[[sa.Connection, Asked], dict[str, Any]]


@dataclass(frozen=True)
class Question:
    answer: Answer
    names: str = ""
    """What it is asked about, for people; a final … takes any number."""

    def fits(self, names: tuple[str, ...]) -> bool:
        return (
            self.names.endswith("…")
            or len(names) == len(self.names.split())
            or (self.names.startswith("[") and not names)
        )


def _audit(connection: sa.Connection, asked: Asked) -> dict[str, Any]:
    criteria = audit(connection, asked.run, asked.config)
    return {"passed": all(one.passed for one in criteria), "criteria": [dataclasses.asdict(one) for one in criteria]}


def _bill(connection: sa.Connection, asked: Asked) -> dict[str, Any]:
    found = bill(connection, asked.run, asked.config, asked.names)
    return paged(found, "rows", found["by"], asked.after, asked.limit)


QUESTIONS: dict[str, Question] = {
    "agreement": Question(lambda c, a: agreement(c, a.run, a.config)),
    "audit": Question(_audit),
    "bill": Question(_bill, "DIMENSION…"),
    "books": Question(lambda c, a: books(c, a.run, a.config)),
    "coverage": Question(lambda c, a: coverage(c, a.run)),
    "doctor": Question(lambda c, a: doctor(c, a.run, a.config, a.room())),
    "drops": Question(lambda c, a: drops(c, a.run, a.config)),
    "explain": Question(
        lambda c, a: paged(explain(c, a.run, *a.names), "call_list", ["call_id"], a.after, a.limit), "SAMPLE"
    ),
    "good": Question(lambda c, a: good(c, a.run, after=a.after, limit=a.limit or GOOD_LIMIT)),
    "lineage": Question(lambda c, a: lineage(c, a.run, *a.names, after=a.after, limit=a.limit or LIMIT), "NAME"),
    "queues": Question(lambda c, a: queues(c, a.run)),
    "tiers": Question(lambda c, a: tiers(c, a.run, a.config, a.limit or POINTS)),
    "trace": Question(
        lambda c, a: paged(trace(c, a.run, *a.names), "spans", ["span_id"], a.after, a.limit), "SAMPLE_OR_TRACE"
    ),
}


def ask(connection: sa.Connection, question: str, asked: Asked) -> dict[str, Any]:
    """The answer. Raises InvalidInput for a question there is not, or not about so many names; otherwise as the question does."""
    found = QUESTIONS.get(question)
    if found is None or not found.fits(asked.names):
        known = ", ".join(f"{name} {one.names}".strip() for name, one in QUESTIONS.items())
        raise InvalidInput(f"{question!r} with {len(asked.names)} names is no question; ask one of: {known}")
    return found.answer(connection, asked)
