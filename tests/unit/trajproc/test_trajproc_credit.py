"""Advantages of executions, turns and segments (B7, D3, D5, D6): each number by hand."""

import numpy as np
import pytest

from gyre.config import TrajprocConfig
from services.trajproc.core.credit import ADVANTAGES, Course, advantages, assign, make_critic
from services.trajproc.core.credit.critic import Tabular, Visits
from services.trajproc.core.credit.gae import fuse, gae, kappa_of, lambda_of, returns
from services.trajproc.core.credit.segments import cut, segment_rewards, states

HALVES = {"opened": 0.1, "passes": 0.3}


def config(**settings) -> TrajprocConfig:
    return TrajprocConfig(**{"credit": "segment", "critic": "zero", "lambda_scale": 0.0, **settings})


def course(reward: float, calls: int, milestone_turns: dict[str, int] | None = None, **more) -> Course:
    return Course(reward, list(range(calls)), milestone_turns or {}, HALVES, **more)


def test_the_baseline_is_by_execution_and_never_by_row():
    """slime#2302: rows' rewards [1,1,1,0], the first three of one execution: executions have [1,0], baseline .5, so rows get
    [.5,.5,.5,−.5]; by row the baseline would be .75."""
    by_execution = advantages("group", [1.0, 0.0])
    assert [by_execution[execution] for execution in (0, 0, 0, 1)] == [0.5, 0.5, 0.5, -0.5]


def test_each_advantage_by_hand():
    """B7: rewards [1,0,0,0]: mean .25, median 0, population deviation √(.25·.75) = .4330; leaving one out: 1−0 and 0−1/3; MaxRL divides
    by the mean: .75/.25 = 3 and −.25/.25 = −1; lengths 6,1,1,2 make OPO's baseline 6/10."""
    rewards = [1.0, 0.0, 0.0, 0.0]
    assert advantages("group", rewards) == [0.75, -0.25, -0.25, -0.25]
    assert advantages("group_std", rewards) == pytest.approx([1.7321, -0.5774, -0.5774, -0.5774], abs=1e-4)
    assert advantages("group_median", rewards) == rewards
    assert advantages("leave_one_out", rewards) == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3])
    assert advantages("max_rl", rewards) == [3.0, -1.0, -1.0, -1.0]
    assert advantages("optimal", rewards, [6, 1, 1, 2]) == pytest.approx([0.4, -0.6, -0.6, -0.6])
    assert advantages("reward", rewards) == rewards
    assert advantages("zero", rewards) == [0.0] * 4


def test_max_rl_leaves_a_group_alone_in_which_nothing_succeeded():
    """B7: a mean of 0 has no 1/p, and a penalised group (mean below 0) must not turn the sign of its advantages round."""
    assert advantages("max_rl", [0.0, 0.0]) == [0.0, 0.0]
    assert advantages("max_rl", [-1.0, 0.0]) == [0.0, 0.0]


@pytest.mark.parametrize("name", ["group", "group_std", "group_median", "leave_one_out", "max_rl", "optimal"])
def test_equal_rewards_and_single_ones_have_exactly_no_advantage(name):
    """C10: .1+.2 style rounding of a mean must not look like a gradient."""
    assert advantages(name, [0.1 + 0.2] * 7) == [0.0] * 7
    assert advantages(name, [1.0]) == [0.0]


@pytest.mark.parametrize("lambda_, expected", [(1.0, [3, 3, 2, 2]), (0.5, [2, 2, 2, 2]), (0.0, [1, 1, 2, 2])])
def test_turn_level_estimates_by_hand(lambda_, expected):
    """D3: tokens' rewards [0,1,0,2] in turns [0,0,1,1] are turn rewards [1,2]. With γ 1 and V 0 each δ is its reward: A_1 = 2, and
    A_0 = 1 + λ·2 = 3, 2 or 1; each token has its turn's."""
    turn_of_token = np.array([0, 0, 1, 1])
    rewards = np.bincount(turn_of_token, weights=[0.0, 1.0, 0.0, 2.0])
    assert gae(rewards, np.zeros(2), [1, 1], 1.0, lambda_)[turn_of_token].tolist() == expected


def test_segment_level_estimates_discount_by_calls():
    """D3: segments of 2 and 3 calls, γ ½, V [1, 8], R [2, 4]: δ_0 = 2 + ¼·8 − 1 = 3, δ_1 = 4 + 0 − 8 = −4; λ ½: A_1 = −4,
    A_0 = 3 + ¼·½·(−4) = 2.5."""
    assert gae(np.array([2.0, 4.0]), np.array([1.0, 8.0]), [2, 3], 0.5, 0.5).tolist() == [2.5, -4.0]


