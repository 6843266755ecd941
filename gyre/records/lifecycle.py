"""The one transition table of executions.

    queued → leased → running ⇄ suspended → completed | timed_out | failed | voided → evaluated → ready → claimed → trained
    dropped from any state before trained

A new attempt of an execution that was leased goes back to leased. Anything else is refused and counted by whoever folds the facts.
"""

from enum import StrEnum


class ExecutionState(StrEnum):
    """Where an execution is between dispatch and gradient."""

    QUEUED = "queued"
    LEASED = "leased"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    VOIDED = "voided"
    EVALUATED = "evaluated"
    READY = "ready"
    CLAIMED = "claimed"
    TRAINED = "trained"
    DROPPED = "dropped"


_S = ExecutionState
ENDED = frozenset({_S.COMPLETED, _S.TIMED_OUT, _S.FAILED, _S.VOIDED})
FINAL = frozenset({_S.TRAINED, _S.DROPPED})

TRANSITIONS: dict[ExecutionState, frozenset[ExecutionState]] = {
    _S.QUEUED: frozenset({_S.LEASED, _S.VOIDED, _S.FAILED, _S.DROPPED}),
    _S.LEASED: frozenset({_S.LEASED, _S.RUNNING, _S.FAILED, _S.VOIDED, _S.DROPPED}),
    _S.RUNNING: frozenset({_S.LEASED, _S.SUSPENDED, *ENDED, _S.DROPPED}),
    _S.SUSPENDED: frozenset({_S.LEASED, _S.RUNNING, *ENDED, _S.DROPPED}),
    _S.COMPLETED: frozenset({_S.EVALUATED, _S.DROPPED}),
    _S.TIMED_OUT: frozenset({_S.EVALUATED, _S.DROPPED}),
    _S.FAILED: frozenset({_S.EVALUATED, _S.DROPPED}),
    _S.VOIDED: frozenset({_S.DROPPED}),
    _S.EVALUATED: frozenset({_S.READY, _S.DROPPED}),
    _S.READY: frozenset({_S.CLAIMED, _S.DROPPED}),
    _S.CLAIMED: frozenset({_S.READY, _S.TRAINED, _S.DROPPED}),
    _S.TRAINED: frozenset(),
    _S.DROPPED: frozenset(),
}

DROP_REASONS: dict[str, str] = {
    "age": "older than the hard age cap, in policy versions (C8)",
    "wait": "did not arrive before the batch's wait was over (C5)",
    "truncated": "above the line for the share of timed-out executions in a batch (C5)",
    "quota": "above the share of failed samples kept for its task type (C10)",
    "evaluation_failed": "the evaluation failed after its retries (B4)",
    "environment_failed": "the environment failed; an error is never a reward",
    "voided": "voided by a person or a policy (C2)",
    "rolled_back": "made by weights that were rolled back (D10)",
    "no_gradient": "nothing in its group has an advantage other than zero: rewards do not differ, nor do segments where they count",
    "no_targets": "no token of it was sampled by the policy in a call of a trained role (gyre explain shows each call's role and what decided it)",
    "untrainable": "the trainer found it impossible: its rows contradict the model, or its log-probabilities or gradient are not finite",
    "mixed": "a replay on a snapshot beside resampled members of its group; the two are never in one batch (C3)",
    "duplicate": "an older attempt or a second delivery of the same execution",
}
"""Reason → meaning; drops are counted by reason (C9)."""

SET_ASIDE_REASONS: dict[str, str] = {
    "lengths": "its arrays do not belong together: one log-probability and one version a token, prompt = cut + delta",
    "logprobs": "a log-probability that is none: not finite, or above zero",
    "sampling": "a temperature at which nothing can be trained: below 1e-4, above 1e4, or no number",
    "version_unknown": "a token's policy version was never published",
    "tokens_out_of_range": "a token id below zero, or beyond the model's vocabulary",
    "foreign_parent": "its parent belongs to another execution or attempt",
    "orphan": "its parent is not on record, or has no place itself",
    "missing": "counted by its execution's ending, and a minute later not on the stream, or not readable there",
}
"""Reason → meaning for call records that are left out of their tree (CallSetAside)."""


def advance(state: ExecutionState, to: ExecutionState) -> bool:
    """Whether the table allows `state` → `to`."""
    return to in TRANSITIONS[state]
