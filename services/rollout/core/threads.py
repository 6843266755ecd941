"""Whose conversation a compaction is of, where the call itself does not say (B5).

Some harnesses compact a sub-agent's conversation by a call that looks like the compaction of the main agent's (Qwen Code, opencode). But it names
the same session, or has the same opening (its first two user messages: what the harness says first, and the task), as calls of the sub-agent did
before. What is remembered is lost with the gateway's process; such a compaction then passes as the main agent's.
"""

from collections import OrderedDict
from dataclasses import replace

from services.rollout.core.classify import Features, Verdict

THREADS_MAX = 20_000
"""Conversations of sub-agents that are remembered, the latest; some hundred bytes each."""
SESSION_HEADER = "x-session-id"


class Threads:
    """Conversations of sub-agents, by sample."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str | bytes], None] = OrderedDict()

    def settled(self, sample_id: str, call: Features, verdict: Verdict) -> Verdict:
        """The verdict, with `sub-agent-summary` for what seemed a compaction of the main agent's conversation and is one of a sub-agent's."""
        thread = sample_id, call.headers.get(SESSION_HEADER) or call.opening
        if verdict.role == "sub-agent":
            self._known[thread] = None
            self._known.move_to_end(thread)
            if len(self._known) > THREADS_MAX:
                self._known.popitem(last=False)
        elif verdict.role == "main-summary" and verdict.rule != "header" and thread in self._known:
            return replace(verdict, role="sub-agent-summary")
        return verdict
