"""The design's field table (C13): each field followed from the fact that collects it, said by whom the table says, to the question that answers it.

A value that occurs nowhere else is put into the fact as its collector would, goes over the wire's encoding into the books, and must come out of the
question. Without that fact it must not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from gyre import records as r
from gyre.bus.access import SPEAKS
from gyre.records import decode_fact, encode
from services.ledger.core.fields import FIELD_TABLE
from services.ledger.queries.asked import Asked, ask
from tests.unit.ledger.ledger_history import RUN, changed, config, history

SAMPLE, GROUP = "g000001-e1-a2", "g000001"
AGED = "g000003-e1-a1"


@dataclass(frozen=True)
class Followed:
    """Where a field is collected, with a value to know it again by, and where it is answered."""

    said_by: tuple[str, ...]
    """Identities on the bus that may say the fact: the part of the system that the design's table names."""
    fact: type
    values: dict[str, Any]
    question: tuple[str, ...]
    read: Callable[[dict[str, Any]], Any]
    wanted: Any
    where: Callable[[Any], bool] = lambda fact: getattr(fact, "group_id", GROUP) == GROUP


EXPLAIN = ("explain", SAMPLE)
OWN = {"where": lambda fact: (fact.execution_id, fact.attempt) == ("g000001-e1", 2)}

FIELDS: dict[str, Followed] = {
    # scheduling
    "duration tier": Followed(
        ("scheduler",), r.GroupDispatched, {"tier": "marathon"}, EXPLAIN, lambda page: page["queue"]["tier"], "marathon"),
    "queue wait": Followed(
        ("scheduler",), r.GroupDispatched, {"queue_wait_s": 777.25}, ("tiers",), lambda page: page["tiers"]["all"]["wait_s"]["max"], 777.25),
    "promotions": Followed(
        ("scheduler",), r.GroupDispatched, {"promotions": 41}, EXPLAIN, lambda page: page["queue"]["promotions"], 41),
    "snapshot ordinal": Followed(
        ("gateway",), r.ExecutionEnded, {"snapshots": 17}, EXPLAIN, lambda page: page["attempts"][-1]["snapshots"], 17, **OWN),
    "rollback loss": Followed(
        ("gateway",), r.ExecutionEnded, {"rollback_turns": 19}, EXPLAIN, lambda page: page["attempts"][-1]["rollback_turns"], 19, **OWN),
    "batch completion rule": Followed(
        ("trajproc",), r.BatchClosed, {"turns": 91}, EXPLAIN, lambda page: page["training"]["batch_turns"], 91, lambda fact: fact.step == 1),
    # accounting
    "interaction turns": Followed(
        ("gateway",), r.CallRecorded, {"output_ids": r.pack([3] * 1000, "int32")}, EXPLAIN,
        lambda page: page["calls"]["tokens_sampled"], 2000, **OWN),
    "environment occupancy": Followed(
        ("gateway",), r.ExecutionEnded, {"occupancy_s": 4321.5}, ("bill", "task"),
        lambda page: next(row["occupancy_s"] for row in page["rows"] if row["task"] == "task-1"), 4327.5, **OWN),
    "external calls": Followed(
        ("gateway",), r.ExecutionEnded, {"external_calls": 313}, ("books",), lambda page: page["books"]["external_calls"], 313 + 14, **OWN),
    "quota left": Followed(
        ("gateway",), r.ExecutionEnded, {"quota_left": 3}, ("books",), lambda page: page["books"]["quota_left"], 3, **OWN),
    # evidence
    "weight version": Followed(
        ("gateway",), r.CallRecorded, {"versions": r.pack([70, 70, 71], "int32")}, ("lineage", SAMPLE),
        lambda page: [(one["version"], one["tokens"]) for one in page["versions"]], [(70, 4), (71, 2)], **OWN),
    "config fingerprint": Followed(
        ("scheduler",), r.RunStarted, {"fingerprint": "c0ffee"}, EXPLAIN, lambda page: page["versions"]["fingerprint"], "c0ffee"),
    "sample age": Followed(
        ("trajproc",), r.SampleDropped, {"age_steps": 57}, ("explain", AGED), lambda page: page["drop"]["age_steps"], 57,
        lambda fact: fact.sample_id == AGED),
    "drop count": Followed(
        ("trajproc",), r.SampleDropped, {"reason": "wait"}, ("drops",),
        lambda page: {one["reason"]: one["samples"] for one in page["reasons"]}.get("wait"), 1, lambda fact: fact.sample_id == AGED),
    "failure share kept": Followed(
        ("trajproc",), r.BatchClosed, {"failed_share": {"repair": 0.96875}}, ("audit",),
        lambda page: "share kept 0.969" in next(one["figure"] for one in page["criteria"] if one["name"] == "failure_quota"), True,
        lambda fact: fact.step == 1),
    "image digest": Followed(
        ("gateway",), r.ExecutionStarted, {"image_digest": "sha256:feed"}, EXPLAIN,
        lambda page: page["evidence"]["image_digest"], "sha256:feed", **OWN),
    "seed": Followed(
        ("gateway",), r.ExecutionStarted, {"seed": 424242}, EXPLAIN, lambda page: page["evidence"]["seed"], 424242, **OWN),
    "tool versions": Followed(
        ("gateway",), r.ExecutionStarted, {"tool_versions": {"gcc": "99"}}, EXPLAIN,
        lambda page: page["evidence"]["tool_versions"], {"gcc": "99"}, **OWN),
    "dependency snapshot": Followed(
        ("gateway",), r.ExecutionStarted, {"dependency_snapshot": "sha256:deb"}, EXPLAIN,
        lambda page: page["evidence"]["dependency_snapshot"], "sha256:deb", **OWN),
}  # fmt: skip


def answered(database, followed: Followed):
    question, *names = followed.question
    with database.read() as connection:
        return followed.read(ask(connection, question, Asked(RUN, config(), tuple(names))))


@pytest.mark.parametrize("field", sorted(FIELD_TABLE))
def test_each_field_is_followed_from_its_collector_to_the_answer(books_of, whole, field):
    """C13"""
    followed = FIELDS[field]
    facts = changed(history(), followed.fact, followed.where, **followed.values)
    assert answered(books_of([decode_fact(encode(fact)) for fact in facts]), followed) == followed.wanted
    assert answered(whole, followed) != followed.wanted


@pytest.mark.parametrize("field", sorted(FIELD_TABLE))
def test_each_field_is_said_by_the_part_that_the_design_names(field):
    """C13: the bus lets nobody else say it (gyre/bus/access.py)."""
    followed = FIELDS[field]
    assert {identity for identity, kinds in SPEAKS.items() if followed.fact in kinds} == set(followed.said_by)


def test_turns_are_counted_by_records_whatever_an_ending_says(books_of):
    """C6: the book of turns is the model server's: one record more is one turn more, and an ending that lies changes no book."""
    one_more = {"call_id": "g000001-e1-a2-c7", "call_index": 7}
    more = [
        *history(),
        *changed(history(), r.CallRecorded, lambda fact: fact.call_id == "g000001-e1-a2-c0", **one_more),
    ]
    lying = changed(history(), r.ExecutionEnded, lambda fact: True, turns=99)
    counts = []
    for facts in (history(), more, lying):
        with books_of([msgspec.structs.replace(fact) for fact in facts]).read() as connection:
            counts.append(ask(connection, "books", Asked(RUN, config()))["books"]["turns"])
    assert counts == [16, 17, 16]
