"""Trainers that could wait for ever: for a word that does not come, or for groups that nobody serves (A3, A9)."""

import pytest

from gyre.records import BurstOpened, GroupDispatched, RoleChanged
from services.scheduler.core import State, apply, decide
from tests.unit.scheduler import facts
from tests.unit.scheduler.test_modes import chosen, finish, settle, trainers


def test_a_pool_that_was_told_to_return_returns_whatever_gets_ready_meanwhile():
    """A9: at the boundary nothing is ready, so the core does not stay and will open no step; four groups that get ready before it was asked back
    bring it in again, they do not leave it there."""
    state = State(chosen(mode="colocate", steps_per_publish=1, cell_capacity=20))
    for index in range(20):
        apply(state, facts.submitted(index, size=1))
    apply(state, facts.started_run(3))
    settle(state)
    train_a_step(state, 0, range(4))
    apply(state, facts.published(1))
    (opened,) = decide(state, 0.0)
    assert isinstance(opened, BurstOpened) and not opened.core_stays
    apply(state, opened)
    for index in range(4, 8):
        finish(state, f"g{index:06d}-e0")
    requests = [made.target for made in settle(state) if isinstance(made, RoleChanged)]
    assert requests == ["rollout"] * 5 + ["training"] * 5


@pytest.mark.parametrize("streaming", [False, True])
def test_what_a_batch_waits_for_is_served_even_if_all_cells_train(streaming):
    """A3, A5: continuous dispatch sends two groups when everybody trains. Two others are ready, the batch wants three: after 10 s without news
    the last cell comes back."""
    shape = {"cells": 2, "groups_per_step": 2, "cell_capacity": 20, "extra_depth_steps": 0.0}
    state = State(chosen(dispatch="continuous", streaming=streaming, **shape))
    for index in range(20):
        apply(state, facts.submitted(index, size=1))
    apply(state, facts.started_run(20))
    settle(state)
    for index in (2, 3):
        finish(state, f"g{index:06d}-e0")
    train_a_step(state, 0, range(2))
    assert trainers(state) == 2
    sent = [made for made in settle(state, 1.0) if isinstance(made, GroupDispatched)]
    assert len(sent) == 2 and (state.waterlevel, state.capacity, state.ready_groups) == (2, 0, 2)
    assert settle(state, 9.0) == []
    assert [(made.cell, made.target) for made in settle(state, 11.0)] == [("cell-1", "rollout")]


def train_a_step(state: State, step: int, groups: range) -> None:
    """Groups of one: they end, and are trained once the cells have followed."""
    names = [f"g{index:06d}" for index in groups]
    for name in names:
        finish(state, f"{name}-e0")
        settle(state)
    samples = [f"{name}-e0-a1" for name in names]
    for name, sample in zip(names, samples, strict=True):
        apply(state, facts.extended(step, name, [sample]))
    apply(state, facts.closed(step, names, samples))
    apply(state, facts.updated(step, samples))
