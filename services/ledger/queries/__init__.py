"""Questions about a run: plain SQL, one place each; pure functions from a read connection to a dictionary or dataclass. `asked` has them by name."""

from services.ledger.queries.agreement import agreement
from services.ledger.queries.audit import Criterion, audit
from services.ledger.queries.bill import bill
from services.ledger.queries.books import books
from services.ledger.queries.coverage import coverage
from services.ledger.queries.doctor import doctor
from services.ledger.queries.drops import drops
from services.ledger.queries.explain import explain
from services.ledger.queries.lineage import lineage
from services.ledger.queries.queues import queues
from services.ledger.queries.tiers import tiers
from services.ledger.queries.trace import trace

__all__ = [
    "Criterion", "agreement", "audit", "bill", "books", "coverage", "doctor", "drops", "explain", "lineage", "queues", "tiers", "trace",
]  # fmt: skip
