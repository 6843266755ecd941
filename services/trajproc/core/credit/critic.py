"""What an execution is worth from where it stands, by name (D6). Values are of the shaped problem: the reward still to come minus Φ.

`tabular` is the honest cheap one: a running mean for each task type and set of verified milestones, of the returns that
executions really had from there (λ = 1 for the critic). It is part of the processor's fold: it learns from groups in the order in which they
are judged, after they were judged, so a restart that folds the same facts has the same values.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from services.trajproc.core.credit.segments import State

STATES_MAX = 4096
"""States that the table holds; the one that was not visited for longest goes."""


class Visits(NamedTuple):
    """One execution: the states in which its K segments began and the returns from there, float64[K]."""

    states: list[State]
    returns: npt.NDArray


class Critic(Protocol):
    """Values at segment beginnings. Its answers depend on the groups it has learned from, and their order, and on nothing else."""

    def values(self, task_type: str, visits: Sequence[Visits]) -> list[npt.NDArray]:
        """Of one group's executions: float64[K] each."""

    def learn(self, task_type: str, visits: Sequence[Visits]) -> None:
        """From a judged group's complete executions."""


class Zero:
    """No critic: the potential alone says what a state is worth, so a milestone pays the segment that reached it."""

    def values(self, task_type: str, visits: Sequence[Visits]) -> list[npt.NDArray]:
        return [np.zeros(len(visit.returns)) for visit in visits]

    def learn(self, task_type: str, visits: Sequence[Visits]) -> None: ...


class GroupMean(Zero):
    """The group's mean return, wherever an execution stands."""

    def values(self, task_type: str, visits: Sequence[Visits]) -> list[npt.NDArray]:
        mean = _mean_return(visits)
        return [np.full(len(visit.returns), mean) for visit in visits]


class GroupState(Zero):
    """The mean return of the group's executions from the same state (GiGPO's anchor states, arXiv 2505.10978).

    Each execution counts once a state, with its return when it first stood there; one that is alone in a state has no advantage at λ = 1.
    """

    def values(self, task_type: str, visits: Sequence[Visits]) -> list[npt.NDArray]:
        seen: dict[State, list[float]] = {}
        for visit in visits:
            for state, gain in _first_visits(visit):
                seen.setdefault(state, []).append(gain)
        means = {state: sum(gains) / len(gains) for state, gains in seen.items()}
        return [np.array([means[state] for state in visit.states]) for visit in visits]


class Tabular:
    """Running means by (task type, state). A state is first worth what the task type's executions return on the mean: the conservative start.

    `memory` is the most visits that a mean remembers: beyond it the newest counts 1/memory, so that an old policy's returns fade.
    """

    def __init__(self, memory: int, states_max: int = STATES_MAX) -> None:
        self._memory, self._states_max = memory, states_max
        self._means: OrderedDict[tuple[str, State], tuple[float, int]] = OrderedDict()

    def values(self, task_type: str, visits: Sequence[Visits]) -> list[npt.NDArray]:
        start, known = self._means.get((task_type, ()), (0.0, 0))
        default = start if known else _mean_return(visits)
        return [
            np.array([self._means.get((task_type, state), (default, 0))[0] for state in visit.states])
            for visit in visits
        ]

    def learn(self, task_type: str, visits: Sequence[Visits]) -> None:
        default = self._means.get((task_type, ()), (_mean_return(visits), 0))[0]
        for visit in visits:
            for state, gain in _first_visits(visit):
                # The start counts as one visit, but at the very beginning of an execution, where it is itself a mean of returns.
                mean, count = self._means.pop((task_type, state), (default, 1 if state else 0))
                count = min(count + 1, self._memory)
                self._means[task_type, state] = mean + (gain - mean) / count, count
                if len(self._means) > self._states_max:
                    self._means.popitem(last=False)


def _first_visits(visit: Visits) -> list[tuple[State, float]]:
    """Each state once, with the return from its first segment."""
    first: dict[State, float] = {}
    for state, gain in zip(visit.states, visit.returns, strict=True):
        first.setdefault(state, float(gain))
    return list(first.items())


def _mean_return(visits: Sequence[Visits]) -> float:
    return float(np.mean([visit.returns[0] for visit in visits])) if visits else 0.0


def make_critic(name: str, memory: int) -> Critic:
    """`zero`, `group_mean`, `group_state` or `tabular`."""
    if name == "tabular":
        return Tabular(memory)
    return {"zero": Zero, "group_mean": GroupMean, "group_state": GroupState}[name]()
