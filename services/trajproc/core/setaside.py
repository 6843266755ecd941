"""Call records that cannot be trusted are set aside with a reason; the rest of their execution is trained.

A record is looked at when its group is complete, in call order, so that the order in which records arrived does not matter. What hangs from a
record that was set aside has no context that is known, and goes with it as an orphan.
"""

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from gyre.ids import call_id, sample_id
from gyre.records import CallRecorded, array

ITEM_BYTES = 4
"""int32 and float32 alike."""
LOGPROB_MAX = 1e-3
"""Rounding may bring the log-probability of a sure token above zero, never this far."""


class Problem(NamedTuple):
    """Why a record is set aside."""

    reason: str
    """One of gyre.records.SET_ASIDE_REASONS."""
    detail: str


class Known(NamedTuple):
    """What a record is held against."""

    contexts: Mapping[str, int]
    """Sound calls of the same attempt → tokens of their context, prompt and output."""
    versions: Container[int]
    """Policy versions that were published."""


def set_aside(records: Iterable[CallRecorded], versions: Container[int]) -> dict[str, Problem]:
    """Records of one attempt, each call once → those that are not sound, by call id, in call order."""
    contexts: dict[str, int] = {}
    found: dict[str, Problem] = {}
    for record in sorted(records, key=lambda record: (record.call_index, record.call_id)):
        problem = problem_of(record, Known(contexts, versions))
        if problem is None:
            contexts[record.call_id] = record.prompt_tokens + len(record.output_ids) // ITEM_BYTES
        else:
            found[record.call_id] = problem
    return found


def problem_of(record: CallRecorded, known: Known) -> Problem | None:
    """None for a sound record. Costs no copy of tokens."""
    return _of_lengths(record) or _of_parent(record, known) or _of_tokens(record, known)


def _of_lengths(record: CallRecorded) -> Problem | None:
    sizes = {name: len(getattr(record, name)) for name in ("prompt_delta", "output_ids", "logprobs", "versions")}
    broken = [name for name, size in sizes.items() if size % ITEM_BYTES]
    if broken:
        return Problem("lengths", f"{', '.join(broken)}: no whole number of {ITEM_BYTES}-byte items")
    outputs, logprobs, versions = (sizes[name] // ITEM_BYTES for name in ("output_ids", "logprobs", "versions"))
    if not outputs == logprobs == versions:
        return Problem("lengths", f"{outputs} output tokens, {logprobs} log-probabilities, {versions} versions")
    cut, delta = record.parent_tokens if record.parent else 0, sizes["prompt_delta"] // ITEM_BYTES
    if not 0 < record.prompt_tokens == cut + delta:
        return Problem("lengths", f"a prompt of {record.prompt_tokens} tokens is {cut} of the parent's and {delta} new")
    return None


def _of_parent(record: CallRecorded, known: Known) -> Problem | None:
    if not record.parent:
        return None
    if record.parent not in known.contexts:
        own = call_id(sample_id(record.execution_id, record.attempt), 0)[:-1]
        if not record.parent.startswith(own):
            return Problem("foreign_parent", f"its parent is {record.parent}")
        return Problem("orphan", f"its parent {record.parent} is not on record, comes after it, or was set aside")
    context = known.contexts[record.parent]
    if not 0 <= record.parent_tokens <= context:
        return Problem("lengths", f"it continues {record.parent_tokens} tokens of a context of {context}")
    return None


def _of_tokens(record: CallRecorded, known: Known) -> Problem | None:
    for name in ("prompt_delta", "output_ids"):
        tokens = array(getattr(record, name), "int32")
        if len(tokens) and tokens.min() < 0:
            return Problem("tokens_out_of_range", f"{name} holds {tokens.min()}")
    logprobs = array(record.logprobs, "float32")
    wrong = ~(np.isfinite(logprobs) & (logprobs <= LOGPROB_MAX))
    if wrong.any():
        return Problem("logprobs", f"log-probability {logprobs[wrong][0]} at token {int(np.argmax(wrong))}")
    unknown = [int(version) for version in np.unique(array(record.versions, "int32")) if version not in known.versions]
    if unknown:
        return Problem("version_unknown", f"version {unknown[0]} was never published")
    return None
