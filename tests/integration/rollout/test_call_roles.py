"""Roles of calls as the gateway puts them on record: by header, by the user's rule, by a shipped rule, and unknown (B5)."""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}]
QWEN = {"user-agent": "QwenCode/0.15.10 (linux; x64)"}


async def test_each_call_is_recorded_with_its_role_and_what_decided_it(driver):
    """One execution, one plain client: nothing but header and content tells its calls apart; a call that nobody knows is on record too."""
    key, _ = await driver.begin()
    client = driver.client(key)
    calls = [
        ("Mend things.", {}, ("unknown", "")),
        ("Mend more.", {"x-gyre-role": "main"}, ("main", "header")),
        ("Mend most.", {"x-gyre-role": "mian"}, ("unknown", "header")),
        ("Plan only, do nothing.", {}, ("side", "test/planner")),
        ("You are Qwen Code, an interactive CLI agent that", QWEN, ("main", "qwen-code/main")),
        ("A prompt that no release of it had", QWEN, ("unknown", "")),
    ]
    for system, headers, _ in calls:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": "go"}]
        reply = await client.chat.completions.create(
            model="m", messages=messages, tools=TOOLS, extra_headers=headers, max_tokens=4
        )
        assert reply.usage.completion_tokens >= 1, "an unknown call is served like any other"
    records = await driver.recorded(len(calls))
    assert [(record.role, record.role_rule) for record in records] == [expected for _, _, expected in calls]
