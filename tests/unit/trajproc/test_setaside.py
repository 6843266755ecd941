"""Call records that cannot be trusted: set aside with a reason, said once, and the rest of the execution is trained (B1, B3)."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre import ids
from gyre import records as r
from gyre.records import encode
from services.trainer.gradient import check_row
from services.trajproc.core.sampling import choose_paths
from services.trajproc.core.tree import Known, TreeBuilder
from tests.unit.trajproc.builders import VERSIONS, Live, call, config, dispatched, ended, execution, opened, started

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
        ({"output_ids": r.pack([7, -8], "int32")}, "tokens_out_of_range"),
        ({"parent": "g000001-e1-a1-c0"}, "foreign_parent"),
        ({"parent": "g000001-e0-a2-c0"}, "foreign_parent"),
        ({"parent": "g000001-e0-a1-c9"}, "orphan"),
    ],
)
def test_each_problem_has_its_reason_and_what_hangs_from_it_is_an_orphan(fields, reason):
    """B1: call 1 of three is broken in one way; call 0 before it is sound, call 2 continues it and has no known context."""
    assert reasons(FIRST, changed(SECOND, **fields), THIRD) == {1: reason, 2: "orphan"}


NO_TEMPERATURE = msgspec.structs.replace(SECOND.sampling, temperature=0.0)
OF_SAMPLING = [
    ({"logprobs": r.pack([-0.1, 0.5], "float32")}, "logprobs"),
    ({"logprobs": r.pack([-0.1, np.nan], "float32")}, "logprobs"),
    ({"versions": r.pack([0, 99], "int32")}, "version_unknown"),
    ({"versions": r.pack([0, -1], "int32")}, "version_unknown"),
    ({"sampling": NO_TEMPERATURE}, "sampling"),
]


@pytest.mark.parametrize(("fields", "reason"), OF_SAMPLING)
def test_what_is_wrong_with_a_calls_sampling_costs_that_calls_own_tokens_and_no_others(fields, reason):
    """B1, B6: tokens 7 and 8 of call 1 are context of call 2 and no targets; 4, 5 and 10 are trained, in one row; its version is nobody's."""
    broken = changed(SECOND, **fields)
    assert reasons(FIRST, broken, THIRD) == reasons(THIRD, broken, FIRST) == {1: reason}
    facts = [dispatched(A, 2), FIRST, broken, THIRD, ended(A, 0, 1.0, turns=3), *execution(A, 1, 0.0)]
    live = Live(config(turns_per_step=4)).see(opened(0), *facts)
    assert [(fact.call_id, fact.reason, fact.tokens) for fact in live.all(r.CallSetAside)] == [
        (SECOND.call_id, reason, 2)
    ]
    ready = live.all(r.SampleReady)[0]
    assert (ready.targets_chosen, ready.paths, ready.version_min, ready.version_max) == (3, 1, 0, 0)
    (row,) = [row for micro in live.queue for row in micro.rows if row.sample_id == f"{A}-e0-a1"]
    tokens = r.array(row.tokens, "int32")
    assert tokens.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] and tokens[row.targets].tolist() == [4, 5, 10]
    check_row(row, 11, 0)


def test_a_call_that_is_set_aside_owns_nothing_that_a_sound_one_sampled_too_and_is_no_end_of_a_path():
    """B3, B5: two calls race from one context and sample 7 8; the earlier one's log-probabilities are garbage: the later one's count. Where nothing
    sound comes after it, the path ends where the last sound call does."""
    builder = TreeBuilder()
    racing = call([6], [7, 8], index=2, parent=0, cut=5, execution=NAME)
    for record in (FIRST, changed(SECOND, logprobs=r.pack([np.nan, np.nan], "float32")), racing):
        builder.add(record)
    tree = builder.tree()
    assert tree.calls[tree.owners[tree.ends[2]]].call_id == racing.call_id
    alone = TreeBuilder()
    for record in (FIRST, changed(SECOND, logprobs=r.pack([np.nan, np.nan], "float32"))):
        alone.add(record)
    tree = alone.tree()
    assert [path.leaf for path in choose_paths(tree, "s", 5)] == [tree.ends[0]]


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


def test_a_record_whose_name_is_none_is_set_aside_and_credit_by_segment_goes_on():
    """B1: what a record calls itself is not to be trusted either; its turn counts by the record's own index."""
    broken = changed(SECOND, call_id="garbage", logprobs=r.pack([-0.1], "float32"))
    facts = [dispatched(A, 2), FIRST, broken, ended(A, 0, 1.0, turns=2), *execution(A, 1, 0.0)]
    live = Live(config(turns_per_step=3, credit="segment", critic="group_mean")).see(opened(0), *facts)
    assert [fact.call_id for fact in live.all(r.CallSetAside)] == ["garbage"]
    assert len(live.all(r.SampleReady)) == 2 and live.batch().turns == 3


def test_a_group_that_is_judged_again_keeps_what_was_set_aside_of_attempts_that_still_count():
    """Attempt 4 has ended with a broken record when the group is said to be sent again from attempt 3 on: its ending stands, and so do its three
    records, of which two stay set aside."""
    broken = changed(SECOND, attempt=4, call_id=f"{A}-e0-a4-c1", logprobs=r.pack([-0.1], "float32"))
    first = changed(FIRST, attempt=4, call_id=f"{A}-e0-a4-c0")
    live = Live().see(dispatched(A, 1), first, broken, ended(A, 0, 1.0, attempt=4, turns=2), dispatched(A, 1, base=3))
    assert [sample.sample_id for sample in live.all(r.SampleReady)] == [f"{A}-e0-a4"] * 2
    assert not live.processor.unfinished and live.processor.set_aside["lengths"] == 2


