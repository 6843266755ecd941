"""From sampled text to an assistant's message: reasoning, content, tool calls, in the form of the model's family (families.py, blocks.py).

A block that is no call, or has no name, stays in the content: the harness decides what to make of it. A whole call that only lacks its
closing mark at the end of the output is a call. Reasoning that was cut before its end is reasoning.
"""

from dataclasses import dataclass

from services.rollout.core.blocks import NO_SCHEMAS, blocks
from services.rollout.core.callids import tool_call_id
from services.rollout.core.calls_xml import Schemas
from services.rollout.core.channels import as_one_turn
from services.rollout.core.families import QWEN, Family
from services.rollout.core.normal import Call, Message, assistant

__all__ = ["NO_SCHEMAS", "Parsed", "parse"]


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


def parse(
    text: str, call_id: str, think_open: bool = False, schemas: Schemas = NO_SCHEMAS, family: Family = QWEN
) -> Parsed:
    """`text` is the output without its end-of-turn token; `think_open`: the prompt already opened the reasoning; `schemas`: of the tools that were
    offered. Never raises."""
    if family.channels is not None:
        text = as_one_turn(text, think_open)
    reasoning, text = _split_reasoning(text, think_open, *family.think)
    rest, calls, end = [], [], 0
    for block in blocks(text, schemas, family=family):
        if (said := block.call) is None:
            continue
        rest.append(text[end : block.start])
        end = block.end
        name = tool_call_id(call_id, len(calls), family.ids.kept(said.own_id))
        calls.append(Call(name, said.name, said.arguments))
    rest.append(text[end:])
    return Parsed("".join(rest).strip(), tuple(calls), reasoning)


def _split_reasoning(text: str, think_open: bool, open_: str, close: str) -> tuple[str, str]:
    stripped = text.lstrip()
    opened = stripped.startswith(open_)
    if not opened and not think_open:
        return "", text
    inside, _, after = (stripped[len(open_) :] if opened else stripped).partition(close)
    return inside.strip(), after
