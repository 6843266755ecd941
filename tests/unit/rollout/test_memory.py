"""Reading a body with a session's memory is reading it whole, whatever came before (B1, B2)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.rollout.core.anthropic import parse_messages_request
from services.rollout.core.memory import BODIES_BYTES_MAX, BODIES_MAX, BODIES_MIN, KnownItems, Memory, Values
from services.rollout.core.normal import digests_from, prefix_digests, root_digest
from services.rollout.core.options import BadRequest
from services.rollout.core.request import ChatRequest, parse_request
from services.rollout.core.responses import parse_responses_request

TEXT = st.text(st.sampled_from('ab "\\{}[],:\n é日😀'), max_size=12)
MESSAGE = st.one_of(
    st.builds(
        lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "assistant", "system"]), TEXT
    ),
    st.builds(lambda text: {"role": "assistant", "content": [{"type": "text", "text": text}]}, TEXT),
)
STYLES = [{"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False}]


def written(messages: list, style: int, order: int, extra: str) -> bytes:
    """A body; `order`: where the list stands among the fields."""
    fields = [("model", extra), ("max_tokens", 5), ("metadata", {"messages": [extra]}), ("system", extra)]
    fields.insert(order, ("messages", messages))
    return json.dumps(dict(fields), **STYLES[style]).encode()


def outcome(parse, body: bytes, memory: Memory | None = None) -> ChatRequest | str:
    """The request, or what is wrong with it."""
    try:
        return parse(body, memory)
    except BadRequest as error:
        return f"{error.param}: {error}"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(MESSAGE, min_size=1, max_size=8), st.lists(st.tuples(st.integers(0, 8), st.lists(MESSAGE, max_size=3)), max_size=6),
    st.integers(0, 2), st.integers(0, 4), TEXT, st.booleans(),
)  # fmt: skip
def test_a_conversation_that_grows_goes_back_and_forks_is_read_as_without_memory(
    first, edits, style, order, extra, is_messages
):
    """Each next body keeps some of the items and adds others; after each the messages are those of a reading without memory, and so are digests.
    Where an assistant's message stands at the end, the reply goes on from it or it is refused."""
    parse = parse_messages_request if is_messages else parse_request
    memory, items, chains = Memory(), first, []
    for kept, more in [(8, []), *edits]:
        items = (items[:kept] + more) or first
        body = written(items, style, order, extra)
        with_memory, whole = outcome(parse, body, memory), outcome(parse, body)
        assert with_memory == whole
        if isinstance(whole, str):
            continue
        digests = digests_from(root_digest(whole.tools), with_memory.messages, chains)
        assert digests == prefix_digests(whole.tools, whole.messages)
        chains.append((with_memory.messages, digests))


@pytest.mark.parametrize("order", range(5))
@pytest.mark.parametrize("content", ["Well é", "Well "])
def test_one_assistants_message_alone_is_read_again_as_it_was(order, content):
    """Its bytes are those of the head of the body, too."""
    memory, body = Memory(), written([{"role": "assistant", "content": content}], 0, order, "s")
    first, again = (outcome(parse_messages_request, body, memory) for _ in range(2))
    assert first == again == outcome(parse_messages_request, body)
    assert ("white space" in first) if content.endswith(" ") else first.prefill == content


def test_only_what_is_new_is_read():
    """Of 41 items 40 were sent before: one is decoded and converted; the messages before it are the same objects."""
    memory = Memory()
    items = [{"role": role, "content": f"{role} {index} é"} for index in range(20) for role in ("user", "assistant")]
    before = parse_request(written(items, 0, 1, "m"), memory)
    body = written([*items, {"role": "user", "content": "new"}], 0, 1, "m")
    known = memory.read(body, "messages")["messages"]
    assert isinstance(known, KnownItems) and (known.kept, len(known)) == (40, 41)
    assert known[:40] == [None] * 40 and known[40]["content"] == "new"
    after = parse_request(body, memory)
    assert all(one is other for one, other in zip(before.messages, after.messages, strict=False))