def test_lambda_grows_with_the_number_of_segments():
    """D3: 1 − 1/(a·K): a 1: K 1 → 0, K 4 → .75; a ½, K 1 would be −1 → 0; a 0 stands for 1."""
    assert [lambda_of(1, 1.0), lambda_of(4, 1.0), lambda_of(1, 0.5), lambda_of(3, 0.0)] == [0.0, 0.75, 0.0, 1.0]


def test_fusion_leans_on_the_outcome_where_it_separates():
    """D3: rewards [1,0] deviate by .5: κ = .5/(.5+.1) = 5/6; equal ones by 0: κ = 0, also with s_0 = 0, and then all is the segments'."""
    assert kappa_of(np.array([1.0, 0.0]), 0.1) == pytest.approx(5 / 6)
    assert kappa_of(np.array([1.0, 0.0]), 0.0) == 1.0
    assert kappa_of(np.array([0.3] * 3), 0.1) == kappa_of(np.array([0.3] * 3), 0.0) == 0.0
    assert fuse(0.75, 1.0, np.array([0.0, 2.0])).tolist() == [0.75, 1.25]


def test_an_execution_is_cut_where_milestones_were_verified():
    """D3: 9 calls, milestones after 3, 6 and 7, at least 2 calls: 7 comes one call after 6 and ends none; at most 2 calls: 2, then 3 is one
    call on, so it ends none either."""
    assert cut([3, 6, 7], 9, 2, 9) == [3, 3, 3]
    assert cut([3], 5, 2, 3) == [3, 2]
    assert cut([], 5, 1, 2) == [2, 2, 1]
    assert cut([], 5, 2, 3) == [3, 2]
    assert cut([5], 5, 1, 9) == [5]
    assert cut([], 0, 1, 4) == [0]


def test_a_milestone_pays_once_to_the_segment_that_reached_it_and_is_taken_back_at_the_end():
    """D5: Φ after the segments is .1, .4 and, terminal, 0; γ 1: paid .1, .3 and −.4 + 1. What held from the start (turn 0) is no progress."""
    turns = {"opened": 2, "passes": 4, "there": 0}
    before = states(turns, [2, 2, 1])
    assert before == [(), ("opened",), ("opened", "passes")]
    paid = segment_rewards(before, [2, 2, 1], HALVES | {"there": 0.5}, 1.0, 1.0)
    assert paid == pytest.approx([0.1, 0.3, 0.6])


def test_equal_outcomes_still_teach_by_segments():
    """D3: two failures, one of which opened the file after call 2 of 4. Fusion: κ 0. No critic, λ 0 (a·K = 1 … 2 segments with a ½):
    its segments have .1 and −.1, the other's one segment nothing; by execution there is nothing to learn."""
    pair = [course(0.0, 4, {"opened": 2}), course(0.0, 4)]
    first, second = assign(pair, "t", config(credit="fusion", lambda_scale=0.5), make_critic("zero", 1))
    assert (first.starts, first.kappa) == ((0, 2), 0.0)
    assert first.advantages == pytest.approx((0.1, -0.1))
    assert second.advantages == (0.0,)
    plain = assign(pair, "t", config(credit="execution"), make_critic("zero", 1))
    assert [credit.advantages for credit in plain] == [(0.0,), (0.0,)]


def test_calls_of_sub_agents_belong_to_the_segment_in_whose_range_they_lie():
    """D3: turns are calls 0, 3, 5, 6; a milestone after turn 2 (call 3) begins the second segment at call 5, so calls 1, 2 and 4 between
    are the first's. λ 0: its .1, and −.1 + 1 for the rest."""
    (credit,) = assign(
        [Course(1.0, [0, 3, 5, 6], {"opened": 2}, HALVES)], "t", config(lambda_scale=0.5), make_critic("zero", 1)
    )
    assert credit.starts == (0, 5)
    assert credit.of(range(7)) == pytest.approx([0.1] * 5 + [0.9] * 2)


def test_turn_credit_is_a_segment_a_turn():
    """D3: three turns, the file opened after the second, reward 1, V 0, λ 1: what is still to come: 1, 1 and 1 − Φ = .9."""
    (credit,) = assign([course(1.0, 3, {"opened": 2})], "t", config(credit="turn"), make_critic("zero", 1))
    assert credit.of([0, 1, 2]) == pytest.approx([1.0, 1.0, 0.9])


