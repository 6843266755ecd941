"""Records: what goes in comes out; what is no record is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre import records as r
from gyre.bus.subjects import _RULES, natural_key, subject_of, subject_pattern
from gyre.errors import InvalidInput
from gyre.ids import call_id, execution_id, group_id, micro_id, sample_id, seed_for, split_sample_id

FACTS = [
    r.StepOpened(step=3, burst=1, at_s=1.5),
    r.WeightsPublished(version=4, path="w", checksum="c", bytes=1, at_s=2.0),
    r.RoleChanged(cell="cell-1", change=2, target="training", phase="drained", at_s=3.0, moved_calls=4),
    r.AlarmRaised(kind="weights", message="m", service="cell-0", at_s=4.0, values={"x": 1.0}),
    r.SampleDropped(
        sample_id="g000001-e0-a1", execution_id="g000001-e0", group_id="g000001", attempt=1, task_type="t",
        tenant="default", reason="age",
    ),
]  # fmt: skip


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_fact_survives_the_wire(fact):
    """E: one encoding for the bus."""
    assert r.decode_fact(r.encode(fact)) == fact


@given(st.binary(max_size=200))
def test_what_is_no_record_is_refused_and_never_raises_anything_else(data):
    """E: poison is an InvalidInput, which the bus sets aside with its reason."""
    try:
        r.decode_fact(data)
    except InvalidInput:
        pass


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_token_arrays_come_back_bit_for_bit(values):
    """B1: token ids are never changed by storage."""
    assert r.array(r.pack(values, "int32"), "int32").tolist() == values


def test_array_bytes_are_little_endian_on_every_machine():
    """B1: 258 = 0x0102, least significant byte first."""
    assert r.pack([258], "int32") == b"\x02\x01\x00\x00"
    assert r.pack(np.array([1.0]), "float32") == b"\x00\x00\x80\x3f"


def test_every_record_type_has_a_subject_and_a_key_that_fit_its_pattern():
    """E: one place spells subjects; a pattern matches what its records are published on."""
    for fact in FACTS:
        subject = subject_of("run", fact)
        pattern = subject_pattern("run", type(fact))
        pairs = zip(pattern.split("."), subject.split("."), strict=True)
        assert all(want in ("*", have) for want, have in pairs), (pattern, subject)
        assert natural_key(fact).startswith(".".join(pattern.split(".")[3:5]))
    assert set(r.Fact.__args__) <= set(_RULES), "a fact without a subject could never be published"


def test_a_key_that_is_no_subject_token_is_refused_before_it_reaches_the_bus():
    """E: an id with a dot would land on somebody else's subject."""
    with pytest.raises(InvalidInput, match=r"a\.b"):
        subject_of("run", r.RoleChanged(cell="a.b", change=0, target="rollout", phase="requested", at_s=0.0))


def test_ids_name_one_thing_each_and_can_be_taken_apart():
    """C14: the sample's primary key resolves to execution and attempt."""
    sample = sample_id(execution_id(group_id(12), 3), 2)
    assert sample == "g000012-e3-a2"
    assert split_sample_id(sample) == ("g000012-e3", 2)
    assert call_id(sample, 7) == "g000012-e3-a2-c7"
    assert micro_id(4, group_id(12), 0) == "s000004-g000012-m0"
    with pytest.raises(ValueError, match="is not a sample id"):
        split_sample_id("g000012")


def test_seeds_depend_on_every_part_and_on_their_order():
    """C11: the seed is part of the evidence, so it must be the same in every process (a fixed value, worked out once)."""
    assert seed_for("run", 1) == seed_for("run", 1)
    assert len({seed_for(1, 2), seed_for(2, 1), seed_for(12), seed_for("1", "2", "")}) == 4
    assert 0 <= seed_for("x") < 2**63
