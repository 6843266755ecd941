"""What an evaluator is shown of an execution: its words, decoded and bounded.

Texts are for judging only: nothing that is trained goes through them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from gyre.config import EvaluatorConfig
from gyre.errors import Unavailable
from gyre.evaluation import Execution, Path, ToolCall
from gyre.ids import sample_id
from gyre.records import CallRecorded, ExecutionEnded, array

PATHS_MAX = 4
"""Newest contexts of the main agent that are shown: more come of many compactions, and each would be cut to little."""
PAYLOAD_BYTES_MAX = 64 * 1024
"""A task's payload beyond this is not sent."""
ARGUMENTS_CHARS_MAX = 2_000
"""Of one tool call."""
MAIN = "main"


class Texts:
    """Decodes with the model directory's tokenizer, which is read when it is first needed."""

    def __init__(self, directory: FilePath) -> None:
        self._file = directory / "tokenizer.json"
        self._tokenizer: Tokenizer | None = None

    def decode(self, tokens: npt.NDArray, chars_max: int) -> tuple[str, bool]:
        """int32[T] → text of about `chars_max` characters, and whether its middle was cut out. Raises Unavailable without a tokenizer."""
        half = chars_max // 2
        if len(tokens) <= 2 * chars_max:
            text = self._text(tokens)
            if len(text) <= chars_max:
                return text, False
            head, tail = text[:half], text[-half:]
        else:  # a token has hardly ever less than half a character, so these hold what is shown
            head, tail = self._text(tokens[:chars_max])[:half], self._text(tokens[-chars_max:])[-half:]
        return f"{head}\n[… cut: the middle of {len(tokens)} tokens …]\n{tail}", True

    def _text(self, tokens: npt.NDArray) -> str:
        if self._tokenizer is None:
            try:
                self._tokenizer = Tokenizer.from_file(str(self._file))
            except Exception as error:  # tokenizers raises plain Exception
                raise Unavailable(f"texts cannot be decoded: {self._file}: {error}") from error
        return self._tokenizer.decode(tokens.tolist(), skip_special_tokens=False)


def execution_of(
    ended: ExecutionEnded,
    calls: Sequence[CallRecorded],
    payload: dict[str, Any] | None,
    settings: EvaluatorConfig,
    texts: Texts,
) -> Execution:
    """Blocking work of some milliseconds; give it a thread. Raises Unavailable where texts are wanted and there is no tokenizer."""
    evaluation = ended.evaluation
    assert evaluation is not None
    paths = []
    if settings.text_chars_max:
        by_id = {call.call_id: call for call in calls}
        leaves = main_leaves(calls)[-PATHS_MAX:]
        for leaf in leaves:
            tokens = context_of(leaf, by_id)
            text, is_cut = texts.decode(tokens, settings.text_chars_max // len(leaves))
            paths.append(Path(call_id=leaf.call_id, role=leaf.role, tokens=len(tokens), text=text, cut=is_cut))
    return Execution(
        sample_id=sample_id(ended.execution_id, ended.attempt), execution_id=ended.execution_id, group_id=ended.group_id,
        attempt=ended.attempt, task_type=ended.task_type, payload=_bounded(payload), ending=ended.ending, reason=ended.reason,
        partial=is_partial(ended), outcome=evaluation.outcome, milestones=evaluation.milestones, evidence=evaluation.evidence,
        turns=ended.turns, paths=paths, tool_calls=tool_calls(calls, settings.tool_calls_max),
    )  # fmt: skip


def is_partial(ended: ExecutionEnded) -> bool:
    """Cut short: what it left behind is judged (B4)."""
    return ended.ending == "timed_out"


def main_leaves(calls: Iterable[CallRecorded]) -> list[CallRecorded]:
    """Calls of the main agent whose output no later one continues, in call order; of every role where none is the main agent's."""
    heard = sorted((call for call in calls if call.delivered), key=lambda call: (call.call_index, call.call_id))
    mains = [call for call in heard if call.role == MAIN] or heard
    prompts = {call.call_id: call.prompt_tokens for call in mains}
    continued = {call.parent for call in mains if call.parent_tokens > prompts.get(call.parent, call.parent_tokens)}
    return [call for call in mains if call.call_id not in continued]


def context_of(call: CallRecorded, calls: Mapping[str, CallRecorded]) -> npt.NDArray:
    """int32[T]: the call's prompt and output, from the records it hangs from. A parent that is missing leaves its part out."""
    pieces = [array(call.output_ids, "int32"), array(call.prompt_delta, "int32")]
    wanted, parent, seen = call.parent_tokens, call.parent, {call.call_id}
    while wanted > 0 and parent in calls and parent not in seen:
        seen.add(parent)
        record = calls[parent]
        begins = record.parent_tokens if record.parent else 0
        own = np.concatenate([array(record.prompt_delta, "int32"), array(record.output_ids, "int32")])
        pieces.append(own[: max(0, wanted - begins)])
        wanted, parent = min(wanted, begins), record.parent
    return np.concatenate(pieces[1:][::-1] + pieces[:1])


def tool_calls(calls: Iterable[CallRecorded], most: int) -> list[ToolCall]:
    """In call order; of more than `most` the first and the last half."""
    made = [
        ToolCall(call_index=call.call_index, call_id=name, arguments=_cut(text))
        for call in sorted(calls, key=lambda call: call.call_index)
        for name, text in call.tool_payloads.items()
    ]
    return made if len(made) <= most else made[: most - most // 2] + made[len(made) - most // 2 :]


def _cut(text: str) -> str:
    if len(text) <= ARGUMENTS_CHARS_MAX:
        return text
    return f"{text[:ARGUMENTS_CHARS_MAX]} [… cut: {len(text)} characters …]"


def _bounded(payload: dict[str, Any] | None) -> dict[str, Any] | None:
    return payload if payload is not None and len(json.dumps(payload)) <= PAYLOAD_BYTES_MAX else None
