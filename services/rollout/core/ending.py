"""What an environment says of its execution's end, checked before anything of it is believed (B4, D5).

Environments are untrusted: sizes are bounded, numbers are finite, words are known words. What breaks the contract ends the execution as
failed(environment_invalid); it is never a reward.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gyre.errors import InvalidInput
from gyre.records import Evaluation
from gyre.strict_json import read_object

EVIDENCE_BYTES_MAX = 64 * 1024
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
        evidence=read_object(evidence_json, "evidence_json", EVIDENCE_BYTES_MAX), tries=max(1, min(tries, 1000)),
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
