"""Whose conversation a compaction is of, where the call itself does not say (B5).

Some harnesses compact a sub-agent's conversation by a call that looks like the compaction of the main agent's (Qwen Code, opencode). But it names
the same session, or has the same opening (its first two user messages: what the harness says first, and the task), as calls of the sub-agent did
before. Each call of a sub-agent has its conversation on record, so a gateway that starts anew knows them again.
"""

from collections import OrderedDict
from dataclasses import replace

from services.rollout.core.classify import Features, Verdict

THREADS_MAX = 20_000
"""Conversations of sub-agents that are remembered, the latest; some hundred bytes each."""
SESSION_HEADER = "x-session-id"
SESSION_CHARS_MAX = 128


class Threads:
    """Conversations of sub-agents, by sample."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def settled(self, sample_id: str, call: Features, verdict: Verdict) -> Verdict:
        """The verdict, with `sub-agent-summary` for what seemed a compaction of the main agent's conversation and is one of a sub-agent's."""
        thread = call.headers.get(SESSION_HEADER, "")[:SESSION_CHARS_MAX] or call.opening.hex()
        if verdict.role == "sub-agent":
            self.know(sample_id, thread)
            return replace(verdict, thread=thread)
        if verdict.role == "main-summary" and verdict.rule != "header" and (sample_id, thread) in self._known:
            return replace(verdict, role="sub-agent-summary")
        return verdict

    def know(self, sample_id: str, thread: str) -> None:
        """A sub-agent's conversation: seen now, or on record."""
        self._known[sample_id, thread] = None
        self._known.move_to_end((sample_id, thread))
        if len(self._known) > THREADS_MAX:
            self._known.popitem(last=False)
