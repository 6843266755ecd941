"""Snapshots of the fold: the same state as from all facts, or none at all (recovery)."""

import logging

import msgspec
import pytest

from gyre.folds import KEPT, Snapshots, code_digest
from services.scheduler.core import Settings, State, apply
from services.scheduler.core.state import encode_state
from services.scheduler.snapshots import newest
from tests.unit.scheduler import facts

SETTINGS = Settings(cells=2, cell_capacity=8, groups_per_step=2, steps_per_publish=1, extra_depth_steps=0.5)


def history() -> list:
    """Cells come up, four groups are submitted and three dispatched, one execution ends: all facts, decisions among them."""
    state, told = State(SETTINGS), []

    def tell(*said):
        for fact in said:
            apply(state, fact)
            told.append(fact)
        told.extend(facts.settle(state))

    tell()
    for cell in state.cells:
        tell(*(facts.role(cell, 0, "rollout", phase) for phase in ("released", "loaded", "serving")))
    tell(*(facts.submitted(index) for index in range(4)), facts.started_run(3))
    tell(facts.leased("g000000-e0"), facts.running("g000000-e0"), facts.ended("g000000-e0"), facts.ready("g000000-e0"))
    return told


def folded(told) -> State:
    state = State(SETTINGS)
    for fact in told:
        apply(state, fact)
    return state


def kept(folder, sequence: int, told, **identity) -> Snapshots:
    snapshots = Snapshots(folder, **{"name": "scheduler", "stream": "s", "code": "c", **identity})
    snapshots.write(snapshots.pack(encode_state(folded(told)), sequence), sequence)
    return snapshots


@pytest.mark.parametrize("cut", [1, 5, 9, 14])
def test_a_snapshot_and_the_facts_after_it_are_as_good_as_all_facts(tmp_path, cut):
    told = history()
    assert cut < len(told)
    state, sequence = newest(kept(tmp_path, cut, told[:cut]), SETTINGS, len(told))
    assert sequence == cut
    for fact in told[cut:]:
        apply(state, fact)
    assert encode_state(state) == encode_state(folded(told)) and state == folded(told)


def test_what_does_not_fit_is_left_aside_and_the_log_says_why(tmp_path, caplog):
    """Other code, another stream, another configuration, a stream that is shorter, damage: all facts are folded instead."""
    told = history()
    kept(tmp_path, 7, told)
    other = msgspec.structs.replace(SETTINGS, cells=3)
    asked = [
        (Snapshots(tmp_path, "scheduler", "s", "d"), SETTINGS, 9, "another version of the code"),
        (Snapshots(tmp_path, "scheduler", "t", "c"), SETTINGS, 9, "another stream"),
        (Snapshots(tmp_path, "scheduler", "s", "c"), other, 9, "another configuration"),
        (Snapshots(tmp_path, "scheduler", "s", "c"), SETTINGS, 6, "the stream ends at 6"),
    ]
    with caplog.at_level(logging.WARNING):
        for snapshots, settings, last, why in asked:
            state, sequence = newest(snapshots, settings, last)
            assert (sequence, state) == (0, State(settings)) and why in caplog.text


@pytest.mark.parametrize("harm", [lambda data: data[:-1], lambda data: data[:40] + b"\xff" + data[41:], lambda _: b""])
def test_of_two_the_older_serves_when_the_newest_is_damaged(tmp_path, harm):
    told = history()
    snapshots = kept(tmp_path, 5, told[:5])
    kept(tmp_path, 8, told[:8])
    damaged = max(tmp_path.iterdir())
    damaged.write_bytes(harm(damaged.read_bytes()))
    assert newest(snapshots, SETTINGS, 100)[1] == 5


def test_few_are_kept(tmp_path):
    told = history()
    for sequence in range(1, 6):
        snapshots = kept(tmp_path, sequence, told[:sequence])
    assert len(list(tmp_path.iterdir())) == KEPT and newest(snapshots, SETTINGS, 100)[1] == 5


def test_what_a_killed_process_had_half_written_goes_at_the_next_start(tmp_path):
    """kill -9 while a snapshot is written: some 20 MB that nobody reads, at each such kill."""
    snapshots = kept(tmp_path, 5, history())
    (tmp_path / "scheduler-00000000000000000009.new").write_bytes(b"half")
    (tmp_path / "trajproc-00000000000000000009.new").write_bytes(b"another's")
    assert newest(snapshots, SETTINGS, 100)[1] == 5
    assert sorted(file.name[:13] for file in tmp_path.iterdir()) == ["scheduler-000", "trajproc-0000"]


def test_the_code_that_makes_states_is_part_of_a_snapshots_identity(tmp_path):
    """A changed source file changes the digest; nothing else does."""
    (tmp_path / "__init__.py").write_text("x = 1")
    module = type("module", (), {"__file__": str(tmp_path / "__init__.py")})
    first = code_digest([module])
    assert first == code_digest([module])
    (tmp_path / "__init__.py").write_text("x = 2")
    assert first != code_digest([module])
