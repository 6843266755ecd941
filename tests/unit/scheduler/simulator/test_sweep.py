"""Many runs: what is said of them while they take their time, and that they end."""

import pytest

from gyre.errors import InvalidInput
from services.scheduler.simulator.sweep import progress, run_all
from tests.unit.scheduler.simulator.specs import spec

LONG = {"workload": {"median_h": 100.0, "sigma": 5.0, "wall_limit_h": 8766.0}, "horizon": {"first_steps": 50_000}}
"""Valid, and some minutes of simulation."""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_that_is_not_done_in_time_is_given_up_with_what_is_possible(processes):
    """Bad input: a valid specification may still ask for more than anybody waits for. Nothing of it is left running."""
    with pytest.raises(InvalidInput, match=r"within 0\.2 s: simulate fewer steps.*--limit"):
        run_all([("long", spec(**LONG), seed) for seed in (1, 2, 3)], processes=processes, limit_s=0.2)


def test_the_first_run_is_spoken_of_before_it_is_done(capsys, monkeypatch):
    """What is simulated says what it is doing all the while: on a terminal four times a second, elsewhere every ten seconds."""
    said = []
    with pytest.raises(InvalidInput):
        run_all([("long", spec(**LONG), 1)], lambda done, of: said.append((done, of)), limit_s=0.7)
    assert said and set(said) == {(0, 1)}
    monkeypatch.setattr(
        "services.scheduler.simulator.sweep.time.monotonic", iter([0.0, 5.0, 11.0, 21.0, 30.0]).__next__
    )
    say = progress("x")
    for done in (0, 0, 1, 2):
        say(done, 2)
    assert capsys.readouterr().err.splitlines() == [
        "x: the first of 2 runs, for 11 s so far", "x: 1 of 2 runs, 21 s left", "x: 2 runs in 30.0 s",
    ]  # fmt: skip
