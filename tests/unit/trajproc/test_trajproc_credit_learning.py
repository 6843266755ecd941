"""Whether credit teaches: a policy of nine independent decisions, all of which must be right, learned by each kind of credit (D3, D6).

The first three right are milestone a, the first six b. Nothing of the trainer is here: θ += step·gradient/|gradient|, the gradient being
Σ advantage·(action − p), the score of a Bernoulli decision.
"""

import numpy as np
import pytest

from gyre.config import TrajprocConfig
from services.trajproc.core.credit import Course, assign, make_critic

CALLS, GROUP, GROUPS, STEPS, SEEDS, STEP = 9, 8, 4, 30, 5, 0.25
WEIGHTS = {"a": 0.1, "b": 0.1}


def course(actions: np.ndarray) -> Course:
    reached = {name: turns for name, turns in (("a", 3), ("b", 6)) if actions[:turns].all()}
    reward = 0.8 * actions.all() + sum(WEIGHTS[name] for name in reached)
    return Course(float(reward), list(range(CALLS)), reached, WEIGHTS)


def success_after(credit: str, critic_name: str, seed: int) -> float:
    """Probability of nine right decisions after STEPS updates; it begins with 2⁻⁹."""
    config = TrajprocConfig(credit=credit, critic=critic_name)
    critic, rng, theta = make_critic(critic_name, config.critic_memory), np.random.default_rng(seed), np.zeros(CALLS)
    for _ in range(STEPS):
        p, gradient = 1 / (1 + np.exp(-theta)), np.zeros(CALLS)
        for _ in range(GROUPS):
            actions = rng.random((GROUP, CALLS)) < p
            for own, credits in zip(
                actions, assign([course(row) for row in actions], "t", config, critic), strict=True
            ):
                gradient += credits.of(range(CALLS)) * (own - p)
        theta += STEP * gradient / max(np.linalg.norm(gradient), 1e-9)
    return float(np.prod(1 / (1 + np.exp(-theta))))


def mean_success(credit: str, critic: str) -> float:
    return float(np.mean([success_after(credit, critic, seed) for seed in range(SEEDS)]))


@pytest.mark.parametrize("credit, critic", [("segment", "zero"), ("turn", "tabular"), ("fusion", "tabular")])
def test_milestones_teach_sooner_than_the_outcome_alone(credit, critic):
    """D3: the same rewards, a third more success after the same steps: a call after milestone b is no longer blamed and praised for what came before.
    A wrong sign anywhere between milestone and call would unlearn."""
    plain = mean_success("execution", "zero")
    assert plain > 20 * 2**-CALLS, "the outcome alone teaches, too"
    assert mean_success(credit, critic) > 1.3 * plain
