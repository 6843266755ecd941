"""What is exported of the gap between sampler and trainer (C8), as sums that add up over rows, micro-steps and cells.

Keys that begin with `max_` are maxima. KL estimators k1 and k3: Schulman, "Approximating KL divergence" (2020), with samples
from the behaviour policy: k1 = −log ρ, k3 = ρ − 1 − log ρ (never negative).
"""

from collections.abc import Iterable, Mapping

import torch

from services.trainer.losses.targets import Targets, TokenLoss

Sums = dict[str, float]

MAXIMUM = "max_"


def row_sums(logp_N: torch.Tensor, loss: TokenLoss, keep_N: torch.Tensor, targets: Targets) -> list[Sums]:
    """For each of the R rows: sums over its targets of what `summarise` needs, also split by age in steps."""
    log_ratio_N = (logp_N - targets.behaviour_N).double()
    ratio_N = log_ratio_N.exp()
    columns = {
        "targets": torch.ones_like(ratio_N),
        "ratio": ratio_N,
        "ratio2": ratio_N.square(),
        "k1": -log_ratio_N,
        "k3": ratio_N - 1 - log_ratio_N,
        "gap": log_ratio_N.abs(),
        "clipped": loss.clipped_N.double(),
        "vetoed": (~keep_N).double(),
        "loss": targets.weights_N.double() * torch.where(keep_N, loss.loss_N, 0.0),
    }
    stacked_KN = torch.stack(list(columns.values()))
    sums_KR = stacked_KN.new_zeros(len(columns), targets.rows).index_add(1, targets.rows_N, stacked_KN)
    found = [dict(zip(columns, column, strict=True)) for column in sums_KR.T.tolist()]
    max_R = stacked_KN.new_zeros(targets.rows).scatter_reduce(0, targets.rows_N, log_ratio_N.abs(), "amax")
    for sums, gap in zip(found, max_R.tolist(), strict=True):
        sums["max_gap"] = gap
    for age in targets.ages_N.unique().tolist():
        of_age_N = (targets.ages_N == age).double()
        for key in ("targets", "k1", "k3", "clipped"):
            by_row_R = stacked_KN.new_zeros(targets.rows).index_add(0, targets.rows_N, columns[key] * of_age_N)
            for sums, value in zip(found, by_row_R.tolist(), strict=True):
                sums[f"age{age}_{key}"] = value
    return found


def add_up(many: Iterable[Mapping[str, float]]) -> Sums:
    """Sums of sums, maxima of maxima."""
    total: Sums = {}
    for sums in many:
        for key, value in sums.items():
            total[key] = max(total.get(key, value), value) if key.startswith(MAXIMUM) else total.get(key, 0.0) + value
    return total


def summarise(sums: Mapping[str, float]) -> dict[str, float]:
    """Means over target tokens; `ess` is the effective share (Σρ)² / (N Σρ²), `chi2` = E ρ² − 1."""
    count = sums.get("targets", 0.0)
    if not count:
        return {"targets": 0.0}
    found = {
        "targets": count,
        "ratio_mean": sums["ratio"] / count,
        "clipped_share": sums["clipped"] / count,
        "vetoed_share": sums["vetoed"] / count,
        "kl_k1": sums["k1"] / count,
        "kl_k3": sums["k3"] / count,
        "chi2": sums["ratio2"] / count - 1,
        "ess": sums["ratio"] ** 2 / (count * sums["ratio2"]) if sums["ratio2"] else 0.0,
        "logprob_gap_mean": sums["gap"] / count,
        "logprob_gap_max": sums["max_gap"],
    }
    for key in [key for key in sums if key.startswith("age") and key.endswith("_targets") and sums[key]]:
        age, of_age = key.removesuffix("_targets"), sums[key]
        found[key] = of_age
        for name, out in (("k1", "kl_k1"), ("k3", "kl_k3"), ("clipped", "clipped_share")):
            found[f"{age}_{out}"] = sums[f"{age}_{name}"] / of_age
    return found
