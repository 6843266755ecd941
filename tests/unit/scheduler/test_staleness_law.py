"""The law of staleness, measured on the real core in a random world (A5)."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from services.scheduler.core import Settings
from tests.unit.scheduler.test_modes import MODES
from tests.unit.scheduler.world import World

WARM_UP_STEPS = 30


def settings_of(phi: float, mu: int, groups: int, cells: int = 2, capacity: int = 8) -> Settings:
    return Settings(
        cells=cells, cell_capacity=capacity, groups_per_step=groups, steps_per_publish=mu, extra_depth_steps=phi
    )


def mean_staleness(world: World, until: int) -> float:
    """Over all groups trained in steady state: neither the start-up nor the draining end belongs to it."""
    steady = [age for step, age in world.staleness if WARM_UP_STEPS <= step < until]
    return sum(steady) / len(steady)


@pytest.mark.parametrize(
    ("phi", "mu", "groups", "size", "cells"),
    [
        (0.0, 1, 4, 2, 1),  # lockstep: 0
        (0.5, 1, 8, 2, 2),  # the default: 0.5
        (0.5, 4, 4, 2, 3),  # the paper's likely setting: 2
        (1.0, 2, 3, 3, 4),  # 1.5
        (0.3, 1, 5, 2, 2),  # (φ + μ)·B = 6.5 groups: only the carried half keeps it unbiased
        (2.0, 3, 2, 1, 2),  # 3
    ],
)
@pytest.mark.parametrize("oldest_first", [False, True])
def test_mean_staleness_is_phi_plus_half_of_mu_less_one(phi, mu, groups, size, cells, oldest_first):
    """A5: within .02 steps of the law, in random and in oldest-first order; the residue is (ages outstanding at the ends) / (groups trained)."""
    steps = 400 * mu if mu < 3 else 240 * mu
    world = World(settings_of(phi, mu, groups, cells), oldest_first=oldest_first)
    world.submit(steps * groups, size)
    world.start(steps)
    world.run()
    assert world.state.steps_done == steps
    assert mean_staleness(world, steps - 8 * mu) == pytest.approx(phi + (mu - 1) / 2, abs=0.02)


@pytest.mark.parametrize("mu", [1, 2])
def test_batches_completed_by_turns_keep_the_law(mu):
    """A5, C5: batches take 3 to 9 groups, mean 6, planned were 4; B̂ finds it and the mean stays φ + (μ−1)/2."""
    steps = 300 * mu
    world = World(settings_of(2.0, mu, 4), seed=5, batch_groups=lambda rng, step: rng.randint(3, 9))
    world.submit(steps * 7)
    world.start(steps)
    world.run()
    assert world.causes[50:-20].count("exhausted") == 0  # φ·B̂ = 12 groups is more than a batch's spread
    assert world.state.groups_per_step == pytest.approx(6.0, abs=1.5)
    # Start-up and end of B̂ are worth at most |6 − 4| / (.125 · 300) = .05 groups of 6, that is .01 · (φ + μ) steps.
    assert mean_staleness(world, steps - 8 * mu) == pytest.approx(2.0 + (mu - 1) / 2, abs=0.05)


def test_a_workload_that_drifts_keeps_the_law():
    """A5, C5: groups of a batch fall from 8 to 3 over the run, as executions grow longer; a mean over the whole run would lag behind.

    B̂ moves by 5 in all, which is worth (φ + μ)·5/(α·Σg) = 2.5 · 5/(.125 · 2200) = .045 steps.
    """
    steps = 400
    world = World(settings_of(1.5, 1, 8), seed=2, batch_groups=lambda rng, step: round(8 - 5 * step / steps))
    world.submit(steps * 7)
    world.start(steps)
    world.run()
    assert mean_staleness(world, steps - 20) == pytest.approx(1.5, abs=0.08)


DURATIONS = {
    "all alike": lambda rng: 1.0,
    "exponential": lambda rng: rng.expovariate(1.0),
    "lognormal, σ 1.3": lambda rng: rng.lognormvariate(0.0, 1.3),
    "Pareto without variance": lambda rng: min(rng.paretovariate(1.5), 100.0),
    "nine short, one long": lambda rng: 0.1 if rng.random() < 0.9 else 10.0,
}
"""What nobody would have to know: means, tails and shapes differ, the law does not."""


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    durations=st.sampled_from(sorted(DURATIONS)), dispatch=st.sampled_from(["boundary", "continuous"]), mu=st.integers(1, 3),
    phi=st.sampled_from([0.0, 0.3, 1.0, 2.5]), groups=st.integers(2, 5), oldest_first=st.booleans(),
    train_s=st.sampled_from([0.01, 0.3]), seed=st.integers(0, 10_000),
)  # fmt: skip
def test_the_law_holds_in_every_mode_for_any_durations(
    mode, durations, dispatch, mu, phi, groups, oldest_first, train_s, seed
):
    """A5, A9: within .02 steps of φ + (μ−1)/2, or of M/B − 1 + (μ−1)/2 for continuous dispatch, M = ⌊(φ+μ)·B⌋ on average (φ+μ)·B.

    What is left over is known: the ages outstanding at both ends of the window, over the groups trained in it. It is counted, not guessed:
    `edges` is exactly the sum of (steps that a group had been outstanding for) at the end less that at the start.
    """
    steps = 120 * mu
    world = World(
        Settings(cells=4, cell_capacity=4, groups_per_step=groups, steps_per_publish=mu, extra_depth_steps=phi, dispatch=dispatch, **fitting(mode)),
        seed=seed, oldest_first=oldest_first, duration_s=DURATIONS[durations], train_s=train_s,
    )  # fmt: skip
    world.submit(steps * groups, 1)
    world.start(steps)
    world.run()
    assert world.state.steps_done == steps
    law = phi + (mu - 1) / 2 + (mu - 1 if dispatch == "continuous" else 0)
    start, end = WARM_UP_STEPS // mu * mu, steps - 12 * mu
    steady = [(step, age) for step, age in world.staleness if start <= step < end]
    edges = outstanding_ages(world, end) - outstanding_ages(world, start)
    mean = (sum(age for _, age in steady) + edges) / len(steady)
    assert mean == pytest.approx(law, abs=0.02)


def fitting(mode: str) -> dict:
    """The mode's settings on four cells."""
    changes = dict(MODES[mode])
    return {**changes, **{name: 1 for name in ("training_cells", "standalone_cells") if name in changes}}


