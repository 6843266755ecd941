"""Which classes of calls are trained, through the whole processor (B5)."""

from gyre import records as r
from tests.unit.trajproc.builders import Live, call, config, dispatched, ended, leased, opened

A = "g000001"


def test_a_class_that_is_left_out_is_never_trained_and_an_execution_of_nothing_else_has_no_targets():
    """B5: with class_order ["main"] the sub-agent's [7, 8] are no targets; of the member that has nothing but a sub-agent nothing is trained,
    and its reward stays in the baseline: rewards 1 and 0, advantage .5."""
    first = [
        leased(A, 0),
        call([1], [2, 3], execution=f"{A}-e0"),
        call([4], [7, 8], index=1, execution=f"{A}-e0", role="sub-agent"),
    ]
    other = [leased(A, 1), call([1], [2], execution=f"{A}-e1", role="sub-agent"), ended(A, 1, 0.0)]
    live = Live(config(class_order=("main",))).see(
        opened(0), dispatched(A, 2), *first, ended(A, 0, 1.0, turns=2), *other
    )
    (ready,) = live.all(r.SampleReady)
    assert (ready.targets_chosen, ready.targets_sampled, ready.paths, ready.advantage) == (2, 4, 1, 0.5)
    assert live.drops() == {f"{A}-e1-a1": "no_targets"}
