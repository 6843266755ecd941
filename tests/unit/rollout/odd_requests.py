"""Requests as nobody should send them, and as some do: made from the official clients' own request types, then bent.

    type hints of the client's request ──▶ a value of that type ──▶ some places bent ──▶ JSON ──▶ now and then broken bytes

The same seed gives the same requests.
"""

import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin

from anthropic.types.message_create_params import MessageCreateParamsBase
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from typing_extensions import get_type_hints, is_typeddict

DEPTH_MAX = 6
PATHS = {
    "/v1/chat/completions": CompletionCreateParamsBase,
    "/v1/messages": MessageCreateParamsBase,
    "/v1/messages/count_tokens": MessageCreateParamsBase,
    "/v1/responses": ResponseCreateParamsBase,
    "/v1/responses/input_tokens": ResponseCreateParamsBase,
}
TEXTS = (
    "", "go", "a\0b", "\ud800", "é日本", "<|im_end|>", "<|im_start|>assistant\n", "<tool_call>", "<think>", "x" * 300, "null", "{",
    '{"path": "a.py"}', "<function=f>\n<parameter=a>",
    "msg_g000001-e0-a1-c0", "rs_g000002-e0-a1-c0", "bash_20250124", "\u202e", "policy", "read_file", "auto", "\r\n\r\ndata: [DONE]\n\n",
)  # fmt: skip
DEEP: Any = json.loads("[" * 200 + "]" * 200)
BENT = (
    None, True, -1, 0, 1.5, 10**30, -(10**400), math.nan, math.inf, "", "text", "\udfff", [], {}, [None], [[]], {"type": "text"}, {"": {}}, DEEP,
    [{"role": "tool", "tool_call_id": "x", "content": "y"}], [{"type": "text", "text": 7}], {"type": "function"}, {"type": ["x"]},
)  # fmt: skip
BROKEN: tuple[Callable[[Random, bytes], bytes], ...] = (
    lambda rng, body: body[: rng.randrange(len(body) + 1)],
    lambda rng, body: body + b"}",
    lambda rng, body: body.replace(b'"', b"'"),
    lambda rng, body: (at := rng.randrange(len(body) + 1), body[:at] + bytes([rng.randrange(256)]) + body[at:])[1],
    lambda rng, body: b"\xff\xfe" + body,
    lambda rng, body: b"[" * rng.choice((900, 1000, 5000)) + body,
    lambda rng, body: b"",
    lambda rng, body: b"null",
    lambda rng, body: body.decode().encode("utf-16"),
)


def odd_request(rng: Random, marker: str) -> tuple[str, bytes, bool]:
    """(path, body, whether it is as it should be). `marker` stands somewhere in its conversation."""
    path = rng.choice(list(PATHS))
    kind = rng.random()
    data = plain(rng, path, marker)
    if kind < 0.25:
        return path, json.dumps(data).encode(), True
    typed = made(PATHS[path], rng)
    names = rng.sample(sorted(typed), min(len(typed), rng.randrange(1, 6))) if typed else []
    data |= {name: typed[name] for name in names}
    if kind > 0.5:
        for _ in range(rng.randrange(1, 4)):
            bend(data, rng)
    body = json.dumps(data).encode()
    if kind > 0.92:
        body = rng.choice(BROKEN)(rng, body)
    return path, body, False


def plain(rng: Random, path: str, marker: str) -> dict[str, Any]:
    """A request that must be served: a conversation of a few turns, many of which begin alike."""
    said, parameters = f"{marker} {rng.randrange(300)}", {"type": "object", "properties": {"path": {"type": "string"}}}
    talk = [{"role": "user", "content": said}]
    for turn in range(rng.choice((0, 0, 1, 2, 5))):
        talk += [{"role": "assistant", "content": "I see."}, {"role": "user", "content": f"on {turn}"}]
    data: dict[str, Any] = {"model": "m", "stream": rng.random() < 0.5}
    if path.startswith("/v1/responses"):
        data["input"] = rng.choice([said, talk])
        data["tools"] = [{"type": "function", "name": "read_file", "parameters": parameters}]
        data["max_output_tokens"] = 40
        return data
    is_chat = path == "/v1/chat/completions"
    function = {"name": "read_file", "parameters": parameters}
    tool = {"type": "function", "function": function} if is_chat else {"name": "read_file", "input_schema": parameters}
    data |= {"messages": talk, "tools": [tool], "max_tokens": 40}
    data["stop" if is_chat else "stop_sequences"] = rng.choice([[], ["STOP"], ["o", "\n\n"]])
    return data


def bend(value: Any, rng: Random) -> None:
    """Put something odd in one place of it, or take one away."""
    while isinstance(value, dict | list) and value:
        key: Any = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        inner = value[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.7:
            value = inner
        elif rng.random() < 0.2:
            del value[key]
            return
        else:
            value[key] = deepcopy(rng.choice(BENT))
            return


def made(kind: Any, rng: Random, depth: int = 0) -> Any:
    """A value of this type, as a client would send it."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Required, NotRequired, typing.Annotated):
        return made(args[0], rng, depth)
    if is_typeddict(kind):
        needed = kind.__required_keys__
        return {
            name: made(hint, rng, depth + 1)
            for name, hint in fields(kind)
            if name in needed or (depth < DEPTH_MAX and rng.random() < (0.9 if depth == 0 else 0.3))
        }
    if origin in (Union, types.UnionType):
        return made(rng.choice(args), rng, depth)
    if origin is Literal:
        return rng.choice(args)
    if origin in (list, Sequence, Iterable, set) or origin is typing.get_origin(Iterable[int]):
        return [made(args[0], rng, depth + 1) for _ in range(rng.randrange(3) if depth < DEPTH_MAX else 0)]
    if origin in (dict, Mapping):
        return {rng.choice(TEXTS): made(args[1], rng, depth + 1) for _ in range(rng.randrange(3))}
    simple: dict[Any, Callable[[], Any]] = {
        str: lambda: rng.choice(TEXTS), int: lambda: rng.choice((-1, 0, 1, 5, 2**40)), bool: lambda: rng.random() < 0.5,
        float: lambda: rng.choice((-1.0, 0.0, 0.5, 1.0, 3.0)), type(None): lambda: None,
    }  # fmt: skip
    return simple.get(kind, lambda: deepcopy(rng.choice(BENT)))()


@cache
def fields(kind: Any) -> list[tuple[str, Any]]:
    return sorted(get_type_hints(kind, include_extras=True).items(), key=lambda field: field[0])
