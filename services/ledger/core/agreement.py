"""How far a reward model agrees with people, and what weight that leaves it (D8).

Agreement is pairwise: of all pairs of samples that people order, the share that the model orders the same way; a tie of the model counts half. It
asks nothing of the two scales, which differ. Pairs of n samples share samples and are not independent, so the interval is not that of their number.
Its width is that of `effective` independent pairs: a(1 − a)/Var, the variance of the agreement a by the jackknife over samples (a is a U-statistic
of order two: Efron and Stein 1981), at least n/2 (what disjoint pairs would give, which a U-statistic never falls behind: Hoeffding 1948) and at
most the pairs there are. Then Wilson's interval, which stays inside [0, 1] and does not collapse when all pairs agree:

    (a + z²/2m ± z √(a(1 − a)/m + z²/4m²)) / (1 + z²/m),      m = effective

    weight = clip((low − ½)/(full − ½), 0, 1)

so a model that cannot be told from a coin counts nothing, whatever its agreement happened to be.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Z = 1.96
"""95 %, both sides."""


@dataclass(frozen=True)
class Agreement:
    samples: int
    pairs: int
    """That people order."""
    agreement: float | None
    """None without such a pair."""
    low: float
    high: float
    effective: float
    """Independent pairs that the interval is of."""


def pairwise(people_N: npt.NDArray, model_N: npt.NDArray, kinds_N: npt.NDArray | None = None) -> Agreement:
    """Scores of the same N samples by people (means, where several judged one) and by the model; pairs are of one kind only."""
    people, model = np.asarray(people_N, np.float64), np.asarray(model_N, np.float64)
    wanted = np.sign(people[:, None] - people[None, :])
    said = np.sign(model[:, None] - model[None, :])
    counted = wanted != 0
    if kinds_N is not None:
        counted &= np.asarray(kinds_N)[:, None] == np.asarray(kinds_N)[None, :]
    right_NN = np.where(counted, 0.5 * (1 + wanted * said), 0.0)
    right_N, pairs_N = right_NN.sum(1), counted.sum(1)
    pairs = int(pairs_N.sum()) // 2
    if not pairs:
        return Agreement(len(people), 0, None, 0.0, 1.0, 0.0)
    share = float(right_N.sum() / pairs_N.sum())
    involved = int((pairs_N > 0).sum())
    effective = min(max(_effective(right_N, pairs_N, share), involved / 2), float(pairs))
    return Agreement(len(people), pairs, share, *wilson(share, effective), effective)


def _effective(right_N: npt.NDArray, pairs_N: npt.NDArray, share: float) -> float:
    """a(1 − a)/Var; 0 where the jackknife sees no variance."""
    right, pairs = right_N.sum() / 2, pairs_N.sum() / 2
    left = pairs - pairs_N
    without = np.where(left > 0, (right - right_N) / np.maximum(left, 1), share)[pairs_N > 0]
    n = len(without)
    variance = (n - 1) / n * float(((without - without.mean()) ** 2).sum())
    return share * (1 - share) / variance if variance > 0 else 0.0


def wilson(share: float, count: float, z: float = Z) -> tuple[float, float]:
    """Interval of a share seen in `count` independent trials (Wilson 1927); (0, 1) without any."""
    if count <= 0:
        return 0.0, 1.0
    middle = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    scale = 1 + z * z / count
    # It holds the share itself, which at 0 and 1 rounding could take from it.
    return max(0.0, min(share, (middle - half) / scale)), min(1.0, max(share, (middle + half) / scale))


def weight(low: float, full: float) -> float:
    """What is left of a model's weight; `full`: lower bound from which on nothing is taken from it, over ½."""
    return min(1.0, max(0.0, (low - 0.5) / (full - 0.5)))