def test_what_moves_within_the_conversation_costs_from_there_on():
    """Claude Code marks its latest messages with cache_control: the mark of the body before is gone from where it was."""
    memory = Memory()
    plain = [{"role": "user", "content": [{"type": "text", "text": f"t{index}"}]} for index in range(10)]

    def marked(count: int) -> bytes:
        last = {"type": "text", "text": f"t{count - 1}", "cache_control": {"type": "ephemeral"}}
        return written([*plain[: count - 1], {"role": "user", "content": [last]}], 0, 0, "m")

    parse_messages_request(marked(8), memory)
    body = marked(10)
    assert memory.read(body, "messages")["messages"].kept == 7
    assert parse_messages_request(body, memory) == parse_messages_request(body)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"{}", b'{"messages": []}', b'{"messages": [1]', b'{"messages": [{"role": "user", "content": "x"}]} x',
        b'{"messages": [{"role": "user", "content": "a"}], "messages": [{"role": "user", "content": "b"}]}', b'{"messages": "x"}',
        b"\xff", b'{"messages": [{"role": "user", "content": "x"},]}', b'{"messages": [{"role": "nobody", "content": "x"}]}',
        b"[" * 50_000, b'{"messages": [{"role": "user", "content": "x"}] "a": 1}', b'{1: [], "messages": [{"role": "user", "content": "x"}]}',
    ],
)  # fmt: skip
def test_what_is_odd_or_wrong_is_said_as_without_memory(body):
    """Twice, for a failed reading must leave nothing behind; before and after it a good one."""
    memory = Memory()
    good = b'{"messages": [{"role": "user", "content": "x"}]}'
    for _ in range(2):
        assert parse_request(good, memory) == parse_request(good)
        try:
            wanted = parse_request(body)
        except BadRequest as error:
            with pytest.raises(BadRequest) as said:
                parse_request(body, memory)
            assert (str(said.value), said.value.param) == (str(error), error.param)
        else:
            assert parse_request(body, memory) == wanted


def test_a_session_remembers_few_bodies_and_the_latest():
    memory = Memory()
    for index in range(3 * BODIES_MAX):
        parse_responses_request(json.dumps({"input": [{"role": "user", "content": f"agent {index}"}]}).encode(), memory)
    assert len(memory._bodies) == BODIES_MAX
    last = json.dumps(
        {"input": [{"role": "user", "content": f"agent {3 * BODIES_MAX - 1}"}, {"role": "user", "content": "on"}]}
    ).encode()
    assert memory.read(last, "input")["input"].kept == 1


def test_long_texts_are_put_away_when_they_are_no_longer_new_and_read_again_as_they_were():
    """Of each wire format; what is kept of them are the bytes that the session keeps anyway."""
    long = "x é 😀 \\n" * 200
    chat = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": long},
        {"role": "user", "content": long},
    ]
    results = [{"type": "tool_result", "tool_use_id": "c", "content": long}, {"type": "text", "text": long}]
    used = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
    blocks = [{"role": "user", "content": "go"}, used, {"role": "user", "content": results}]
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    items = [{"role": "user", "content": "go"}, call, {"type": "function_call_output", "call_id": "c", "output": long}]
    forms = (
        (parse_request, "messages", chat),
        (parse_messages_request, "messages", blocks),
        (parse_responses_request, "input", items),
    )
    for parse, key, talk in forms:
        memory = Memory()
        answer = [{"role": "assistant", "content": "yes"}, {"role": "user", "content": "on"}]
        bodies = [json.dumps({key: talk + more, "max_tokens": 5}, indent=1).encode() for more in ([], answer)]
        first, second = (parse(body, memory).messages for body in bodies)
        away = [message for message in first if not isinstance(message._content, str)]
        assert away and all(message.role in ("user", "tool") for message in away)
        assert second == parse(bodies[1]).messages
        assert all(isinstance(message._content, str) for message in away), "who asked once will ask again"


def test_long_values_are_decoded_once_for_all_sessions_and_nothing_else_is_taken_for_them():
    values = Values()
    tools = [{"type": "function", "function": {"name": f"tool_{index}", "parameters": None}} for index in range(40)]
    others = [*tools, {"type": "function", "function": {"name": "more"}}]
    asked = [{"role": "user", "content": "x"}]

    def read(tools: list, **fields) -> list:
        body = json.dumps({"model": "m", "messages": asked, **fields, "tools": tools}).encode()
        made, whole = parse_request(body, Memory(values)), parse_request(body)
        assert made == whole and values.root_digest(made.tools) == root_digest(whole.tools)
        return made.tools

    first = read(tools)
    assert read(tools, seed=1) is first
    assert read(others) is not first and read(others) != first
    assert read([]) == []


def test_long_bodies_of_many_conversations_are_bounded_by_their_bytes():
    """The longest ago are forgotten first; a few always stay, whatever they take."""
    memory = Memory()

    def read(index: int, size: int) -> int:
        """How many of its items are known."""
        items = [{"role": "user", "content": f"{index} " + "x" * size}, {"role": "user", "content": "on"}]
        body = json.dumps({"messages": items}).encode()
        kept = memory.read(body, "messages")["messages"].kept
        parse_request(body, memory)
        return kept

    for index in range(12):
        read(index, BODIES_BYTES_MAX // 8)
    assert BODIES_MIN < len(memory._bodies) <= 8
    assert [read(index, BODIES_BYTES_MAX // 8) for index in (11, 0)] == [2, 0]
    for index in range(8):
        read(index, BODIES_BYTES_MAX)
    assert len(memory._bodies) == BODIES_MIN
