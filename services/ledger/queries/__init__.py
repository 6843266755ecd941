"""Questions about a run: plain SQL, one place each; pure functions from a read connection to a dictionary or dataclass."""

from services.ledger.queries.audit import Criterion, audit
from services.ledger.queries.bill import bill
from services.ledger.queries.books import books
from services.ledger.queries.drops import drops
from services.ledger.queries.explain import explain
from services.ledger.queries.queues import queues
from services.ledger.queries.trace import trace

__all__ = ["Criterion", "audit", "bill", "books", "drops", "explain", "queues", "trace"]
