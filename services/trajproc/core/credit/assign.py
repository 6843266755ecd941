"""A group's executions → what each of their calls is credited with (D3, D5, D6).

| credit | advantage of a call |
|---|---|
| execution | the execution's, relative to its group |
| turn | generalised advantage estimate of its turn |
| segment | generalised advantage estimate of its segment |
| fusion | κ·(the execution's) + (1 − κ)·(its segment's), κ = s_R/(s_R + s_0) |

Sources: the functions used, in group.py, gae.py, segments.py and critic.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gyre.config import TrajprocConfig
from services.trajproc.core.credit.critic import Critic, Visits
from services.trajproc.core.credit.gae import fuse, gae, kappa_of, lambda_of, returns
from services.trajproc.core.credit.group import ROUNDING, advantages
from services.trajproc.core.credit.segments import cut, segment_rewards, states


@dataclass(frozen=True, slots=True)
class Course:
    """What credit needs to know of one execution."""

    reward: float
    turns: list[int]
    """Call indices of the calls whose replies the harness got, ascending: turn t is turns[t − 1]."""
    milestone_turns: Mapping[str, int] = field(default_factory=dict)
    """Milestone → turn after which it was first verified; past the last turn counts as the last."""
    milestone_weights: Mapping[str, float] = field(default_factory=dict)
    """As they are paid."""
    tokens: int = 1
    """Sampled tokens."""


@dataclass(frozen=True, slots=True)
class Credit:
    """What an execution's calls are credited with."""

    advantage: float
    """Of the execution, relative to its group."""
    starts: tuple[int, ...] = (0,)
    """Call index with which each segment begins."""
    advantages: tuple[float, ...] = (0.0,)
    """Of each segment's calls."""
    kappa: float = 1.0
    """Share of the execution's advantage in them."""

    def of(self, call_indices: Sequence[int]) -> npt.NDArray:
        """float64[C]: advantages of calls by their index. Calls before the first turn belong to the first segment."""
        segments = np.searchsorted(self.starts, np.asarray(call_indices, np.int64), side="right") - 1
        return np.asarray(self.advantages, np.float64)[np.maximum(segments, 0)]


NO_CREDIT = Credit(0.0)
"""Of an execution outside the baseline."""


def assign(courses: Sequence[Course], task_type: str, config: TrajprocConfig, critic: Critic) -> list[Credit]:
    """Credits of a group's executions, all of which are in the baseline; the critic learns from them afterwards."""
    rewards = np.array([course.reward for course in courses], np.float64)
    whole = advantages(config.advantage, rewards.tolist(), [course.tokens for course in courses])
    if config.credit == "execution" or config.advantage == "zero":
        return [Credit(advantage, (0,), (advantage,)) for advantage in whole]
    kappa = kappa_of(rewards, config.fusion_spread) if config.credit == "fusion" else 0.0
    lengths = [_steps(course, config) for course in courses]
    found = _estimates(courses, lengths, task_type, config, critic)
    return [_credit(*parts, kappa) for parts in zip(courses, lengths, whole, found, strict=True)]


def _steps(course: Course, config: TrajprocConfig) -> list[int]:
    """Turns of each step of the estimate; an execution without any is one step."""
    if config.credit == "turn":
        return [1] * max(1, len(course.turns))
    return cut(_turns(course).values(), len(course.turns), config.segment_calls_min, config.segment_calls_max)


def _estimates(
    courses: Sequence[Course], lengths: Sequence[list[int]], task_type: str, config: TrajprocConfig, critic: Critic
) -> list[npt.NDArray]:
    """float64[K] of each execution: advantages of its steps."""
    gamma, visits, paid = config.gamma, [], []
    for course, steps in zip(courses, lengths, strict=True):
        before = states(_turns(course), steps)
        paid.append(segment_rewards(before, steps, course.milestone_weights, course.reward, gamma))
        visits.append(Visits(before, returns(paid[-1], steps, gamma)))
    values = critic.values(task_type, visits)
    critic.learn(task_type, visits)
    return [
        gae(rewards, value, steps, gamma, lambda_of(len(steps), config.lambda_scale))
        for rewards, value, steps in zip(paid, values, lengths, strict=True)
    ]


def _credit(course: Course, lengths: list[int], whole: float, found: npt.NDArray, kappa: float) -> Credit:
    fused = fuse(kappa, whole, found)
    fused[np.abs(fused) < ROUNDING] = 0.0
    firsts = np.cumsum([0, *lengths[:-1]])
    starts = tuple(course.turns[turn] for turn in firsts) if course.turns else (0,)
    return Credit(whole, starts, tuple(fused.tolist()), kappa)


def _turns(course: Course) -> dict[str, int]:
    last = max(1, len(course.turns))
    return {name: min(turn, last) for name, turn in course.milestone_turns.items()}
