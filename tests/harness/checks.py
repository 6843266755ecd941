"""What is true of an execution's records, whatever happened while it ran."""

import itertools
from typing import Any

import numpy as np

from gyre.records import CallRecorded, array
from services.trajproc.core.tree import build_tree
from tests.harness.scripted import logprob
from tests.harness.stack import Stack


def records_of(stack: Stack, name: str) -> list[CallRecorded]:
    """Of the calls that were answered: who hung up, for the gateway's sake, asked again."""
    return [record for record in stack.records(name) if record.finish_reason != "cancelled"]


def check_bit_exact(stack: Stack, name: str, attempt: int = 1) -> None:
    """The tree, flattened, is what the engine was given and what it sampled in each call, token by token; log-probabilities and versions too."""
    records = [record for record in stack.records(name) if record.attempt == attempt]
    tree = build_tree(records)
    assert not tree.set_aside and [call.call_id for call in tree.calls] == [record.call_id for record in records]
    notes = {note["call_id"]: note for note in stack.notes() if note["event"] == "stop"}
    versions = _versions(stack.notes())
    for index, record in enumerate(tree.calls):
        if record.finish_reason == "cancelled":
            continue
        note, output = notes[record.call_id], array(record.output_ids, "int32").tolist()
        sampled = note["resumed_ids"] + note["ids"]
        assert output == sampled
        assert tree.context(index).tolist() == note["prompt_ids"] + sampled
        assert array(record.logprobs, "float32").tolist() == [np.float32(logprob(at)) for at in range(len(output))]
        assert array(record.versions, "int32").tolist() == versions[record.call_id]


def _versions(notes: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Call → the version of each token, over all cells that it was at."""
    found: dict[str, list[int]] = {}
    for note in notes:
        if note["event"] in ("stop", "migrated"):
            resumed = len(note["resumed_ids"])
            found[note["call_id"]] = found.get(note["call_id"], [])[:resumed] + note["versions"]
    return found


def check_path(records: list[CallRecorded], role: str) -> list[CallRecorded]:
    """The calls of `role` are one unbroken path: each prompt begins with all tokens of the prompt and output before it."""
    path = [record for record in records if record.role == role]
    for before, after in itertools.pairwise(path):
        assert after.parent == before.call_id, (role, before.call_id, after.parent)
        assert after.parent_tokens == before.prompt_tokens + len(before.output_ids) // 4
    return path


def shape(records: list[CallRecorded]) -> list[tuple[str, str, bytes]]:
    """The tree but for versions and what differs between two runs of the same (times, folders, the order of calls that run beside each other):
    of each call its role, what it goes on from, and its output."""
    of = {record.call_id: record for record in records}
    found = []
    for record in records:
        before = of.get(record.parent)
        goes_on = before is not None and before.role == record.role
        found.append((record.role, before.output_ids.hex() if goes_on else "", record.output_ids))
    return sorted(found)
