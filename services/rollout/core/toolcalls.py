"""From sampled text to an assistant's message: reasoning, content, tool calls in Qwen's `<tool_call>…</tool_call>`, with JSON or marks inside
(blocks.py, calls_xml.py).

A block that is neither, or has no name, stays in the content: the harness decides what to make of it. A whole call that only lacks its
closing mark at the end of the output is a call. Reasoning that was cut before its end is reasoning.
"""

import hashlib
import json
from dataclasses import dataclass

from services.rollout.core.blocks import CLOSE, NO_SCHEMAS, OPEN, THINK_CLOSE, THINK_OPEN, blocks
from services.rollout.core.calls_xml import MARK, Schemas
from services.rollout.core.normal import Call, Message, assistant

__all__ = ["CLOSE", "NO_SCHEMAS", "OPEN", "THINK_CLOSE", "THINK_OPEN", "Parsed", "call_prefix", "parse", "tool_call_id"]


@dataclass(frozen=True, slots=True)
class Parsed:
    """An assistant's turn as the harness sees it."""

    content: str
    calls: tuple[Call, ...]
    reasoning: str = ""
    reasoning_tokens: int = 0
    """Of the output, up to the end of its reasoning."""
    stop_sequence: str = ""
    """What ended the output, where the request named it; it is in no field of the message."""

    def message(self) -> Message:
        return assistant(self.content, self.calls)


def parse(text: str, call_id: str, think_open: bool = False, schemas: Schemas = NO_SCHEMAS) -> Parsed:
    """`text` is the output without its end-of-turn token; `think_open`: the prompt already opened the reasoning; `schemas`: of the tools that were
    offered. Never raises."""
    reasoning, text = _split_reasoning(text, think_open)
    rest, calls, end = [], [], 0
    for block in blocks(text, schemas):
        if block.call is None:
            continue
        rest.append(text[end : block.start])
        end = block.end
        calls.append(Call(tool_call_id(call_id, len(calls)), *block.call))
    rest.append(text[end:])
    return Parsed("".join(rest).strip(), tuple(calls), reasoning)


def tool_call_id(call_id: str, index: int) -> str:
    """The same call gives the same ids, also from a gateway that started anew."""
    return "call_" + hashlib.sha256(f"{call_id}/{index}".encode()).hexdigest()[:24]


def call_prefix(name: str, is_xml: bool = False) -> str:
    """The beginning of a call: of this tool, of any where `name` is empty."""
    if is_xml:
        return f"{OPEN}\n{MARK}" + (f"{name}>\n" if name else "")
    return f'{OPEN}\n{{"name": ' + (f'{json.dumps(name, ensure_ascii=False)}, "arguments": ' if name else '"')


def _split_reasoning(text: str, think_open: bool) -> tuple[str, str]:
    stripped = text.lstrip()
    opened = stripped.startswith(THINK_OPEN)
    if not opened and not think_open:
        return "", text
    inside, _, after = (stripped[len(THINK_OPEN) :] if opened else stripped).partition(THINK_CLOSE)
    return inside.strip(), after
