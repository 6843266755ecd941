"""The slot table alone: who gets which slot, and what of it may be reused."""

import subprocess
import sys

import numpy as np

from services.rollout.engine.slots import SlotTable, common_prefix


def tokens(*ranges: tuple[int, int]) -> np.ndarray:
    return np.concatenate([np.arange(a, b) for a, b in ranges])


def run_call(table: SlotTable, session: str, prefix: np.ndarray) -> int:
    """A call that is prefilled at once and ends without a token of its own."""
    slot = table.acquire(session, prefix)
    table.match(slot)
    table.filled[slot] = len(prefix)
    table.release(slot)
    return slot


def test_common_prefix_ends_at_the_first_difference_or_the_shorter_end():
    """B3: [0..9] and [0..4, 7..9] agree on five; a prefix of another agrees on all of itself."""
    assert common_prefix(tokens((0, 10)), tokens((0, 5), (7, 10))) == 5
    assert common_prefix(tokens((0, 4)), tokens((0, 10))) == 4
    assert common_prefix(tokens((1, 4)), tokens((0, 10))) == 0
    assert common_prefix(tokens((0, 0)), tokens((0, 10))) == 0


def test_a_session_finds_its_own_slot_again():
    """B8: 50 held tokens, 60 asked: 50 are filled; of an identical prompt all but the last."""
    table = SlotTable(3, 100, version=0)
    slot = run_call(table, "a", tokens((0, 50)))
    run_call(table, "b", tokens((200, 250)))
    again = table.acquire("a", tokens((0, 60)))
    assert (again, table.filled[again]) == (slot, 50)
    table.filled[again] = 60
    table.release(again)
    same = table.acquire("a", tokens((0, 60)))
    assert (same, table.filled[same]) == (slot, 59)


def test_the_least_recently_used_slot_goes_first_and_running_ones_never():
    """B8: after a, b, c and again a, b's is the oldest; with c running, c's is out of reach."""
    table = SlotTable(3, 100, version=0)
    a, b, c = (run_call(table, name, tokens((i * 100, i * 100 + 40))) for i, name in enumerate("abc"))
    assert run_call(table, "a", tokens((0, 45))) == a
    assert table.acquire("c", tokens((200, 245))) == c
    assert table.acquire("d", tokens((900, 940))) == b
    assert table.acquire("e", tokens((900, 940))) == a


def test_a_slot_of_an_older_version_is_given_away_before_a_useful_one():
    """A4: b is used less recently, but a's keys are worthless since the weights changed."""
    table = SlotTable(2, 100, version=0)
    a = run_call(table, "a", tokens((0, 40)))
    table.set_version(1)
    b = run_call(table, "b", tokens((100, 140)))
    table._used[b] = 0
    slot = table.acquire("a", tokens((0, 50)))
    assert (slot, table.filled[slot]) == (a, 0)


def test_equal_prompts_that_start_together_wait_for_the_first():
    """B8: the second sees 30 shared tokens coming, is not matched yet, and copies them when they are there."""
    table = SlotTable(2, 100, version=0)
    first, second = table.acquire("a", tokens((0, 40))), table.acquire("b", tokens((0, 30), (70, 80)))
    assert table.match(first) is None and table.matched[first]
    assert table.match(second) is None and not table.matched[second]
    table.filled[first] = 35
    assert table.match(second) == (first, 30)
    assert table.matched[second] and table.filled[second] == 30


def test_nobody_waits_for_a_call_that_was_ended():
    """A6: the first is aborted in mid-prefill; the second goes on with what is there."""
    table = SlotTable(2, 100, version=0)
    first, second = table.acquire("a", tokens((0, 60))), table.acquire("b", tokens((0, 60)))
    table.match(first)
    table.match(second)
    table.filled[first] = 20
    table.release(first)
    assert table.match(second) == (first, 20)
    assert table.matched[second]


def test_weights_in_flight_restart_what_has_sampled_nothing_and_taint_the_rest():
    """A4: slot `old` goes on with its 40 keys but is no source; slot `new` begins its prefill again and is one."""
    table = SlotTable(3, 100, version=0)
    old, new = table.acquire("a", tokens((0, 40))), table.acquire("b", tokens((500, 540)))
    table.filled[[old, new]] = 40, 20
    table.known[old] += 1
    table.set_version(1)
    assert (table.filled[old], table.filled[new]) == (40, 0)
    other = table.acquire("c", tokens((0, 40)))
    assert table.match(other) is None
    assert table.filled[other] == 0


def test_the_requests_can_be_imported_without_torch():
    """E: the gateway, part of the control plane, speaks of calls and errors without loading torch."""
    code = "import sys, services.rollout.engine as e; e.GenerateRequest; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
