"""Conversations with tools in each model family stay one path, with the ids of whole rendering where the model wrote as its template (B1, B2)."""

import json
from dataclasses import replace

import pytest

from gyre.errors import InvalidInput
from services.rollout.core.session import Model

from .builders import Harness, reply_message, request, tool_message
from .families import TEMPLATES, model_of, written

GO = [{"role": "system", "content": "s"}, {"role": "user", "content": "go"}]
PROPERTIES = {"path": {"type": "string"}, "line": {"type": "integer"}, "what": {"type": "object"}}
TOOLS = [{"type": "function", "function": {"name": "edit", "parameters": {"type": "object", "properties": PROPERTIES}}}]
ARGUMENTS = {"path": "a </x> [b]\n.py", "line": 12, "what": {"é": [None, 1.5]}}
OPENING = {"glm-4.5": "\n<think></think>\n", "glm-4.7": "\n<think></think>\n"}
"""What the family's template writes of an answered turn before what is said."""

MOVES_TOOLS = ("mistral-v7", "mistral-nemo")
"""Whole rendering tells of the tools with the user's newest words: only TITO keeps them where the model read them."""


@pytest.fixture(scope="module", params=TEMPLATES)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def made(name, model) -> Model:
    return model_of(name, model)


ONE_CALL = ("llama-3", "gpt-oss")
"""Its template has one call in a turn, and no words beside it."""


def said(model: Model, text: str, end: int = 0) -> list[int]:
    ids = model.template.encode(text)
    return ids if ids[-1] in model.stop_ids else [*ids, model.stop_ids[end]]


def test_the_family_is_what_the_template_writes(name, made, model):
    assert made.renderer.family.name == name and made.renderer.is_stable
    assert model.renderer.family.name == "qwen"


@pytest.mark.parametrize("content", ["", "I look."])
def test_a_conversation_with_tools_is_one_path_and_the_ids_of_whole_rendering(name, made, content):
    """Two turns of calls, the arguments coming back in other clothes, and what a user says after them."""
    harness, opening, user = Harness(made), OPENING.get(name, ""), 1 if name.startswith("glm") else 0
    is_even = name not in ("deepseek-v3", "gpt-oss")
    """DeepSeek's templates have no turn of words and calls, and write calls after results otherwise than they asked for them, gpt-oss's writes
    no turn as its model does: only TITO keeps those."""
    two = [("edit", ARGUMENTS), ("edit", {})][: 1 if name in ONE_CALL else 2]
    if name == "gpt-oss" or not made.renderer.family.open:
        content = ""
    lead = opening + content + ("\n" if content and opening else "")
    first = harness.call(GO, "", finish="tool_calls", ids=said(made, lead + written(name, two)), tools=TOOLS)
    assert first.content == content and [call.name for call in first.calls] == ["edit"] * len(two)
    assert [json.loads(call.arguments) for call in first.calls] == [arguments for _, arguments in two]

    sent, exact = reply_message(first), reply_message(first)
    for call in sent["tool_calls"]:
        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), indent=1, sort_keys=True)
    results = [tool_message(first, index, f"result {index}") for index in range(len(two))]
    back = [*GO, sent, *results]
    if is_even or (name == "deepseek-v3" and not content):
        assert harness.ids(back, tools=TOOLS) == harness.whole([*GO, exact, *results], tools=TOOLS)
    second = harness.call(
        back, "", finish="tool_calls", ids=said(made, (opening or "") + written(name, two[:1], first=2)), tools=TOOLS
    )
    assert harness.goes_on(harness.prompts[1], 0)

    again = [*back, reply_message(second), tool_message(second, 0, "three")]
    third = harness.call(again, "", ids=said(made, opening + "done", user), finish="done", tools=TOOLS)
    assert harness.goes_on(harness.prompts[2], 1) and third.content == "done"
    last = [*again, reply_message(third), {"role": "user", "content": "thanks"}]
    assert harness.goes_on(harness.session.prompt(request(last, tools=TOOLS), made), 2)
    as_said = [*GO, exact, *results, *again[len(back) :], *last[len(again) :]]
    if is_even and name not in MOVES_TOOLS:
        assert harness.ids(last, tools=TOOLS) == harness.whole(as_said, tools=TOOLS)

    restarted = Harness(made)
    for record in harness.records:
        restarted.session.take(record, made)
    assert restarted.ids(last, tools=TOOLS) == harness.ids(last, tools=TOOLS)


@pytest.mark.parametrize("family", ["kimi-k2", "deepseek-v3", "deepseek-v3.1"])
def test_the_section_of_the_one_call_that_was_wanted_is_closed_where_it_goes_on(model, family):
    """`parallel_tool_calls` false ends the output behind its first call; the next prompt is as if the model had closed it."""
    harness = Harness(model_of(family, model))
    call = written(family, [("edit", ARGUMENTS)])
    cut = harness.model.template.encode(call.removesuffix(harness.model.renderer.family.behind))
    reply = harness.call(GO, "", finish="tool_calls", ids=cut, tools=TOOLS)
    back = [*GO, reply_message(reply), tool_message(reply, 0, "done")]
    prompt = harness.session.prompt(request(back, tools=TOOLS), harness.model)
    assert harness.goes_on(prompt, 0) and prompt.ids.tolist() == harness.whole(back, tools=TOOLS)


def test_a_system_message_that_the_template_would_put_before_all_that_was_said_is_the_users(model):
    """Claude Code says them anywhere; told in front they would rewrite what the model has read."""
    harness = Harness(model_of("deepseek-v3.1", model))
    reply = harness.call(GO, "", finish="done", ids=said(harness.model, "yes"), tools=TOOLS)
    back = [*GO, reply_message(reply), {"role": "system", "content": "now hurry"}, {"role": "user", "content": "on"}]
    prompt = harness.session.prompt(request(back, tools=TOOLS), harness.model)
    assert harness.goes_on(prompt, 0) and "<｜User｜>now hurry" in harness.model.template.decode(prompt.delta.tolist())


def test_calls_that_another_gateway_named_are_shown_in_the_models_own_form(model):
    """A conversation that was begun elsewhere: Kimi's results name a function and a number, and two histories with other names are two."""
    made = model_of("kimi-k2", model)
    calls = [
        {"id": f"toolu_{index}", "type": "function", "function": {"name": "edit", "arguments": "{}"}}
        for index in range(2)
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "r"} for call in calls]
    begun = [*GO, {"role": "assistant", "content": "", "tool_calls": calls}, *results]
    text = made.template.decode(Harness(made).ids(begun, tools=TOOLS))
    assert "## Return of functions.edit:0\n" in text and "## Return of functions.edit:1\n" in text
    assert "toolu" not in text and text.count("functions.edit:") == 4 and made.renderer.shows_ids


@pytest.mark.parametrize("words", ["x <|tool_call_begin|>", "<|tool_calls_section_end|>", "<think>"])
def test_a_reply_cannot_go_on_from_its_familys_marks(model, words):
    made = model_of("kimi-k2", model)
    asked = replace(request(GO), prefill=words)
    with pytest.raises(InvalidInput, match="own marks"):
        made.prefix(asked)
    assert made.prefix(replace(asked, prefill="[TOOL_CALLS]")) == "[TOOL_CALLS]"
