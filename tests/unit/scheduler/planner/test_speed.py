"""Speed under load is learned from tokens and times of executions that ended (A9, elastic_plus)."""

import random

import pytest

from services.scheduler.core import history as core
from services.scheduler.core.history import BANDS, EXECUTIONS_REMEMBERED, GROUPS_REMEMBERED, Ended, History
from services.scheduler.planner.speed import fitted
from services.scheduler.simulator.spec import Speed

TOKENS_PER_S = 50.0


def lived(speed: Speed, executions: int = 600) -> History:
    """Executions of random length under a load that changes every 100 s."""
    history, rng, now_s = History(), random.Random(1), 0.0
    running: list[tuple[int, list[float], float]] = []
    for _ in range(executions):
        load = rng.choice([5, 15, 30, 45, 60, 75, 90, 100])
        history.to(now_s, load, 100)
        running.append((rng.randrange(1, 30), list(history.passed_s), 0.0))
        now_s += 100.0
        history.to(now_s, load, 100)
        running = [
            (left - 1, since, tokens + 100.0 * TOKENS_PER_S * speed.at(load / 100)) for left, since, tokens in running
        ]
        for _, since, tokens in [entry for entry in running if entry[0] == 0]:
            history.ran(round(tokens), since)
        running = [entry for entry in running if entry[0] > 0]
    return history


@pytest.mark.parametrize("speed", [Speed(slowdown=0.7), Speed(slowdown=2.0), Speed(family="knee", knee=0.6, power=0.8)])
def test_the_law_that_made_the_tokens_is_found_again(speed: Speed):
    """Within 5 % at every load from a tenth to full: bands are a fifth wide, and the mean speed inside one is off by less."""
    token_s, found = fitted(lived(speed))
    for load in (0.1, 0.3, 0.5, 0.7, 0.9, 1.0):
        assert token_s / found.at(load) == pytest.approx(1.0 / (TOKENS_PER_S * speed.at(load)), rel=0.05)


def test_where_all_met_the_same_load_the_prior_says_how_it_would_be_elsewhere():
    """All at full load with 20 tokens a second: exactly that there, and 1.7 times it on an empty cell."""
    history = History()
    history.to(0.0, 100, 100)
    for index in range(50):
        since = list(history.passed_s)
        history.to(100.0 * (index + 1), 100, 100)
        history.ran(2000, since)
    first_s, slowdown = history.speed()
    assert 1.0 / (first_s * (1.0 + slowdown)) == pytest.approx(20.0, rel=0.01)
    assert 1.0 / first_s == pytest.approx(34.0, rel=0.05)


def test_older_executions_are_forgotten_exponentially_however_weights_are_kept(monkeypatch):
    """A9: each ending makes all before it weigh 1 − 1/512 of what they did, before the weights are scaled down and after."""
    monkeypatch.setattr(core, "WEIGHT_MAX", 2.0)
    history, rng, kept = History(), random.Random(3), 1.0 - 1.0 / EXECUTIONS_REMEMBERED
    products, rates = [[0.0] * BANDS for _ in range(BANDS)], [0.0] * BANDS
    for _ in range(2 * EXECUTIONS_REMEMBERED):
        since_s = list(history.passed_s)
        for _ in range(rng.randrange(1, 4)):
            history.to(history.at_s, rng.randrange(1, 101), 100)
            history.to(history.at_s + rng.uniform(1.0, 9.0), 0, 100)
        tokens = rng.randrange(1, 1000)
        history.ran(tokens, since_s)
        spent_s = [now_s - then_s for now_s, then_s in zip(history.passed_s, since_s, strict=True)]
        shares = [one_s / sum(spent_s) for one_s in spent_s]
        for band, share in enumerate(shares):
            rates[band] = kept * rates[band] + share * tokens / sum(spent_s)
            for other, also in enumerate(shares):
                products[band][other] = kept * products[band][other] + share * also
    found = history.normal_equations()
    assert history.weight <= 2.0 and sum(map(sum, products)) == pytest.approx(442.6, abs=0.5)  # 512 · (1 − kept¹⁰²⁴)
    assert found[1] == pytest.approx(rates) and [value for row in found[0] for value in row] == pytest.approx(
        [value for row in products for value in row]
    )


def test_nothing_known_and_nothing_sampled_are_no_division_by_zero():
    history = History()
    assert history.speed()[0] == 0.0
    history.ran(0, list(history.passed_s))
    assert history.speeds() == []


def test_memory_is_bounded():
    history = History()
    for index in range(2 * GROUPS_REMEMBERED):
        history.remember(Ended("any", [index + 1], [False], 60.0))
    assert len(history.groups) == GROUPS_REMEMBERED
    assert history.groups[-1].tokens == [2 * GROUPS_REMEMBERED]