def test_a_milestone_past_the_last_call_counts_as_reached_by_the_last():
    """D5: what an environment says is not trusted to agree with the records: turn 90 of 3 calls cuts nothing and pays nothing."""
    (credit,) = assign([course(0.0, 3, {"opened": 90})], "t", config(), make_critic("zero", 1))
    assert credit.advantages == (0.0,)


def test_the_group_mean_as_critic_gives_the_group_advantage():
    """D6: without milestones and with λ 1 a segment's estimate is return − mean: [.5, −.5] for rewards [1, 0]."""
    found = assign([course(1.0, 2), course(0.0, 2)], "t", config(), make_critic("group_mean", 1))
    assert [credit.advantages for credit in found] == [(0.5,), (-0.5,)]


def test_executions_are_compared_where_they_stood_alike():
    """D6, GiGPO: both open the file (returns −.1+1 and −.1+0 from there, mean .4), so beyond it ±.5, and before it ±.5 as well; the
    third never opens it, and at the start has 0 − 1/3."""
    group = [course(1.0, 4, {"opened": 2}), course(0.0, 4, {"opened": 1}), course(0.0, 4)]
    found = assign(group, "t", config(), make_critic("group_state", 1))
    assert found[0].advantages == pytest.approx((2 / 3, 0.5))
    assert found[1].advantages == pytest.approx((-1 / 3, -0.5))
    assert found[2].advantages == pytest.approx((-1 / 3,))


def visits(*returns_from_start: float, opened: float | None = None) -> list[Visits]:
    found = [Visits([()], np.array([gain])) for gain in returns_from_start]
    return found if opened is None else [*found, Visits([(), ("opened",)], np.array([opened, opened - 0.1]))]


def test_the_table_begins_at_the_mean_return_and_learns_returns():
    """D6: nothing known: the group's own mean .5. Then the start is worth (1+0)/2 = .5 and a state never seen as much; after a visit with
    return .9 it is worth (.5 + .9)/2 = .7: the start counts as one visit."""
    critic = Tabular(memory=8)
    assert critic.values("t", visits(1.0, 0.0))[0].tolist() == [0.5]
    critic.learn("t", visits(1.0, 0.0))
    assert critic.values("t", visits(opened=1.0))[0].tolist() == [0.5, 0.5]
    critic.learn("t", visits(opened=1.0))
    assert critic.values("t", visits(opened=1.0))[0] == pytest.approx([2 / 3, 0.7])
    assert critic.values("other", visits(0.25))[0].tolist() == [0.25]


def test_the_table_forgets_and_is_bounded():
    """D6: memory 2: after two visits each new return counts ½: 0, 0, then 1 → .5. Of two states at most, the one not visited for longest goes."""
    critic = Tabular(memory=2, states_max=2)
    for gain in (0.0, 0.0, 1.0):
        critic.learn("t", visits(gain))
    assert critic.values("t", visits(0.0))[0].tolist() == [0.5]
    critic.learn("u", visits(1.0))
    critic.learn("v", visits(1.0))
    assert len(critic._means) == 2 and critic.values("t", visits(0.25))[0].tolist() == [0.25]


def test_the_critic_learns_from_a_group_after_it_was_judged():
    """D6: a group's own outcome is not in the value it is measured by: the first group is measured by its own mean (1), for want of
    another, and has 0; the second returns 0 and is measured by the first's 1."""
    critic = make_critic("tabular", 8)
    assert assign([course(1.0, 1)], "t", config(), critic)[0].advantages == (0.0,)
    assert assign([course(0.0, 1)], "t", config(), critic)[0].advantages == (-1.0,)


def test_a_control_that_must_not_learn_has_no_segments_either():
    """B7: `zero` means no gradient at all, whatever credit is set."""
    found = assign([course(1.0, 4, {"opened": 2})], "t", config(advantage="zero"), make_critic("zero", 1))
    assert found[0].advantages == (0.0,)


def test_returns_are_what_is_still_to_come():
    """D6: γ ½, segments of 1 and 2 calls, rewards [1, 2]: from the start 1 + ½·2 = 2, from the second 2."""
    assert returns(np.array([1.0, 2.0]), [1, 2], 0.5).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("noise", [5e-324, 1e-12])
def test_rewards_that_differ_by_rounding_are_equal(noise):
    """.5 and .5 + 1e-12 divided by their deviation would be −1 and 1, as large an advantage as there is; and the deviation of 0 and 5e-324 is 0."""
    for name in ADVANTAGES:
        found = advantages(name, [0.5 * (noise > 1e-20), 0.5 * (noise > 1e-20) + noise])
        assert name == "reward" or found == [0.0, 0.0]
    assert kappa_of(np.array([0.5, 0.5 + noise]), 0.0) == 0.0
