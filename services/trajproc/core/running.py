"""Running reward statistics by task type (D9): the baseline where a group cannot give one, as one execution alone has a reward or all are equal.

A group of four failures of a task type that mostly succeeds says something; its own mean does not. The mean is of the executions of
groups judged before, with a memory of `memory` executions, so that an old policy's rewards fade. It is part of the processor's fold: the
same facts in the same order give the same means.
"""

from collections import OrderedDict
from collections.abc import Sequence

SEEN_MIN = 16
"""A mean over fewer executions is a matter of luck: until then there is no baseline, and no gradient, as without this."""

TYPES_MAX = 4096
"""Task types that are remembered, the ones judged last: with a type for each task there is never a baseline, and all would be kept."""


class RunningRewards:
    """Task type → mean reward of its executions."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._means: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def mean(self, task_type: str) -> float | None:
        """None until enough executions were seen."""
        mean, seen = self._means.get(task_type, (0.0, 0))
        return mean if seen >= SEEN_MIN else None

    def learn(self, task_type: str, rewards: Sequence[float]) -> None:
        """From a group that was judged, after it was."""
        mean, seen = self._means.get(task_type, (0.0, 0))
        for reward in rewards:
            seen += 1
            mean += (reward - mean) / min(seen, self._memory)
        self._means[task_type] = mean, seen
        self._means.move_to_end(task_type)
        if len(self._means) > TYPES_MAX:
            self._means.popitem(last=False)
