"""Generated executions for the fuzz tests, and what is right of them, worked out the slow way: prefixes as tuples, token by token."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from gyre import records as r
from gyre.ids import call_id
from services.trajproc.core.roles import TRAINED_ROLES
from services.trajproc.core.tree.problems import OF_SAMPLING
from tests.unit.trajproc.builders import call

SAMPLE = "g000000-e0-a1"
ROLES = [*TRAINED_ROLES, "side", "unknown"]
PUBLISHED = range(5)
TOKENS = st.lists(st.integers(1, 3), max_size=4)
SOME_TOKENS = TOKENS.filter(bool)
ROLE, VERSION, ONE_IN_TEN, ONE_IN_FIVE = (
    st.sampled_from(ROLES),
    st.sampled_from(PUBLISHED),
    st.integers(0, 9),
    st.integers(0, 4),
)


def _with(**changes: Any) -> Callable[[r.CallRecorded], r.CallRecorded]:
    return lambda record: msgspec.structs.replace(record, **changes)


GARBAGE: dict[str, tuple[str, Callable[[r.CallRecorded], r.CallRecorded]]] = {
    "odd bytes": ("lengths", lambda record: _with(output_ids=record.output_ids + b"\1")(record)),
    "too few log-probabilities": ("lengths", lambda record: _with(logprobs=record.logprobs + b"\0\0\0\0")(record)),
    "too many versions": ("lengths", lambda record: _with(versions=record.versions + b"\0\0\0\0")(record)),
    "a wrong prompt length": ("lengths", lambda record: _with(prompt_tokens=record.prompt_tokens + 1)(record)),
    "no prompt": ("lengths", _with(prompt_tokens=0, prompt_delta=b"", parent_tokens=0)),
    "a negative cut": ("lengths", _with(parent_tokens=-1)),
    "a negative token": ("tokens_out_of_range", lambda record: _with(
        prompt_delta=record.prompt_delta + r.pack([-7], "int32"), prompt_tokens=record.prompt_tokens + 1)(record)),
    "no number": ("logprobs", lambda record: _longer(record, float("nan"), 0)),
    "minus infinity": ("logprobs", lambda record: _longer(record, float("-inf"), 0)),
    "more than certain": ("logprobs", lambda record: _longer(record, 0.5, 0)),
    "an unpublished version": ("version_unknown", lambda record: _longer(record, -0.5, 99)),
    "no version": ("version_unknown", lambda record: _longer(record, -0.5, -1)),
    "no temperature": ("sampling", lambda record: _with(
        sampling=msgspec.structs.replace(record.sampling, temperature=0.0))(_longer(record, -0.5, 0))),
    "another execution's parent": ("foreign_parent", _with(parent="g000000-e1-a1-c0")),
    "another attempt's parent": ("foreign_parent", _with(parent="g000000-e0-a2-c0")),
    "a parent that never came": ("orphan", _with(parent=call_id(SAMPLE, 77))),
    "itself as parent": ("orphan", lambda record: _with(parent=record.call_id)(record)),
}  # fmt: skip


def _longer(record: r.CallRecorded, logprob: float, version: int) -> r.CallRecorded:
    return _with(
        output_ids=record.output_ids + r.pack([1], "int32"), logprobs=record.logprobs + r.pack([logprob], "float32"),
        versions=record.versions + r.pack([version], "int32"),
    )(record)  # fmt: skip


@dataclass
class Generated:
    """Records in order of their index, and what is right of each that has its place."""

    records: list[r.CallRecorded] = field(default_factory=list)
    contexts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Call whose tokens can be trusted → prompt and output."""
    set_aside: dict[str, str] = field(default_factory=dict)
    """Call of which nothing is trained → reason."""

    @property
    def placed(self) -> list[r.CallRecorded]:
        return [record for record in self.records if record.call_id in self.contexts]

    def is_trained(self, record: r.CallRecorded, class_order: tuple[str, ...] = TRAINED_ROLES) -> bool:
        return record.role in class_order and record.call_id not in self.set_aside

    def owners(self, class_order: tuple[str, ...] = TRAINED_ROLES) -> dict[tuple[int, ...], r.CallRecorded | None]:
        """Prefix → who owns its last token: one that may be trained first, then the earlier call; None for prompt tokens."""
        found: dict[tuple[int, ...], r.CallRecorded | None] = {}
        for context in self.contexts.values():
            found |= {context[:end]: None for end in range(1, len(context) + 1)}
        for record in sorted(
            self.placed, key=lambda record: (self.is_trained(record, class_order), -record.call_index)
        ):
            context = self.contexts[record.call_id]
            found |= {context[:end]: record for end in range(record.prompt_tokens + 1, len(context) + 1)}
        return found


@st.composite
def executions(draw: Any, calls_max: int = 8) -> Generated:
    """Few token values, so that contexts share prefixes, and calls sample alike, where no parent says so; some calls are recorded whole though
    their context is known, some are garbage."""
    made = Generated()
    contexts: list[tuple[int, ...]] = []
    for index in range(draw(st.integers(1, calls_max))):
        parent = draw(st.none() | st.integers(0, index - 1)) if index else None
        cut = draw(st.integers(0, len(contexts[parent]))) if parent is not None else 0
        delta = draw(TOKENS if cut else SOME_TOKENS)
        kept = contexts[parent][:cut] if parent is not None else ()
        if parent is not None and draw(st.booleans()):  # recorded whole, as after a restart that forgot the parent
            parent, cut, delta, kept = None, 0, [*kept, *delta], ()
        output = draw(TOKENS)
        record = call(
            delta, output, index=index, parent=parent, cut=cut, role=draw(ROLE), delivered=draw(ONE_IN_FIVE) > 0,
        )  # fmt: skip
        versions = [draw(VERSION) for _ in output]
        record = msgspec.structs.replace(record, versions=r.pack(versions, "int32"))
        contexts.append((*kept, *delta, *output))
        reason = ""
        if draw(ONE_IN_TEN) == 0:
            reason, spoil = GARBAGE[draw(st.sampled_from(sorted(GARBAGE)))]
            record = spoil(record)
            if reason in OF_SAMPLING:
                contexts[-1] = (*contexts[-1], 1)  # as `_longer` does
        if reason in OF_SAMPLING | {""} and record.parent and record.parent not in made.contexts:
            reason = "orphan"
        made.records.append(record)
        if reason:
            made.set_aside[record.call_id] = reason
        if reason in OF_SAMPLING | {""}:
            made.contexts[record.call_id] = contexts[-1]
    return made


@st.composite
def arrivals(draw: Any, made: Generated) -> list[r.CallRecorded]:
    """The records in some order, some of them twice."""
    return draw(st.permutations(made.records + draw(st.lists(st.sampled_from(made.records), max_size=3))))
