"""Reward gaming (D4, D13): a history that must alarm, and honest ones that must not."""

import numpy as np
import pytest

from services.trajproc.core.scoring.gaming import TYPES_MAX, GamingWatch, repeated_share
from tests.unit.trajproc.builders import call

WINDOW = 512


def history(executions: int, shaped, verified, repeated, seed: int = 0, noise: float = 0.05) -> list:
    """Rewards of executions whose parts follow functions of progress 0…1, with noise; every alarm raised over them."""
    watch, rng, raised = GamingWatch(WINDOW), np.random.default_rng(seed), []
    for index in range(executions):
        progress = index / executions
        rewards = {
            "learned.taste": float(shaped(progress) + noise * rng.standard_normal()),
            "outcome": float(rng.random() < verified(progress)) * 0.7,
            "milestone.built": 0.0,
        }
        alarm = watch.see(
            "repair", rewards, float(np.clip(repeated(progress) + noise * rng.standard_normal(), 0, 1)), index
        )
        raised += [alarm] if alarm else []
    return raised


def rising(low: float, high: float):
    return lambda progress: low + (high - low) * progress


def flat(value: float):
    return lambda progress: value


def test_reward_that_rises_by_repeating_cheap_actions_is_an_alarm_once():
    """D4: over 800 executions pay .1 → .4 and repeats 5% → 80%, outcome stays at 30%: from 256 executions to the next pay rises by .3·256/800 =
    .096 and repeats by 24 points; the standard error is mostly the outcome's, .7·√(.3·.7·2/256) = .028, so .096 is 3.4 of them. It
    goes on rising, and still it is said once."""
    raised = history(800, rising(0.1, 0.4), flat(0.3), rising(0.05, 0.8))
    assert [alarm.kind for alarm in raised] == ["reward_gaming"]
    values = raised[0].values
    assert values["shaped_now"] - values["shaped_before"] >= 0.03
    assert values["repeated_now"] - values["repeated_before"] >= 0.1
    assert "repair" in raised[0].message


def test_a_second_wave_after_a_quiet_time_is_a_second_alarm():
    """Hysteresis: over when a rise is under half its line; the plateau between the waves is longer than a window."""

    def wave(low: float, step: float):
        return lambda progress: low + step * (min(progress, 0.25) * 4 + max(0.0, progress - 0.75) * 4)

    raised = history(4000, wave(0.05, 0.3), flat(0.0), wave(0.05, 0.45), noise=0.02)
    assert len(raised) == 2


@pytest.mark.parametrize(
    ("reason", "shaped", "verified", "repeated"),
    [
        ("an honest rise has what is verified beside it", rising(0.1, 0.4), rising(0.1, 0.9), rising(0.05, 0.8)),
        ("nothing rises", flat(0.2), flat(0.3), flat(0.3)),
        ("a repetitive task repeats as much before as after", rising(0.1, 0.4), flat(0.3), flat(0.8)),
        ("repeating that pays nothing is no gaming", flat(0.2), flat(0.3), rising(0.05, 0.8)),
        ("a model that falls", rising(0.4, 0.1), flat(0.3), rising(0.05, 0.8)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("seed", range(4))
def test_honest_histories_raise_nothing(reason, shaped, verified, repeated, seed):
    """D4"""
    assert history(800, shaped, verified, repeated, seed) == [], reason


def test_task_types_are_watched_apart_and_nothing_is_watched_where_it_is_off():
    """Two types that differ are no trend; a window of 0 keeps nothing."""
    watch = GamingWatch(WINDOW)
    for index in range(2000):
        low = index % 2 == 0
        rewards = {"learned.taste": 0.1 if low else 0.5, "outcome": 0.3}
        assert watch.see("a" if low else "b", rewards, 0.1 if low else 0.9, index) is None
    off = GamingWatch(0)
    assert all(off.see("a", {"dense.x": index / 500}, index / 500, index) is None for index in range(500))


def test_the_share_of_repeated_tool_calls_is_by_their_arguments():
    """B2: of five calls with arguments a, b, a, a, c two repeat an earlier one: 2/5; without tool calls 0."""
    import msgspec

    calls = [
        msgspec.structs.replace(call([1], [2], index=index), tool_payloads={f"t{index}": text})
        for index, text in enumerate(("a", "b", "a", "a", "c"))
    ]
    assert repeated_share(calls) == pytest.approx(2 / 5)
    assert repeated_share([call([1], [2])]) == 0.0


def test_what_is_remembered_does_not_grow_with_the_number_of_task_types():
    """A task type for each task, 10,000 of them: the newest 256 are watched, and one that goes on being seen stays among them."""
    watch = GamingWatch(64)
    for number in range(10_000):
        watch.see(f"task-{number}", {"outcome": 1.0}, 0.0, float(number))
        watch.see("often", {"outcome": 1.0}, 0.0, float(number))
    assert len(watch._points) == len(watch._seen) == TYPES_MAX and len(watch._points["often"]) == 64