@pytest.mark.parametrize("temperature", [0.0, -1.0, 1e-30, 1e39, np.inf, np.nan])
def test_what_was_drawn_at_no_temperature_is_set_aside(temperature):
    """C8: the trainer takes log-probabilities of logits over the temperature; at 0 the quotient is none, and below 1e-4 float32
    overflows, as it does with 1e39 itself."""
    sampling = msgspec.structs.replace(SECOND.sampling, temperature=temperature)
    assert reasons(FIRST, changed(SECOND, sampling=sampling), THIRD) == {1: "sampling"}


def test_tokens_beyond_the_vocabulary_are_set_aside_where_it_is_known():
    """B1: of a vocabulary of 11 the ids are 0 to 10; the third call samples a 10, the broken one an 11."""
    builder = TreeBuilder(Known(vocabulary=11))
    for record in (
        FIRST,
        changed(SECOND, output_ids=r.pack([7, 11], "int32")),
        changed(THIRD, parent_tokens=0, parent="", prompt_tokens=1),
    ):
        builder.add(record)
    assert {name: problem.detail for name, problem in builder.problems.items()} == {
        SECOND.call_id: "output_ids holds 11, the vocabulary ends at 10"
    }


def garbage(data) -> dict:
    """Fields of a record with any value that its type allows."""
    numbers = st.integers(-(2**63), 2**63 - 1)
    texts, bytes_ = st.text(max_size=30), st.binary(max_size=40)
    fields = {
        "call_id": texts, "call_index": numbers, "parent": texts | st.sampled_from([FIRST.call_id, SECOND.call_id, THIRD.call_id]),
        "parent_tokens": numbers, "prompt_tokens": numbers, "prompt_delta": bytes_, "output_ids": bytes_, "logprobs": bytes_,
        "versions": bytes_, "role": texts, "delivered": st.booleans(), "tool_payloads": st.dictionaries(texts, texts, max_size=2),
        "sampling": st.builds(r.Sampling, temperature=st.floats(), top_p=st.floats(), max_tokens=numbers, seed=numbers),
    }  # fmt: skip
    chosen = data.draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=4, unique=True))
    return {name: data.draw(fields[name]) for name in chosen}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_record_whatever_it_holds_stops_the_processor_or_reaches_the_trainer_unsound(data):
    """Issue 4, bad input: the middle one of three calls holds anything at all; the group is judged, what is trained is sound by the trainer's
    own check of rows, and whoever is not broken is trained."""
    broken = changed(SECOND, **garbage(data))
    credit = data.draw(st.sampled_from(["execution", "segment", "turn"]))
    facts = [dispatched(A, 2), FIRST, broken, THIRD, ended(A, 0, 1.0, turns=3, calls=0), *execution(A, 1, 0.0)]
    live = Live(config(turns_per_step=4, credit=credit, critic="group_mean")).see(opened(0), *facts)
    assert live.batch().turns == 4 and live.batch().divisor == 2
    for micro in live.queue:
        assert encode(micro)
        for row in micro.rows:
            check_row(row, 2**31, VERSIONS)
    assert {row.sample_id for micro in live.queue for row in micro.rows} == {f"{A}-e0-a1", f"{A}-e1-a1"}


def test_records_that_do_not_come_hold_nobody_up_for_longer_than_a_minute():
    """An ending at 10 s counts 4 calls, of which calls 0 and 2 are on record (1 and 3 cannot be read): at 69 s they are waited for, at 70 s they are
    said to be missing. That counts from its place on the stream on: call 2, which continues call 1, is an orphan, call 0 is trained."""
    facts = [opened(0), dispatched(A, 2), FIRST, THIRD, ended(A, 0, 1.0, turns=4), *execution(A, 1, 0.0)]
    live = Live(config(turns_per_step=5)).see(*facts)
    assert not list(live.processor.overdue_records(69.0)) and not live.said
    absent = list(live.processor.overdue_records(70.0))
    assert [(fact.call_id, fact.reason) for fact in absent] == [(f"{A}-e0-a1-c{index}", "missing") for index in (1, 3)]
    assert not live.said
    live.see(*absent)
    assert live.processor.set_aside == {"missing": 1, "orphan": 1}, "the group was judged at the first of them"
    assert live.all(r.SampleReady)[0].targets_sampled == 2 and live.batch().turns == 5
    assert not list(live.processor.overdue_records(1e6)) and not live.processor.short
    assert Live(config(turns_per_step=5), past=live.stream).said == []


def test_a_record_that_comes_late_is_used_unless_it_was_given_up():
    """The word counts where it stands on the stream: before it the record completes the execution, after it the execution is judged already."""
    facts = [dispatched(A, 1), FIRST, ended(A, 0, 1.0, turns=2)]
    live = Live().see(*facts)
    (absent,) = live.processor.overdue_records(100.0)
    assert live.see(SECOND, absent).all(r.SampleReady)[0].targets_sampled == 4
    assert Live().see(*facts, absent, SECOND).all(r.SampleReady)[0].targets_sampled == 2
