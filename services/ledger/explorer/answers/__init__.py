"""What each screen is told: (connection, scope) → dictionary. Times are Unix seconds, versions and ages optimizer steps."""

from collections.abc import Callable
from typing import Any

from services.ledger.explorer.answers.age import age
from services.ledger.explorer.answers.choices import choices
from services.ledger.explorer.answers.drops import drops
from services.ledger.explorer.answers.lanes import lanes
from services.ledger.explorer.answers.lineage import lineage
from services.ledger.explorer.answers.listing import listing
from services.ledger.explorer.answers.origin import origin
from services.ledger.explorer.answers.pressure import pressure
from services.ledger.explorer.answers.sample import sample

ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {
    "age": age, "choices": choices, "drops": drops, "lanes": lanes, "lineage": lineage, "origin": origin, "pressure": pressure, "rows": listing,
    "sample": sample,
}  # fmt: skip
"""Name in the address → who answers."""
