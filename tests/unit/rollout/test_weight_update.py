"""The transition table of weight updates in an engine of its own process (A4)."""

import itertools

import pytest

from services.rollout.core.weight_update import RESTARTS_MAX, TABLE, Outcome, Phase, Update, after

HALF_NEW = (Phase.OPENING, Phase.SENDING, Phase.CLOSING, Phase.CHECKING)
"""Phases in which live weights may be partly new."""


def run(update: Update, *outcomes: Outcome) -> Update:
    for outcome in outcomes:
        update = after(update, outcome)
    return update


def phases(update: Update, outcome: Outcome = Outcome.DONE) -> list[Phase]:
    found = []
    while not update.is_over:
        found.append(update.phase)
        update = after(update, outcome)
    return [*found, update.phase]


def test_an_update_goes_through_the_stated_order():
    """A4: pause, start, update, finish, digest, reset, resume."""
    assert phases(Update(Phase.PAUSING, target=2, good=1)) == [
        Phase.PAUSING, Phase.OPENING, Phase.SENDING, Phase.CLOSING, Phase.CHECKING, Phase.CLEARING, Phase.RESUMING, Phase.SERVING,
    ]  # fmt: skip


def test_what_has_served_is_what_a_later_repair_goes_back_to():
    """A4: only reaching `serving` makes a version good."""
    over = run(Update(Phase.RESUMING, target=2, good=1), Outcome.DONE)
    assert (over.phase, over.good) == (Phase.SERVING, 2)


@pytest.mark.parametrize("phase", HALF_NEW)
def test_a_failure_while_weights_are_half_new_loads_the_good_ones_in_place(phase):
    """A4: and checks their digest before they serve."""
    mended = run(Update(phase, target=2, good=1), Outcome.FAILED)
    assert (mended.phase, mended.target) == (Phase.OPENING, 1)
    assert Phase.CHECKING in phases(mended)


@pytest.mark.parametrize("phase", HALF_NEW)
def test_a_second_failure_in_the_same_process_is_a_new_process_with_the_good_weights(phase):
    """A4."""
    mended = run(Update(phase, target=1, good=1, is_repair=True), Outcome.FAILED)
    assert (mended.phase, mended.target, mended.is_repair) == (Phase.STARTING, 1, False)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.LOST])
def test_silence_is_always_a_new_process(phase):
    """A4: whoever does not answer in time may hang for ever; only its end is certain."""
    mended = run(Update(phase, target=2, good=1), Outcome.SILENT)
    assert (mended.phase, mended.target) == (Phase.STARTING, 1)


def test_before_anything_was_good_the_new_version_is_tried_again():
    """A4: there is nothing else to go back to."""
    assert run(Update(Phase.SENDING, target=0), Outcome.FAILED).target == 0


def test_an_engine_that_never_comes_up_is_lost_after_the_stated_number_of_processes():
    """A4: the first one and RESTARTS_MAX more."""
    assert phases(Update(Phase.STARTING, target=0), Outcome.SILENT) == [Phase.STARTING] * (RESTARTS_MAX + 1) + [
        Phase.LOST
    ]


def test_no_sequence_of_outcomes_serves_weights_whose_digest_was_not_compared():
    """A4: between any phase that touches weights, or a new process, and `serving` lies a `checking` that was done."""
    for outcomes in itertools.product(Outcome, repeat=9):
        update, is_checked = Update(Phase.PAUSING, target=2, good=1), True
        for outcome in outcomes:
            if update.phase in (Phase.OPENING, Phase.STARTING):
                is_checked = False
            if update.phase is Phase.CHECKING and outcome is Outcome.DONE:
                is_checked = True
            update = after(update, outcome)
            if update.phase is Phase.SERVING:
                assert is_checked
                break


def test_every_sequence_of_outcomes_comes_to_an_end():
    """A4: failures are mended a bounded number of times: one repair a process, RESTARTS_MAX + 1 processes, 9 phases at most each way."""
    bound = (RESTARTS_MAX + 1) * 2 * 9
    for kind in (Outcome.FAILED, Outcome.SILENT):
        for period in range(1, 10):
            update, steps = Update(Phase.PAUSING, target=2, good=1), 0
            while not update.is_over:
                steps += 1
                update = after(update, kind if steps % period == 0 else Outcome.DONE)
            assert steps <= bound


def test_the_table_names_every_phase():
    """A4."""
    assert set(TABLE) == set(Phase)
