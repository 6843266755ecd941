"""An execution's calls, cut where a milestone was first verified (D3), and what each segment is paid (D5).

    delivered calls   1   2   3   4   5   6   7   8   9
    first verified            a           b   c
    segments         [1   2   3] [4   5   6] [7   8   9]      (c comes one call after b: less than the minimum of 2)

A turn is a call whose reply the harness got, counted from 1 in the order in which calls began. Every other call (of a sub-agent, or one
whose reply was lost) belongs to the segment in whose range of call indices it lies.

Milestones pay by potential shaping: F = γΦ(s′) − Φ(s), Φ = Σ w_m·[verified, once], Φ(terminal) = 0 (Ng, Harada & Russell 1999, theorem 1:
what is optimal without shaping is optimal with it). Over a segment of n calls the calls' payments, each discounted to its beginning,
telescope to γⁿΦ_after − Φ_before, also for a milestone in the middle of it.
"""

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

State = tuple[str, ...]
"""Names of the milestones verified so far, sorted: all that is known of where an execution stands."""


def cut(turns: Collection[int], calls: int, shortest: int, longest: int) -> list[int]:
    """Turns after which a milestone was first verified → lengths of the segments, which sum to `calls`.

    Each length is in [shortest, longest] if 2·shortest ≤ longest + 1, but for an execution of fewer than `shortest` calls, which is one segment.
    """
    wanted = sorted(turn for turn in set(turns) if shortest <= turn <= calls - shortest)
    lengths, start = [], 0
    while True:
        end = next((turn for turn in wanted if shortest <= turn - start <= longest), None)
        if end is None:
            if calls - start <= longest:
                return [*lengths, calls - start]
            end = max(start + 1, min(start + longest, calls - shortest))
        lengths.append(end - start)
        start = end


def states(milestone_turns: Mapping[str, int], lengths: Collection[int]) -> list[State]:
    """What was verified at the beginning of each segment: K states. What held before the first call (turn 0) is no progress and left out."""
    found, done = [], 0
    for length in lengths:
        found.append(tuple(sorted(name for name, turn in milestone_turns.items() if 0 < turn <= done)))
        done += length
    return found


def potential(state: State, weights: Mapping[str, float]) -> float:
    """Φ of a state."""
    return sum(weights.get(name, 0.0) for name in state)


def segment_rewards(
    before: Collection[State], lengths: Collection[int], weights: Mapping[str, float], reward: float, gamma: float
) -> npt.NDArray:
    """R_k, float64[K]: shaped milestone payments, and in the last segment the execution's reward, paid for its last call."""
    phi = np.array([potential(state, weights) for state in before] + [0.0])
    n = np.asarray(lengths, np.float64)
    paid = gamma**n * phi[1:] - phi[:-1]
    paid[-1] += gamma ** max(n[-1] - 1.0, 0.0) * reward
    return paid
