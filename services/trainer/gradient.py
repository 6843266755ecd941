"""From a micro-step's rows to gradients in the policy's accumulators, and what was seen of each sample (A7, B6, B7, C8).

Shape legend: B rows of one padded batch, length T; N target tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from gyre.config import TrainerConfig
from gyre.errors import InvalidInput
from gyre.records import MicroStep, Row, array
from services.trainer.core.plan import batches_by_length
from services.trainer.losses import policy_loss
from services.trainer.losses.metrics import Sums, add_up
from services.trainer.losses.targets import Targets
from services.trainer.model import Policy

PADDED_TOKENS_MAX = 8192
"""Tokens of one forward and backward, padding included: bounds memory whatever the micro-step's size."""


@dataclass(frozen=True)
class SampleSeen:
    """What one micro-step saw of one sample."""

    sums: Sums = field(default_factory=dict)
    traceparent: str = ""


def check_row(row: Row, vocabulary: int) -> None:
    """Raises InvalidInput for a row whose arrays contradict each other or the model."""
    length = row.length
    sizes = {name: len(getattr(row, name)) // 4 for name in ("tokens", "logprobs", "versions", "advantages", "weights")}
    if any(size != length for size in sizes.values()):
        raise InvalidInput(f"{row.sample_id} path {row.path}: {length} targets, other lengths {sizes}")
    tokens, targets = array(row.tokens, "int32"), array(row.targets, "uint8")
    if length and (tokens.min() < 0 or tokens.max() >= vocabulary):
        raise InvalidInput(f"{row.sample_id} path {row.path}: token ids outside 0 … {vocabulary - 1}")
    if length and targets[0]:
        raise InvalidInput(f"{row.sample_id} path {row.path}: the first token is a target, and nothing predicts it")
    if not row.temperature > 0:
        raise InvalidInput(f"{row.sample_id} path {row.path}: temperature {row.temperature}")
    numbers = [array(getattr(row, name), "float32") for name in ("logprobs", "advantages", "weights")]
    if not all(np.isfinite(values).all() for values in numbers):
        raise InvalidInput(f"{row.sample_id} path {row.path}: log-probabilities, advantages or weights are not finite")


def accumulate(policy: Policy, micro: MicroStep, config: TrainerConfig) -> dict[str, SampleSeen]:
    """Add the micro-step's gradient, undivided, to `.grad`; returns sample → what was seen of it. Raises InvalidInput.

    The result does not depend on how rows were put into micro-steps or padded batches, but for floating-point noise.
    """
    for row in micro.rows:
        check_row(row, policy.vocabulary)
    rows = [row for row in micro.rows if any(row.targets)]
    seen = {row.sample_id: SampleSeen(traceparent=row.traceparent) for row in micro.rows}
    for batch in batches_by_length([row.length for row in rows], PADDED_TOKENS_MAX):
        chosen = [rows[index] for index in batch]
        loss, sums_of_rows = _loss(policy, chosen, micro.step, config)
        loss.backward()
        for row, sums in zip(chosen, sums_of_rows, strict=True):
            sums |= {"tokens": float(row.length), "rows": 1.0}
            seen[row.sample_id] = SampleSeen(add_up([seen[row.sample_id].sums, sums]), row.traceparent)
    return seen


def _loss(policy: Policy, rows: Sequence[Row], step: int, config: TrainerConfig) -> tuple[torch.Tensor, list[Sums]]:
    ids_BT = _padded(rows, "tokens", "int32").long()
    mask_BT = _padded(rows, "targets", "uint8").bool()
    ids_BT, mask_BT = ids_BT.to(policy.device), mask_BT.to(policy.device)
    temperature_B = torch.tensor([row.temperature for row in rows], device=policy.device)
    logp_N = policy.target_logprobs(ids_BT, mask_BT, temperature_B)

    def of_targets(name: str, dtype: str) -> torch.Tensor:
        return _padded(rows, name, dtype).to(policy.device)[mask_BT]

    # Each row is a sequence, and stands for its sample: |U_e| comes with its weights, since the sample may have more rows elsewhere.
    rows_N = mask_BT.nonzero()[:, 0]
    counts_B = torch.ones(len(rows), device=policy.device)
    counts_B[rows_N] = 1.0 / of_targets("weights", "float32")
    targets = Targets(
        behaviour_N=of_targets("logprobs", "float32"),
        advantages_N=of_targets("advantages", "float32"),
        sequences_N=rows_N,
        ages_N=(step - of_targets("versions", "int32")).long(),
        sample_of_S=torch.arange(len(rows), device=policy.device),
        samples=len(rows),
    )
    return policy_loss(logp_N, targets, config, counts_B)


def _padded(rows: Sequence[Row], name: str, dtype: str) -> torch.Tensor:
    """[B, T], zeros on the right."""
    padded = np.zeros((len(rows), max(row.length for row in rows)), dtype=array(b"", dtype).dtype)
    for index, row in enumerate(rows):
        padded[index, : row.length] = array(getattr(row, name), dtype)
    return torch.from_numpy(padded)
