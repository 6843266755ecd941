"""Why a call record is set aside: what can be said of one record by itself. The rest of its execution is trained.

Where the tokens can be trusted and only what is said of their sampling cannot (OF_SAMPLING), the record keeps its place as context: its own
tokens are no targets, what continues them is trained. Else it has no place, and what hangs from it has no context.

What only the parent's record can tell (orphans, a cut beyond the parent's context) is the builder's to find.
"""

from collections.abc import Callable, Container
from typing import NamedTuple

import numpy as np

from gyre.ids import sample_id
from gyre.records import CallRecorded, array

ITEM_BYTES = 4
"""int32 and float32 alike."""
LOGPROB_MAX = 1e-3
"""Rounding may bring the log-probability of a sure token above zero, never this far."""

TEMPERATURE_MIN, TEMPERATURE_MAX = 1e-4, 1e4
"""Logits divided by less leave what float32 can exponentiate; at 0 nothing is drawn, so nothing has a log-probability to learn from. Above, what is
drawn is noise, and some time float32 holds the temperature itself no longer."""


OF_SAMPLING = frozenset({"logprobs", "sampling", "version_unknown"})
"""Reasons that say nothing against the record's tokens."""


class Problem(NamedTuple):
    """`reason` is one of lengths, foreign_parent, orphan, tokens_out_of_range, logprobs, sampling, version_unknown; `detail` is for people."""

    reason: str
    detail: str


def sample_by_name(call_id: str) -> str:
    """g000012-e3-a1-c7 → g000012-e3-a1 (gyre.ids); empty when it is no call's name."""
    return call_id.rpartition("-c")[0]


class Known(NamedTuple):
    """What a record is held against."""

    versions: Container[int] | None = None
    """Policy versions that were published; None: any that is not negative."""
    vocabulary: int = 0
    """Token ids are below; 0: not known."""
    sample_of: Callable[[str], str] = sample_by_name
    """Call id → the sample (execution and attempt) whose call it is."""


NOTHING_KNOWN = Known()


def problem_of(record: CallRecorded, known: Known = NOTHING_KNOWN) -> Problem | None:
    """None for a sound record. Linear in its tokens, copies none of them."""
    return _of_lengths(record) or _of_parent(record, known) or _of_tokens(record, known) or _of_sampling(record, known)


def _of_lengths(record: CallRecorded) -> Problem | None:
    sizes = {name: len(getattr(record, name)) for name in ("prompt_delta", "output_ids", "logprobs", "versions")}
    broken = [name for name, size in sizes.items() if size % ITEM_BYTES]
    if broken:
        return Problem("lengths", f"{', '.join(broken)}: no whole number of {ITEM_BYTES}-byte items")
    outputs, logprobs, versions = (sizes[name] // ITEM_BYTES for name in ("output_ids", "logprobs", "versions"))
    if not outputs == logprobs == versions:
        return Problem("lengths", f"{outputs} output tokens, {logprobs} log-probabilities, {versions} versions")
    cut, delta = record.parent_tokens, sizes["prompt_delta"] // ITEM_BYTES
    if cut < 0 or (cut > 0 and not record.parent) or not 0 < record.prompt_tokens == cut + delta:
        return Problem("lengths", f"a prompt of {record.prompt_tokens} tokens is {cut} of the parent's and {delta} new")
    return None


def _of_parent(record: CallRecorded, known: Known) -> Problem | None:
    if record.parent and known.sample_of(record.parent) != sample_id(record.execution_id, record.attempt):
        return Problem("foreign_parent", f"its parent is {record.parent}")
    return None


def _of_tokens(record: CallRecorded, known: Known) -> Problem | None:
    for name in ("prompt_delta", "output_ids"):
        tokens = array(getattr(record, name), "int32")
        lowest, highest = tokens.min(initial=0), tokens.max(initial=0)
        if lowest < 0:
            return Problem("tokens_out_of_range", f"{name} holds {lowest}")
        if 0 < known.vocabulary <= highest:
            return Problem(
                "tokens_out_of_range", f"{name} holds {highest}, the vocabulary ends at {known.vocabulary - 1}"
            )
    return None


def _of_sampling(record: CallRecorded, known: Known) -> Problem | None:
    logprobs = array(record.logprobs, "float32")
    wrong = ~(np.isfinite(logprobs) & (logprobs <= LOGPROB_MAX))
    if wrong.any():
        at = int(np.argmax(wrong))
        return Problem("logprobs", f"log-probability {logprobs[at]} at output token {at}")
    if len(logprobs) and not TEMPERATURE_MIN <= record.sampling.temperature <= TEMPERATURE_MAX:
        return Problem("sampling", f"it was drawn at temperature {record.sampling.temperature}")
    versions = array(record.versions, "int32")
    changes = np.flatnonzero(versions[1:] != versions[:-1]) + 1
    for version in sorted({int(versions[at]) for at in (0, *changes)} if len(versions) else ()):
        if version < 0 or (known.versions is not None and version not in known.versions):
            return Problem("version_unknown", f"version {version} was never published")
    return None
