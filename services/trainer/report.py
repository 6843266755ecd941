"""The fact of an update: which samples were trained, by whom, and what was measured (A5, C8)."""

from collections.abc import Mapping
from dataclasses import dataclass

from gyre.errors import InvariantBroken
from gyre.records import StepUpdated
from services.trainer.core.events import Batch
from services.trainer.gradient import SampleSeen
from services.trainer.losses.metrics import Sums, add_up, summarise

ALWAYS = (
    "loss", "grad_norm", "lr", "ess_factor", "divisor", "tokens", "targets", "kept_share", "clipped_share", "vetoed_share", "kl_k1", "kl_k3",
    "chi2", "ess", "logprob_gap_mean", "logprob_gap_max", "rows", "micro_steps", "cells", "compute_s", "reduce_s", "update_s", "checkpoint_s",
    "no_gradient", "set_aside",
)  # fmt: skip
"""In every StepUpdated.metrics; 0 where a batch had no gradient."""


@dataclass(frozen=True)
class MicroSeen:
    """What a cell reported of one micro-step."""

    cell: str
    samples: Mapping[str, SampleSeen]
    compute_s: float


def trained_samples(batch: Batch, micro_cells: Mapping[str, str], seen: Mapping[str, MicroSeen]) -> dict[str, Sums]:
    """Sample → sums over all its micro-steps, of what was not refused. Raises InvariantBroken unless the gradient is exactly the batch's (A8).

    Micro-steps are compared as multisets; samples without a target (advantage 0) are in the batch and in no micro-step.
    """
    if sorted(micro_cells) != sorted(batch.micro_ids):
        raise InvariantBroken(f"trained {sorted(micro_cells)}, the batch holds {sorted(batch.micro_ids)}")
    strangers = [micro for micro, cell in micro_cells.items() if micro not in seen or seen[micro].cell != cell]
    if strangers:
        raise InvariantBroken(f"no report of {strangers} from the cells that computed them")
    samples = [*batch.sample_ids, *batch.elites]
    if len(set(samples)) != len(samples):
        raise InvariantBroken(f"a sample stands twice in the batch: {sorted(samples)}")
    by_sample: dict[str, list[Sums]] = {sample: [] for sample in samples}
    for micro in micro_cells:
        for sample, what in seen[micro].samples.items():
            if sample not in by_sample:
                raise InvariantBroken(f"{micro} trained {sample}, which is not in the batch")
            by_sample[sample].append(what.sums)
    refused = refused_samples(seen)
    return {sample: add_up(sums) for sample, sums in by_sample.items() if sample not in refused}


def refused_samples(seen: Mapping[str, MicroSeen]) -> dict[str, str]:
    """Sample → why nothing of it is in the gradient."""
    return {name: sample.refused for what in seen.values() for name, sample in what.samples.items() if sample.refused}


def metrics_of(by_sample: Mapping[str, Sums], divisor: float, timed: Mapping[str, float]) -> dict[str, float]:
    """Means over the batch's target tokens; the loss is the batch's (B7)."""
    total = add_up(by_sample.values())
    found = dict.fromkeys(ALWAYS, 0.0) | summarise(total) | timed
    found |= {"loss": total.get("loss", 0.0) / divisor, "divisor": divisor}
    found |= {"tokens": total.get("tokens", 0.0), "rows": total.get("rows", 0.0)}
    return found


def sample_metrics(by_sample: Mapping[str, Sums], divisor: float) -> dict[str, dict[str, float]]:
    """What the trainer saw of each sample that had targets."""
    found = {}
    for sample, sums in by_sample.items():
        if count := sums.get("targets", 0.0):
            found[sample] = {
                "ratio_mean": sums["ratio"] / count, "clipped_share": sums["clipped"] / max(1.0, sums["kept"]), "targets": count,
                "vetoed_share": sums["vetoed"] / count, "kept_share": sums["kept"] / count, "loss_share": sums["loss"] / divisor,
                "tokens": sums["tokens"], "kl_k3": sums["k3"] / count,
            }  # fmt: skip
    return found


def step_updated(
    step: int, burst: int, batch: Batch, micro_cells: Mapping[str, str], by_sample: Mapping[str, Sums],
    divisor: float, timed: Mapping[str, float], opened_at_s: float, at_s: float, refused: Mapping[str, str],
) -> StepUpdated:  # fmt: skip
    return StepUpdated(
        step=step, version=step + 1, burst=burst, sample_ids=list(batch.sample_ids), micro_cells=dict(micro_cells),
        metrics=metrics_of(by_sample, divisor, timed), opened_at_s=opened_at_s, at_s=at_s,
        sample_metrics=sample_metrics(by_sample, divisor), set_aside=dict(refused),
    )  # fmt: skip
