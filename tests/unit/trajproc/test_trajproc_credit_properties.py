"""What holds for every group and every execution (B7, D3, D5, D6)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.config import TrajprocConfig
from services.trajproc.core.credit import ADVANTAGES, Course, advantages, assign, make_critic
from services.trajproc.core.credit.gae import gae, returns
from services.trajproc.core.credit.segments import cut, segment_rewards, states

REWARDS = st.lists(st.floats(0, 1, allow_nan=False).map(lambda value: round(value, 3)), min_size=2, max_size=12)
GAMMAS = st.floats(0.5, 1.0)
WEIGHTS = {"a": 0.1, "b": 0.05, "c": 0.15}


@st.composite
def courses(draw) -> Course:
    """Calls with gaps in their indices (lost replies, sub-agents), milestones at any turn, also where none can be."""
    gaps = draw(st.lists(st.integers(1, 4), min_size=0, max_size=20))
    turns = np.cumsum(gaps).tolist()
    reached = draw(st.dictionaries(st.sampled_from(sorted(WEIGHTS)), st.integers(0, 25)))
    return Course(round(draw(st.floats(0, 1)), 3), turns, reached, WEIGHTS, draw(st.integers(0, 50)))


CONFIGS = st.builds(
    lambda credit, critic, gamma, scale, shortest, more: TrajprocConfig(
        credit=credit, critic=critic, gamma=gamma, lambda_scale=scale, segment_calls_min=shortest,
        segment_calls_max=2 * shortest - 1 + more,
    ),
    st.sampled_from(["execution", "turn", "segment", "fusion"]),
    st.sampled_from(["zero", "group_mean", "group_state", "tabular"]),
    GAMMAS, st.floats(0, 3), st.integers(1, 4), st.integers(0, 6),
)  # fmt: skip


@given(REWARDS, st.sampled_from(["group", "group_std", "leave_one_out", "max_rl"]))
def test_advantages_relative_to_the_mean_sum_to_zero(rewards, name):
    """B7: Σ(r − mean) = 0, and a common factor leaves it so."""
    assert sum(advantages(name, rewards)) == pytest.approx(0.0, abs=1e-6)


@given(REWARDS)
def test_leaving_one_out_is_the_reward_minus_the_mean_of_the_others(rewards):
    """B7: r_i − (S − r_i)/(N − 1) = (N·r_i − S)/(N − 1) = (r_i − mean)·N/(N − 1)."""
    others = [(sum(rewards) - reward) / (len(rewards) - 1) for reward in rewards]
    expected = [reward - other for reward, other in zip(rewards, others, strict=True)]
    assert advantages("leave_one_out", rewards) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 100)), min_size=1, max_size=10), st.data())
def test_the_order_of_members_changes_nothing(members, data):
    """B7: each execution keeps its advantage when the group is shuffled."""
    order = data.draw(st.permutations(range(len(members))))
    rewards, lengths = zip(*members, strict=True)
    for name in ADVANTAGES:
        plain = advantages(name, rewards, lengths)
        shuffled = advantages(name, [rewards[i] for i in order], [lengths[i] for i in order])
        assert shuffled == pytest.approx([plain[i] for i in order], rel=1e-6, abs=1e-9)


@given(st.sets(st.integers(0, 60)), st.integers(0, 60), st.integers(1, 6), st.integers(0, 10))
def test_segments_partition_the_calls_and_keep_their_bounds(turns, calls, shortest, more):
    """D3: lengths sum to the calls, and each is in its bounds but for an execution shorter than the minimum."""
    longest = 2 * shortest - 1 + more
    lengths = cut(turns, calls, shortest, longest)
    assert sum(lengths) == calls
    assert all(shortest <= length <= longest for length in lengths) or (len(lengths) == 1 and calls < shortest)


@given(courses(), st.integers(1, 4), st.integers(0, 6), GAMMAS)
def test_shaping_adds_up_to_nothing(course, shortest, more, gamma):
    """D5: discounted to the start the payments telescope to γᵀΦ(terminal) − Φ(start) = 0: what an execution returns is its reward, wherever it is
    cut, so what is optimal stays so (Ng, Harada & Russell 1999)."""
    calls = len(course.turns)
    lengths = cut(course.milestone_turns.values(), calls, shortest, 2 * shortest - 1 + more)
    before = states(course.milestone_turns, lengths)
    paid = segment_rewards(before, lengths, WEIGHTS, 0.0, gamma)
    assert returns(paid, lengths, gamma)[0] == pytest.approx(0.0, abs=1e-12)
    with_reward = segment_rewards(before, lengths, WEIGHTS, course.reward, gamma)
    assert returns(with_reward, lengths, gamma)[0] == pytest.approx(gamma ** max(calls - 1, 0) * course.reward)


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.integers(1, 5)), min_size=1, max_size=10), GAMMAS)
def test_lambda_one_is_the_return_minus_the_value(steps, gamma):
    """D3: with λ 1 the values between telescope away: A_k = G_k − V_k."""
    rewards, values, lengths = (np.array(column) for column in zip(*steps, strict=True))
    expected = returns(rewards, lengths, gamma) - values
    assert gae(rewards, values, lengths, gamma, 1.0) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=300)
@given(st.lists(courses(), min_size=1, max_size=6), CONFIGS)
def test_every_call_of_every_execution_has_one_finite_advantage(group, config):
    """D3: whatever environments said and however calls came: segments begin in order at calls that are there, each call has one of their values."""
    critic = make_critic(config.critic, config.critic_memory)
    for _ in range(2):
        for course, credit in zip(group, assign(group, "t", config, critic), strict=True):
            assert len(credit.starts) == len(credit.advantages)
            assert list(credit.starts) == sorted(set(credit.starts)) and set(credit.starts) <= {0, *course.turns}
            found = credit.of(range(max(course.turns, default=0) + 1))
            assert np.isfinite(found).all() and set(found.tolist()) == set(credit.advantages)
            assert np.abs(found).max() < 20


@given(st.lists(courses(), min_size=1, max_size=6), CONFIGS, st.data())
def test_the_order_of_members_does_not_change_credit(group, config, data):
    """D3: nor does what the critic learns depend on it beyond rounding when each state's mean is one over all visits so far."""
    order = data.draw(st.permutations(range(len(group))))
    plain = assign(group, "t", config, make_critic(config.critic, 64))
    shuffled = assign([group[i] for i in order], "t", config, make_critic(config.critic, 64))
    for position, i in enumerate(order):
        assert shuffled[position].starts == plain[i].starts
        assert shuffled[position].advantages == pytest.approx(plain[i].advantages, abs=1e-8)
