"""What is exported of the gap between sampler and trainer (C8), as sums that add up over samples, micro-steps and cells.

Keys that begin with `max_` are maxima, those that begin with `age<d>_` are of the tokens that are d steps old. KL estimators k1 and k3: Schulman,
"Approximating KL divergence" (2020), with samples from the behaviour policy: k1 = −log ρ, k3 = ρ − 1 − log ρ (never negative). The gap
(ratio, KL, χ²) is that of every target, also of one that is masked; what enters the gradient (loss, clips, weights) that of kept ones.
"""

from collections.abc import Iterable, Mapping

import torch

from services.trainer.losses.corrections.tis import Weights
from services.trainer.losses.ratios import ratio
from services.trainer.losses.targets import Targets, TokenLoss, sequence_lengths, sum_by

Sums = dict[str, float]

MAXIMUM = "max_"
OUT = {"vetoed": ("veto",), "masked": ("mis_token",), "rejected": ("mis_sequence", "geometric")}
"""Shares of targets by what left them out; a target may be in several."""


def sample_sums(
    logp_N: torch.Tensor,
    targets: Targets,
    masks: Mapping[str, torch.Tensor],
    keep_N: torch.Tensor,
    loss: TokenLoss,
    weights: Weights,
) -> list[Sums]:
    """For each of the M samples: sums over its targets of what `summarise` needs, also split by age in steps.

    `masks` (name → bool[N], True stays) and `keep_N` are of all targets; `loss` (with the norm's share) and `weights` of the kept ones.
    """
    columns = _columns(logp_N, targets, masks, keep_N, loss, weights)
    values_KN = torch.stack(list(columns.values()))
    samples_N, samples = targets.samples_N, targets.samples
    found: list[Sums] = [{} for _ in range(samples)]
    _add(found, "", columns, _by(values_KN, samples_N, samples))
    for key, lengths_S in (
        ("sequences", sequence_lengths(targets)),
        ("kept_sequences", sequence_lengths(targets.where(keep_N))),
    ):
        of_samples_M = sum_by(targets.sample_of_S, (lengths_S > 0).double(), samples)
        _add(found, "", [key], of_samples_M[None])
    gaps_M = values_KN.new_zeros(samples).scatter_reduce(0, samples_N, columns["gap"], "amax")
    _add(found, MAXIMUM, ["gap"], gaps_M[None])
    ages, age_N = targets.ages_N.unique(return_inverse=True)
    by_age_KAM = _by(values_KN, age_N * samples + samples_N, len(ages) * samples).view(len(columns), len(ages), samples)
    for index, age in enumerate(ages.tolist()):
        of_age: list[Sums] = [{} for _ in range(samples)]
        _add(of_age, f"age{age}_", columns, by_age_KAM[:, index])
        for sums, more in zip(found, of_age, strict=True):
            sums |= more if more[f"age{age}_targets"] else {}
    return found


def _columns(
    logp_N: torch.Tensor,
    targets: Targets,
    masks: Mapping[str, torch.Tensor],
    keep_N: torch.Tensor,
    loss: TokenLoss,
    weights: Weights,
) -> dict[str, torch.Tensor]:
    """Name → float64[N]."""
    log_ratio_N = (logp_N - targets.behaviour_N).double()
    ratio_N = ratio(log_ratio_N)
    ones_N, zeros_N = torch.ones_like(ratio_N), torch.zeros_like(ratio_N)

    def of_kept(values: torch.Tensor) -> torch.Tensor:
        return zeros_N.masked_scatter(keep_N, values.double())

    def left_out(names: tuple[str, ...]) -> torch.Tensor:
        out_N = zeros_N
        for name in names:
            out_N = torch.maximum(out_N, (~masks[name]).double() if name in masks else zeros_N)
        return out_N

    weights_N = of_kept(weights.weights_N)
    return {
        "targets": ones_N,
        "kept": keep_N.double(),
        "ratio": ratio_N,
        "ratio2": ratio_N.square(),
        "k1": -log_ratio_N,
        "k3": ratio_N - 1 - log_ratio_N,
        "gap": log_ratio_N.abs(),
        **{name: left_out(by) for name, by in OUT.items()},
        "clipped": of_kept(loss.clipped_N),
        "capped": of_kept(weights.capped_N),
        "weight": weights_N,
        "weight2": weights_N.square(),
        "loss": of_kept(loss.loss_N),
    }


def _by(values_KN: torch.Tensor, index_N: torch.Tensor, size: int) -> torch.Tensor:
    return values_KN.new_zeros(len(values_KN), size).index_add(1, index_N, values_KN)


def _add(found: list[Sums], prefix: str, names: Iterable[str], sums_KM: torch.Tensor) -> None:
    keys = [prefix + name for name in names]
    for sums, values in zip(found, sums_KM.T.tolist(), strict=True):
        sums.update(zip(keys, values, strict=True))


def add_up(many: Iterable[Mapping[str, float]]) -> Sums:
    """Sums of sums, maxima of maxima."""
    total: Sums = {}
    for sums in many:
        for key, value in sums.items():
            total[key] = max(total.get(key, value), value) if key.startswith(MAXIMUM) else total.get(key, 0.0) + value
    return total


def summarise(sums: Mapping[str, float]) -> dict[str, float]:
    """Means over target tokens, of the whole and by age (`age<d>_…`); `ess` is Kish's effective share (Σw)² / (n Σw²) of the truncated
    importance weights of the n kept tokens, `chi2` = E ρ² − 1."""
    if not sums.get("targets"):
        return {"targets": 0.0}
    found = _means(sums, "") | {
        "ratio_mean": sums["ratio"] / sums["targets"],
        "logprob_gap_max": sums["max_gap"],
        "sequences": sums["sequences"],
    }
    ages = [key.removesuffix("targets") for key in sums if key.startswith("age") and key.endswith("_targets")]
    for age in ages:
        if sums[f"{age}targets"]:
            found |= _means(sums, age)
    return found


def _means(sums: Mapping[str, float], prefix: str) -> dict[str, float]:
    def of(name: str) -> float:
        return sums[prefix + name]

    count, kept = of("targets"), max(1.0, of("kept"))
    means = {
        "targets": count,
        "kept_share": of("kept") / count,
        **{f"{name}_share": of(name) / count for name in OUT},
        "clipped_share": of("clipped") / kept,
        "capped_share": of("capped") / kept,
        "kl_k1": of("k1") / count,
        "kl_k3": of("k3") / count,
        "chi2": of("ratio2") / count - 1,
        "ess": of("weight") ** 2 / (kept * of("weight2")) if of("weight2") else 0.0,
        "logprob_gap_mean": of("gap") / count,
    }
    return {prefix + name: value for name, value in means.items()}
