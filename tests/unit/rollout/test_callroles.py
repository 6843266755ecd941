"""What is told of calls whose role no rule knows (B5): once for each kind, and an alarm where they are many."""

import asyncio
import logging

from gyre.clock import ManualClock
from gyre.config import Config, EnvironmentConfig
from services.rollout.core.unknown import ALARM_EVERY_S, SHARE_MAX, WINDOW_CALLS, UnknownShare
from services.rollout.gateway.callroles import CallRoles

from .builders import request
from .test_calls import BusDouble, claims

ASKED = request([{"role": "system", "content": "Mend things."}, {"role": "user", "content": "go"}])
PLAIN = {"User-Agent": "OpenAI/Python 2.20.0"}


def test_one_warning_for_each_kind_of_unknown_call_names_the_fix(caplog):
    """The harness by name where it is known, else its user agent; never one line for each call."""
    roles = CallRoles(Config(), BusDouble(), ManualClock(0.0))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert roles.of(claims(), ASKED, "chat", PLAIN).role == "unknown"
            assert roles.of(claims(), ASKED, "chat", {"user-agent": "QwenCode/9"}).role == "unknown"
            assert roles.of(claims(), ASKED, "chat", {**PLAIN, "X-Gyre-Role": "main"}).role == "main"
    first, second = (record.getMessage() for record in caplog.records)
    assert "no known harness" in first and "OpenAI/Python 2.20.0" in first and "Mend things." in first
    assert "a call of qwen-code" in second
    assert "x-gyre-role" in first and "rollout.role_rules" in first


def test_an_environment_names_the_harness_of_its_executions():
    """Two environments, two harnesses: a call that shows none is judged by the rules of the one its key is for."""
    environments = [EnvironmentConfig(name="a", harness="qwen-code"), EnvironmentConfig(name="b")]
    roles = CallRoles(Config(environments=environments), BusDouble(), ManualClock(0.0))
    qwen = request(
        [
            {"role": "system", "content": "You are Qwen Code, an interactive CLI agent"},
            {"role": "user", "content": "go"},
        ]
    )
    assert roles.of(claims(environment="a"), qwen, "chat", PLAIN).rule == "qwen-code/main"
    assert roles.of(claims(environment="b"), qwen, "chat", PLAIN).role == "unknown"


async def test_many_unknown_calls_of_one_type_raise_an_alarm_on_record():
    """A window of calls, all of them unknown: one alarm that names the type of execution and the share."""
    bus = BusDouble()
    roles = CallRoles(Config(), bus, ManualClock(100.0))
    for _ in range(2 * WINDOW_CALLS):
        roles.of(claims(task_type="repair"), ASKED, "chat", PLAIN)
        roles.of(claims(task_type="other"), ASKED, "chat", {**PLAIN, "x-gyre-role": "main"})
    await asyncio.sleep(0)
    (alarm,) = bus.records
    assert (alarm.kind, alarm.values, alarm.at_s) == ("unknown_roles", {"share": 1.0}, 100.0)
    assert "`repair`" in alarm.message and "x-gyre-role" in alarm.message


def test_a_share_at_its_bound_is_no_alarm_and_one_call_more_is():
    """20 % of 50 calls are 10; the windows of each type are its own; one alarm in 600 s."""
    share, bound = UnknownShare(), int(SHARE_MAX * WINDOW_CALLS)

    def window(unknown: int, now_s: float) -> list[float]:
        said = [share.count("t", index < unknown, now_s) for index in range(WINDOW_CALLS)]
        return [value for value in said if value is not None]

    assert window(bound, 0.0) == []
    assert window(bound + 1, 1.0) == [(bound + 1) / WINDOW_CALLS]
    assert window(bound + 1, ALARM_EVERY_S) == [], "the last one was less than ALARM_EVERY_S ago"
    assert window(WINDOW_CALLS, 1.0 + ALARM_EVERY_S) == [1.0]
