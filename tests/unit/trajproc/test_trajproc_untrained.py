"""What executions without gradient add to means over tokens and calls, which no trainer cell sees (B7, C10)."""

from gyre import records as r
from tests.unit.trajproc.builders import Live, config, group, opened

A, B = "g000001", "g000002"


def test_a_batch_says_how_many_targets_and_calls_are_not_trained():
    """B7: group A, two executions of two calls of 2 tokens each and rewards alike: 8 targets of 4 calls; group B is trained and reports its own."""
    live = Live(config(turns_per_step=6)).see(opened(0), *group(A, [1.0, 1.0], turns=2), *group(B, [1.0, 0.0]))
    said = [(fact.group_id, fact.untrained_targets, fact.untrained_sequences) for fact in live.all(r.BatchExtended)]
    assert said == [(A, 8, 4), (B, 0, 0)]
    ready = [(fact.targets_chosen, fact.sequences_chosen) for fact in live.all(r.SampleReady) if fact.group_id == A]
    assert ready == [(4, 2), (4, 2)]
    closed = live.batch()
    assert (closed.divisor, closed.untrained_targets, closed.untrained_sequences) == (4, 8, 4)


def test_what_is_dropped_for_a_line_is_in_no_mean():
    """C10: one failed sample of two may stay; the other failed ones leave the divisor, so they add nothing to it."""
    live = Live(config(failed_share_max=0.5)).see(opened(0), *group(A, [1.0, 0.0, 0.0, 0.0]))
    closed = live.batch()
    assert (closed.divisor, closed.untrained_targets, closed.untrained_sequences) == (2, 0, 0)
