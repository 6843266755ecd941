"""Call records that cannot be trusted: set aside with a reason, said once, and the rest of the execution is trained (B1, B3)."""

import msgspec
import numpy as np
import pytest

from gyre import ids
from gyre import records as r
from services.trajproc.core.tree import Known, TreeBuilder
from tests.unit.trajproc.builders import Live, call, config, dispatched, ended, execution, opened, started

A = "g000001"
NAME = ids.execution_id(A, 0)
FIRST = call([1, 2, 3], [4, 5], execution=NAME)
SECOND = call([6], [7, 8], index=1, parent=0, cut=5, execution=NAME)
THIRD = call([9], [10], index=2, parent=1, cut=8, execution=NAME)


def changed(record: r.CallRecorded, **fields) -> r.CallRecorded:
    return msgspec.structs.replace(record, **fields)


def reasons(*records: r.CallRecorded, versions=frozenset({0})) -> dict[int, str]:
    builder = TreeBuilder(Known(versions))
    for record in records:
        builder.add(record)
    return {int(name.rpartition("-c")[2]): problem.reason for name, problem in builder.problems.items()}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"logprobs": r.pack([-0.1], "float32")}, "lengths"),
        ({"logprobs": b"123"}, "lengths"),
        ({"versions": r.pack([0, 0, 0], "int32")}, "lengths"),
        ({"prompt_tokens": 7}, "lengths"),
        ({"parent_tokens": 6, "prompt_tokens": 7}, "lengths"),
        ({"logprobs": r.pack([-0.1, 0.5], "float32")}, "logprobs"),
        ({"logprobs": r.pack([-0.1, np.nan], "float32")}, "logprobs"),
        ({"versions": r.pack([0, 1], "int32")}, "version_unknown"),
        ({"versions": r.pack([0, -1], "int32")}, "version_unknown"),
        ({"output_ids": r.pack([7, -8], "int32")}, "tokens_out_of_range"),
        ({"parent": "g000001-e1-a1-c0"}, "foreign_parent"),
        ({"parent": "g000001-e0-a2-c0"}, "foreign_parent"),
        ({"parent": "g000001-e0-a1-c9"}, "orphan"),
    ],
)
def test_each_problem_has_its_reason_and_what_hangs_from_it_is_an_orphan(fields, reason):
    """B1: call 1 of three is broken in one way; call 0 before it is sound, call 2 continues it and has no known context."""
    assert reasons(FIRST, changed(SECOND, **fields), THIRD) == {1: reason, 2: "orphan"}


def test_sound_records_in_any_order_are_left_alone():
    """B3: the order of arrival says nothing; a version that was published is known, whatever its number; no output is no problem."""
    assert reasons(THIRD, FIRST, SECOND) == {}
    assert reasons(call([1], [2], version=7, execution=NAME), versions={0, 7}) == {}
    assert reasons(call([1], [], execution=NAME)) == {}


def test_the_rest_of_the_execution_is_trained_and_each_set_aside_record_is_said_once():
    """B1: two sampled tokens of call 0 stay targets, the three of calls 1 and 2 do not; the two facts come before the samples. The execution
    counts three turns: they were played, and its three records have arrived."""
    broken = changed(SECOND, logprobs=r.pack([-0.1], "float32"))
    facts = [dispatched(A, 2), FIRST, broken, THIRD, ended(A, 0, 1.0, turns=3), *execution(A, 1, 0.0)]
    live = Live(config(turns_per_step=4)).see(opened(0), *facts)
    kinds = [type(record).__name__ for record in live.said]
    assert kinds == ["CallSetAside"] * 2 + ["SampleReady"] * 2 + ["MicroStep", "BatchExtended", "BatchClosed"]
    first, second = live.all(r.CallSetAside)
    assert (first.call_id, first.reason, first.tokens) == (SECOND.call_id, "lengths", 2)
    assert first.detail == "2 output tokens, 1 log-probabilities, 2 versions"
    assert (second.call_id, second.reason) == (THIRD.call_id, "orphan")
    assert live.all(r.SampleReady)[0].targets_sampled == 2 and live.batch().turns == 4
    assert live.processor.set_aside == {"lengths": 1, "orphan": 1}


def test_an_execution_of_which_nothing_sound_is_left_has_no_targets_and_stays_in_the_baseline():
    """B1, training.md: rewards [1, 0, 0] with a baseline of 1/3; the second execution's only call is of a version nobody published."""
    unknown = call([1], [2], version=99, execution=ids.execution_id(A, 1))
    live = Live().see(
        opened(0), dispatched(A, 3), *execution(A, 0, 1.0), unknown, ended(A, 1, 0.0), *execution(A, 2, 0.0)
    )
    assert live.drops() == {f"{A}-e1-a1": "no_targets"}
    assert [sample.advantage for sample in live.all(r.SampleReady)] == pytest.approx([2 / 3, -1 / 3])


def test_a_version_is_known_from_the_fact_that_published_it():
    """B1: the stream of a run: version 30 is published, a call is sampled under it; of 31 nobody has heard."""
    weights = r.WeightsPublished(version=30, path="", checksum="", bytes=0, at_s=1.0)
    live = Live().see(weights, opened(30), dispatched(A, 2, 30), *execution(A, 0, 1.0, version=30))
    live.see(*execution(A, 1, 0.0, version=31))
    (fact,) = live.all(r.CallSetAside)
    assert (fact.execution_id, fact.reason, fact.detail) == (
        f"{A}-e1",
        "version_unknown",
        "version 31 was never published",
    )


def test_a_kill_between_the_words_says_what_is_missing_and_nothing_twice():
    """C5, restart: dead after the first of two facts: the next start says the second, then the samples; repeats of both change nothing."""
    broken = changed(SECOND, output_ids=r.pack([-1, 8], "int32"))
    facts = [started(), dispatched(A, 2), FIRST, broken, THIRD, ended(A, 0, 1.0, turns=3), *execution(A, 1, 0.0)]
    whole = Live().see(*facts)
    first = whole.all(r.CallSetAside)[0]
    again = Live(past=[*facts, first, first])
    kinds = [type(record).__name__ for record in again.said]
    assert kinds == ["CallSetAside", "SampleReady", "SampleReady"]
    assert again.said[0].call_id == THIRD.call_id
    assert Live(past=[*facts, *whole.said] * 2).said == []


def test_a_group_that_is_sent_again_forgets_what_was_set_aside():
    """Fenced attempts: attempt 1's broken record is on record; attempt 4's sound one is trained."""
    broken = changed(FIRST, versions=r.pack([50, 50], "int32"))
    live = Live().see(dispatched(A, 1), broken, ended(A, 0, 1.0), dispatched(A, 1, base=3))
    live.see(*execution(A, 0, 1.0, attempt=4))
    assert len(live.all(r.CallSetAside)) == 1 and live.all(r.SampleReady)[-1].targets_sampled == 2
