"""From a micro-step's rows to gradients in the policy's accumulators, and what was seen of each sample (A7, B6, B7, B8, C8).

Shape legend: N target tokens of one forward; S sequences (calls) and M samples in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import torch

from gyre.config import TrainerConfig
from gyre.errors import InvalidInput
from gyre.records import MicroStep, Row, array
from services.trainer.losses import counts, keep, policy_loss
from services.trainer.losses.metrics import Sums, add_up
from services.trainer.losses.targets import Targets
from services.trainer.model import Policy
from services.trainer.packed.forest import forest_of, joined
from services.trainer.packed.forwards import plan_forwards, samples_of
from services.trainer.tokens import Collected


@dataclass(frozen=True)
class SampleSeen:
    """What one micro-step saw of one sample."""

    sums: Sums = field(default_factory=dict)
    traceparent: str = ""


def check_row(row: Row, vocabulary: int) -> None:
    """Raises InvalidInput for a row whose arrays contradict each other or the model."""
    name, length = f"{row.sample_id} part {row.part}", row.length
    targets = int(row.targets.sum())
    sizes = {at: len(getattr(row, at)) // 4 for at in ("logprobs", "versions", "advantages", "temperatures")}
    if len(row.sequences) != len(row.tokens) or len(row.run_parents) != len(row.run_lengths) or not length:
        raise InvalidInput(f"{name}: {length} tokens, {len(row.sequences) // 4} sequences, {row.runs} runs")
    if any(size != targets for size in sizes.values()):
        raise InvalidInput(f"{name}: {targets} targets, other lengths {sizes}")
    tokens = array(row.tokens, "int32")
    if tokens.min() < 0 or tokens.max() >= vocabulary:
        raise InvalidInput(f"{name}: token ids outside 0 … {vocabulary - 1}")
    try:
        forest = forest_of([row])
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error
    if (forest.before_N < 0).any():
        raise InvalidInput(f"{name}: the first token of a tree is a target, and nothing predicts it")
    if not (array(row.temperatures, "float32") > 0).all():
        raise InvalidInput(f"{name}: a target was drawn at a temperature of 0 or below")
    numbers = [array(getattr(row, at), "float32") for at in ("logprobs", "advantages", "temperatures")]
    if not all(np.isfinite(values).all() for values in numbers):
        raise InvalidInput(f"{name}: log-probabilities, advantages or temperatures are not finite")


def accumulate(
    policy: Policy, micro: MicroStep, config: TrainerConfig, collected: Collected | None = None
) -> dict[str, SampleSeen]:
    """Add the micro-step's gradient, undivided, to `.grad`; returns sample → what was seen of it. Raises InvalidInput.

    The micro-step holds whole samples. The result does not depend on how these were cut into rows or put into micro-steps and forwards, but
    for floating-point noise. `collected` is told what was made of each token.
    """
    for row in micro.rows:
        check_row(row, policy.vocabulary)
    config = config_of(micro, config)
    sums: dict[str, list[Sums]] = {row.sample_id: [] for row in micro.rows}
    for row in micro.rows:
        sums[row.sample_id].append({"tokens": float(row.length), "rows": 1.0})
    for job in plan_forwards(samples_of(micro.rows), config.forward_tokens_max):
        is_split = len(job) > 1 and config.norm == "execution"
        counts_M = _kept(policy, job, micro.step, config) if is_split else None
        for rows in job:
            targets, names = _targets(rows, micro.step, policy.device)
            told = collected.of(rows) if collected is not None else None
            loss, sums_of_samples = policy_loss(
                policy.target_logprobs(forest_of(rows)), targets, config, counts_M, told
            )
            loss.backward()
            for name, found in zip(names, sums_of_samples, strict=True):
                sums[name].append(found)
    traceparents = {row.sample_id: row.traceparent for row in micro.rows}
    return {name: SampleSeen(add_up(found), traceparents[name]) for name, found in sums.items()}


def config_of(micro: MicroStep, config: TrainerConfig) -> TrainerConfig:
    """The objective of a micro-step: the run's; what the elite store replays is from far older policies, where a clipped ratio would be nearly all
    clipped, so it is the policy gradient with truncated importance weights by token, under the run's masks (D9)."""
    if not micro.is_elite:
        return config
    masks = [name for name in config.corrections if not name.startswith("tis_")]
    return msgspec.structs.replace(config, objective="policy_gradient", corrections=[*masks, "tis_token"])


def _kept(policy: Policy, job: Sequence[Sequence[Row]], step: int, config: TrainerConfig) -> torch.Tensor:
    """[1] kept targets of a sample that fits in no one forward: masks and vetoes act before any denominator is taken."""
    total_M = torch.zeros(1, device=policy.device)
    with torch.no_grad():
        for rows in job:
            targets, _ = _targets(rows, step, policy.device)
            total_M += counts(keep(policy.target_logprobs(forest_of(rows)), targets, config), targets)
    return total_M


def _targets(rows: Sequence[Row], step: int, device: torch.device) -> tuple[Targets, list[str]]:
    """What is on record of the rows' targets, in the order of the forest; and the M samples' names."""
    names = list(dict.fromkeys(row.sample_id for row in rows))
    samples_T = np.repeat([names.index(row.sample_id) for row in rows], [row.length for row in rows])
    calls_T = joined(rows, "sequences", "int32").astype(np.int64)
    targets_N = np.flatnonzero(calls_T >= 0)
    # a call's index is its sample's own; sequences are counted over all samples of the forward
    keys_N = samples_T[targets_N] * (calls_T.max() + 1) + calls_T[targets_N]
    first_S, sequences_N = np.unique(keys_N, return_index=True, return_inverse=True)[1:]

    def of_targets(name: str, dtype: str) -> torch.Tensor:
        return torch.from_numpy(joined(rows, name, dtype)).to(device)

    targets = Targets(
        behaviour_N=of_targets("logprobs", "float32"),
        advantages_N=of_targets("advantages", "float32"),
        sequences_N=torch.from_numpy(sequences_N).to(device),
        ages_N=step - of_targets("versions", "int32").long(),
        sample_of_S=torch.from_numpy(samples_T[targets_N][first_S]).to(device),
        samples=len(names),
    )
    return targets, names
