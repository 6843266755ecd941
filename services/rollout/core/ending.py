"""What an environment says of its execution's end, checked before anything of it is believed (B4, D5).

Environments are untrusted: sizes are bounded, numbers are finite, words are known words. What breaks the contract ends the execution as
failed(environment_invalid); it is never a reward.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gyre.errors import InvalidInput
from gyre.records import Evaluation

EVIDENCE_BYTES_MAX = 64 * 1024
EVIDENCE_DEPTH_MAX = 64
"""Readers of records decode recursively; evidence is a list of findings, not a tree."""
DETAIL_CHARS_MAX = 2000
NAMES_MAX = 64
EXTERNAL_CALLS_MAX = 10_000_000
TURNS_MAX = 10_000_000
ENDINGS = ("completed", "timed_out", "failed")

_WORD = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class Said:
    """A checked ending."""

    ending: str
    reason: str
    detail: str
    evaluation: Evaluation | None
    external_calls: int = 0
    snapshots: int = 0
    rollback_turns: int = 0
    quota_left: int = -1


def check_ending(
    ending: str, reason: str, detail: str, external_calls: int, evaluation: Evaluation | None, has_started: bool,
    snapshots: int = 0, rollback_turns: int = 0, quota_left: int = -1,
) -> Said:  # fmt: skip
    """Raises InvalidInput. An environment that never came up leaves a placeholder, marked so (B4)."""
    if ending not in ENDINGS:
        raise InvalidInput(f"ending is {ending[:40]!r}; it must be one of {', '.join(ENDINGS)}")
    if not _WORD.fullmatch(reason):
        raise InvalidInput(f"reason is {reason[:80]!r}; it must be one lower-case word such as submitted")
    if not 0 <= external_calls <= EXTERNAL_CALLS_MAX:
        raise InvalidInput(f"external_calls is {external_calls}")
    if not 0 <= snapshots <= TURNS_MAX or not 0 <= rollback_turns <= TURNS_MAX:
        raise InvalidInput(
            f"{snapshots} snapshots, {rollback_turns} turns lost by rollbacks; both must be from 0 to {TURNS_MAX}"
        )
    if not -1 <= quota_left <= EXTERNAL_CALLS_MAX:
        raise InvalidInput(f"quota_left is {quota_left}; it must be from 0 to {EXTERNAL_CALLS_MAX}, or absent")
    if rollback_turns and not snapshots:
        raise InvalidInput(f"{rollback_turns} turns lost by rollbacks, though no snapshot was taken to go back to")
    if not has_started and ending != "failed":
        raise InvalidInput(f"{ending}, though the environment never said Started")
    if evaluation is None and not has_started:
        evaluation = Evaluation(outcome=0.0, valid=False, placeholder=True)
    return Said(
        ending, reason, detail[-DETAIL_CHARS_MAX:], evaluation, external_calls, snapshots, rollback_turns, quota_left
    )


def check_evaluation(
    outcome: float,
    valid: bool,
    milestones: Mapping[str, bool],
    weights: Mapping[str, float],
    evidence_json: str,
    tries: int,
    milestone_turns: Mapping[str, int] | None = None,
) -> Evaluation:
    """Raises InvalidInput with what was wrong and what would be right."""
    if not math.isfinite(outcome) or not 0 <= outcome <= 1:
        raise InvalidInput(f"outcome is {outcome}; it must be a number in [0, 1]")
    turns = milestone_turns or {}
    if (most := max(len(milestones), len(weights), len(turns))) > NAMES_MAX:
        raise InvalidInput(f"{most} milestones; at most {NAMES_MAX} are taken")
    for name in (*milestones, *weights):
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"milestone {name[:80]!r}: letters, digits, `.`, `_` and `-`, at most 64")
    for name, weight in weights.items():
        if not math.isfinite(weight) or not 0 <= weight <= 1:
            raise InvalidInput(f"milestone {name} weighs {weight}; it must be a number in [0, 1]")
    for name, turn in turns.items():
        if not 0 <= turn <= TURNS_MAX:
            raise InvalidInput(
                f"milestone {name[:80]!r} was verified after {turn} calls; it must be from 0 to {TURNS_MAX}"
            )
    if unknown := (set(milestones) | set(turns)) - set(weights):
        raise InvalidInput(f"milestone {min(unknown)[:80]} has no weight")
    return Evaluation(
        outcome=outcome, valid=valid, milestones=dict(milestones), milestone_weights=dict(weights), milestone_turns=dict(turns),
        evidence=_evidence(evidence_json), tries=max(1, min(tries, 1000)),
    )  # fmt: skip


def check_evidence(image_digest: str, tool_versions: Mapping[str, str], dependency_snapshot: str) -> None:
    """The reproducibility four as said by `Started`. Raises InvalidInput."""
    size = (
        len(image_digest)
        + len(dependency_snapshot)
        + sum(len(key) + len(value) for key, value in tool_versions.items())
    )
    if size > EVIDENCE_BYTES_MAX:
        raise InvalidInput(
            f"{size} characters of image, tool versions and snapshot; at most {EVIDENCE_BYTES_MAX} are taken"
        )


def _evidence(text: str) -> dict[str, Any]:
    if len(text.encode()) > EVIDENCE_BYTES_MAX:
        raise InvalidInput(f"{len(text)} characters of evidence; at most {EVIDENCE_BYTES_MAX} bytes are taken")
    try:
        value = json.loads(text or "{}", parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"evidence_json is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput("evidence_json must be a JSON object")
    if _depth(value) > EVIDENCE_DEPTH_MAX:
        raise InvalidInput(f"evidence_json is nested more than {EVIDENCE_DEPTH_MAX} deep")
    try:
        msgspec.msgpack.encode(value)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"evidence_json cannot be stored: {error}; numbers of 64 bits and Unicode text are taken"
        ) from error
    return value


def _depth(value: Any) -> int:
    """Levels of nesting, counted without recursion."""
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            inner
            for outer in level if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]  # fmt: skip
    return depth


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is too large a number")
    return number


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
