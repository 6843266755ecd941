"""The scheduler's decisions, pure: `apply` folds facts into a state, `decide` says what follows from it.

    facts ──▶ fold.apply(state, fact) ──▶ State ──▶ decide.decide(state, now_s) ──▶ facts to publish
                    ▲                                                                    │
                    └──────────────────────── come back through the stream ◀─────────────┘

| question | decided in |
|---|---|
| does a burst open, how much is sent for it, does the core stay | boundary.py |
| which groups go now | dispatch.py, in the order of queue.py, by what estimate.py has learned |
| which cell changes its role | roles/, one file a mode |
| what those are told that a batch waited for in vain | late.py |
| what an operator must see | alarms.py |

No clock, bus or randomness inside: a simulator drives the same two functions with a virtual clock.
"""

from services.scheduler.core.decide import decide
from services.scheduler.core.fold import FOLDED, apply
from services.scheduler.core.settings import Knobs, Settings
from services.scheduler.core.state import State, decode_state, encode_state

__all__ = ["FOLDED", "Knobs", "Settings", "State", "apply", "decide", "decode_state", "encode_state"]
