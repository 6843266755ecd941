"""The scheduler's decisions, pure: `apply` folds facts into a state, `decide` says what follows from it.

    facts ──▶ fold.apply(state, fact) ──▶ State ──▶ decide.decide(state, now_s) ──▶ facts and tasks to publish
                    ▲                                                                      │
                    └──────────────────────── come back through the stream ◀───────────────┘

No clock, bus or randomness inside: a simulator drives the same two functions with a virtual clock.
"""

from services.scheduler.core.decide import decide
from services.scheduler.core.fold import FOLDED, apply
from services.scheduler.core.types import Settings, State

__all__ = ["FOLDED", "Settings", "State", "apply", "decide"]
