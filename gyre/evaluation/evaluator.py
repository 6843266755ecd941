"""What an evaluator is shown and what it answers, and the bounds of an answer.

    execution ended ──▶ Execution ──▶ [evaluator] ──▶ Finding ──▶ checked() ──▶ fact RewardScored

How they travel is said in wire.py.
"""

import json
import math
from collections.abc import Awaitable
from typing import Any, Protocol

import msgspec

from gyre.errors import InvalidInput
from gyre.strict_json import check_storable

EVIDENCE_BYTES_MAX = 16 * 1024
"""Evidence of one answer, as JSON; it is booked with every sample."""
LOOKED_AT_MAX = 64
"""Entries of `looked_at`."""
TEXT_CHARS_MAX = 500
"""One entry of `looked_at`, and `detail`."""


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """One context of the main agent, prompt and outputs, as the model saw it."""

    call_id: str
    """The call whose context it is; its output is the path's end."""
    role: str
    tokens: int
    """Length of the whole path."""
    text: str
    """Decoded; cut in the middle where it is longer than the evaluator's `text_chars_max`, and says so there."""
    cut: bool = False


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call of the execution."""

    call_index: int
    """Ordinal of the model call that made it."""
    call_id: str
    arguments: str
    """As the model produced them, not parsed; cut where long."""


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one execution that has ended, to be judged."""

    sample_id: str
    execution_id: str
    group_id: str
    attempt: int
    task_type: str
    payload: dict[str, Any] | None = None
    """The task's payload; None where it is not known, or too large to be sent."""
    ending: str
    """`completed` or `timed_out`; other endings are never judged."""
    reason: str = ""
    partial: bool = False
    """Cut short by a limit: what it left behind is judged, for partial credit (B4)."""
    outcome: float = 0.0
    """What the environment verified, in [0, 1]."""
    milestones: dict[str, bool] = {}
    evidence: dict[str, Any] = {}
    turns: int = 0
    paths: list[Path] = []
    """Contexts of the main agent, oldest first: more than one where it compacted its context."""
    tool_calls: list[ToolCall] = []


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """An answer (B4)."""

    score: float
    """In [0, 1]. Of a guard: how safe it is; 1 is safe."""
    valid: bool = True
    """False: it could not be judged. It is asked again inside the budget and never becomes a zero."""
    evidence: dict[str, Any] = {}
    """What the score rests on. JSON values, at most EVIDENCE_BYTES_MAX."""
    looked_at: list[str] = []
    """What was looked at: names of files, checks, texts."""
    detail: str = ""
    """For people."""


class Evaluator(Protocol):
    """Judges one execution. May be asked about the same execution again, and about one that timed out; plain or `async`.

    A plain float is a valid finding without evidence. What it raises is a failed try.
    """

    def __call__(self, execution: Execution, /) -> Finding | float | Awaitable[Finding | float]: ...


def checked(finding: Finding) -> Finding:
    """The finding inside its bounds. Raises InvalidInput for one that is no valid score in [0, 1]."""
    if not finding.valid:
        raise InvalidInput(f"it says that it could not judge: {plain(finding.detail) or 'no reason given'}")
    score = finding.score
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score) or not 0 <= score <= 1:
        raise InvalidInput(f"score must be a number from 0 to 1, not {str(score)[:80]!r}")
    return Finding(
        score=float(score),
        evidence=_bounded(finding.evidence),
        looked_at=[plain(text) for text in finding.looked_at[:LOOKED_AT_MAX]],
        detail=plain(finding.detail),
    )


def _bounded(evidence: dict[str, Any]) -> dict[str, Any]:
    """Evidence as it is stored: itself, or how large it was. Raises InvalidInput where it is no JSON object that can be stored."""
    try:
        size = len(json.dumps(evidence, allow_nan=False))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        why = f"{str(error)[:TEXT_CHARS_MAX]}"
        raise InvalidInput(f"evidence must hold JSON values of at most 64 bits and Unicode text only: {why}") from error
    check_storable(evidence, "evidence")
    if size > EVIDENCE_BYTES_MAX:
        return {"cut": f"{size} bytes, at most {EVIDENCE_BYTES_MAX} are stored"}
    return evidence


def plain(text: Any) -> str:
    """A text that can be stored: Unicode, and of bounded length."""
    return str(text)[:TEXT_CHARS_MAX].encode(errors="replace").decode()
