"""A sub-agent's compaction that looks like the main agent's (B5), against what harnesses sent."""

import json

from gyre.clock import ManualClock
from gyre.config import Config
from services.rollout.core import threads
from services.rollout.core.classify import Verdict
from services.rollout.core.request import parse_request
from services.rollout.core.threads import Threads
from services.rollout.gateway.callroles import CallRoles

from .test_callroles import claims
from .test_calls import BusDouble
from .test_classify import call, captured, features_of

SUB, SUMMARY = Verdict("sub-agent", "r", ""), Verdict("main-summary", "s", "")


def sent(harness: str, what: str) -> dict:
    return next(p.values[1] for p in captured() if p.values[0] == harness and p.values[1]["what"] == what)


def test_a_compaction_is_of_the_agent_whose_conversation_it_continues():
    """Qwen Code: same opening. opencode: same session in the header. Without the agent's calls before, and for the main agent: main-summary."""
    for harness in ("qwen-code", "opencode"):
        agent = features_of(sent(harness, "agent that will be compacted"))
        compaction = features_of(sent(harness, "compaction of that agent"))
        of_main = features_of(sent(harness, "automatic compaction"))
        known = Threads()
        assert known.settled("a", compaction, SUMMARY).role == "main-summary"
        on_record = known.settled("a", agent, SUB)
        assert on_record.role == "sub-agent"
        assert known.settled("a", compaction, SUMMARY) == Verdict("sub-agent-summary", "s", "")
        anew = Threads()
        anew.know("a", on_record.thread)
        assert anew.settled("a", compaction, SUMMARY).role == "sub-agent-summary", (
            "known from the record, after a restart"
        )
        assert known.settled("a", of_main, SUMMARY) == known.settled("b", compaction, SUMMARY) == SUMMARY


def test_the_gateway_asks_rules_and_memory_in_turn():
    roles = CallRoles(Config(), BusDouble(), ManualClock(0.0))
    said = []
    for what in ("agent that will be compacted", "compaction of that agent", "automatic compaction"):
        one = sent("opencode", what)
        said.append(roles.of(claims(), parse_request(json.dumps(one["body"]).encode()), "chat", one["headers"]).role)
    assert said == ["sub-agent", "sub-agent-summary", "main-summary"]


def test_what_a_header_says_stands():
    known = Threads()
    known.settled("a", call(opening=b"x"), SUB)
    assert known.settled("a", call(opening=b"x"), Verdict("main-summary", "header", "")).role == "main-summary"


def test_the_oldest_conversations_are_forgotten(monkeypatch):
    """Bounded: two are kept; the third pushes out the one that was not used for longest."""
    monkeypatch.setattr(threads, "THREADS_MAX", 2)
    known = Threads()
    for opening in (b"1", b"2", b"1", b"3"):
        known.settled("a", call(opening=opening), SUB)
    roles = [known.settled("a", call(opening=opening), SUMMARY).role for opening in (b"1", b"2", b"3")]
    assert roles == ["sub-agent-summary", "main-summary", "sub-agent-summary"]