def outstanding_ages(world: World, step: int) -> int:
    """Sum over the groups outstanding just before boundary `step` of the steps since their dispatch version."""
    return sum(step - (trained - age) for trained, age in world.staleness if trained - age < step <= trained)


def test_the_start_up_term_is_phi_over_the_number_of_bursts():
    """A5: over the first 12 bursts, oldest first: φ·(1 − 1/12) + (μ − 1)/2 = 11/12, exactly, since nothing was carried into the first."""
    world = World(settings_of(1.0, 1, 3), oldest_first=True, duration_s=lambda rng: 1.0)
    world.submit(120)
    world.start(40)
    world.run()
    first = [age for step, age in world.staleness if step < 12]
    assert sum(first) / len(first) == pytest.approx(11 / 12, abs=1e-12)


def test_oldest_first_bounds_the_maximum():
    """A5: strict oldest-first trains every group at a staleness of ⌊φ⌋ … ⌈φ⌉ + μ − 1 steps (docs/staleness.md); φ 2, μ 2: 2 … 3.

    Durations are equal here, so the oldest is always there when it is wanted.
    """
    world = World(settings_of(2.0, 2, 3), oldest_first=True, duration_s=lambda rng: 1.0)
    world.submit(600)
    world.start(200)
    world.run()
    steady = [age for step, age in world.staleness if 4 <= step < 190]
    assert (min(steady), max(steady)) == (2, 3)


@settings(max_examples=25, deadline=None)
@given(
    phi=st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.75, 3.0]),
    mu=st.integers(1, 4),
    groups=st.integers(1, 6),
    size=st.integers(1, 3),
    cells=st.integers(1, 4),
    capacity=st.integers(1, 12),
    seed=st.integers(0, 10_000),
)
def test_every_run_comes_to_its_end_with_nothing_outstanding(phi, mu, groups, size, cells, capacity, seed):
    """A3, A4: waterlevel, serial moves and prefix are asserted by the world at each decision; here that all of it ends well.

    Steps are no multiple of μ, so a short last burst is among them; as many groups as the steps consume were submitted.
    """
    steps = 3 * mu + 1
    world = World(settings_of(phi, mu, groups, cells, capacity), seed=seed)
    world.submit(3, size, purpose="evaluation")
    world.submit(steps * groups, size)
    world.start(steps)
    world.run()
    world.submit(2, size, purpose="evaluation")
    world.run()
    state = world.state
    assert state.steps_done == state.published_version == steps
    assert (state.waterlevel, state.outstanding_groups, len(state.queue), state.groups) == (0, 0, 0, {})
    assert state.finished == (steps * groups + 5) * size
    assert all(cell.is_serving for cell in state.cells.values())
    assert state.refused == {} and state.fenced == 0
    assert set(world.causes) == {"turns"}
    assert all(name == "cell-0" or cells > 1 for name, _, _ in world.releases)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), spread=st.integers(0, 3), supply=st.floats(0.3, 1.5))
def test_no_batch_sizes_and_no_shortage_of_tasks_stall_a_run(seed, spread, supply):
    """A4, C5: batches that want more or less than planned, and too few or too many tasks: every step that has a group to train is done."""
    steps, groups = 12, 4
    world = World(
        settings_of(0.5, 2, groups, cells=2, capacity=4), seed=seed,
        batch_groups=lambda rng, step: max(1, groups + rng.randint(-spread, spread)),
    )  # fmt: skip
    world.submit(int(steps * groups * supply))
    world.start(steps)
    world.run()
    assert world.state.outstanding_groups == 0 or world.state.steps_done == steps
    assert world.state.steps_done == steps or not world.state.queue
    assert world.state.waterlevel == 0


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000), mu=st.integers(1, 3), cells=st.integers(1, 3), capacity=st.integers(1, 8), size=st.integers(1, 3),
    drop_share=st.sampled_from([0.0, 0.1, 0.5, 1.0]), at_once=st.integers(0, 60), trickle=st.integers(0, 30),
)  # fmt: skip
def test_drops_late_tasks_and_restarts_stall_nothing(seed, mu, cells, capacity, size, drop_share, at_once, trickle):
    """A2–A4, C9: samples and whole groups are dropped, tasks trickle in, the scheduler restarts: no task is left lying."""
    steps = 10
    world = World(settings_of(0.5, mu, 3, cells, capacity), seed=seed, drop_share=drop_share)
    world.submit(at_once, size)
    for _ in range(trickle):
        world.later(world.rng.uniform(0, 20), lambda: world.submit(1, size))
    for _ in range(5):
        world.later(world.rng.uniform(0, 20), world.restart)
    world.start(steps)
    world.run()
    state = world.state
    assert state.waterlevel == 0 and state.refused == {} and state.fenced == 0
    assert state.steps_done == steps or (not state.queue and state.outstanding_groups == 0)
    assert state.outstanding_groups == sum(group.is_trained for group in state.groups.values())
    assert sum(state.executions_by_state.values()) == state.dispatched
