"""From a micro-step's rows to gradients in the policy's accumulators, and what was seen of each sample (A7, B6, B7, B8, C8).

    rows ──check_row──▶ jobs ──forward, loss──▶ finite? ──backward──▶ finite? ──▶ accumulators
              │                                   │                     │
              └───────────────────────────────────┴─────────────────────┴──▶ its samples one by one; what is impossible alone is refused

A job's gradient is added whole or not at all, so what is refused leaves no trace in the accumulators, whatever its rows hold.

Shape legend: N target tokens of one forward; S sequences (calls) and M samples in it.
"""

import math
from collections import deque
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
    refused: str = ""
    """Why nothing of it is in the gradient: its rows, log-probabilities or gradient are impossible. Empty for what is trained."""


GRADIENT_NORM_MAX = 1e15
"""Of one job, undivided. A gradient that is trained is clipped to about 1; from here on the sum of ten thousand could not be squared in float32."""
ADVANTAGE_MAX = 1e6
"""Rewards are at most 1 and groups have at most 1024 members: no credit comes near. A larger one may have no gradient and still spoil the loss."""
REASON_CHARS_MAX = 300
CPU_ALLOCATOR = "DefaultCPUAllocator"
"""In the text of the RuntimeError by which torch says that a CPU's memory is used up."""

Job = list[list[Row]]
"""Forwards of rows (plan_forwards)."""


def check_row(row: Row, vocabulary: int, step: int) -> None:
    """Raises InvalidInput, or ValueError for arrays of no whole number of items, where a row contradicts itself, the model, or the step that it is
    to be trained in."""
    name, length = f"part {row.part}", row.length
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
    if (largest := np.abs(numbers[1]).max(initial=0.0)) > ADVANTAGE_MAX:
        raise InvalidInput(f"{name}: an advantage of {largest:g}; none is beyond {ADVANTAGE_MAX:g}")
    versions = array(row.versions, "int32")
    if versions.min(initial=0) < 0 or versions.max(initial=0) > step:
        raise InvalidInput(f"{name}: sampled by versions {versions.min()} to {versions.max()}, trained in step {step}")


def accumulate(
    policy: Policy, micro: MicroStep, config: TrainerConfig, collected: Collected | None = None
) -> dict[str, SampleSeen]:
    """Add the micro-step's gradient, undivided, to `.grad`; returns sample → what was seen of it, or why it was refused.

    The micro-step holds whole samples. The result does not depend on how these were cut into rows or put into micro-steps and forwards, but
    for floating-point noise. `collected` is told what was made of each token.
    """
    config = config_of(micro, config)
    refused = _impossible_rows(micro, policy.vocabulary)
    rows = [row for row in micro.rows if row.sample_id not in refused]
    sums: dict[str, list[Sums]] = {row.sample_id: [] for row in rows}
    for row in rows:
        sums[row.sample_id].append({"tokens": float(row.length), "rows": 1.0})
    jobs: deque[Job] = deque(plan_forwards(samples_of(rows), config.forward_tokens_max))
    while jobs:
        job = jobs.popleft()
        apart = samples_of([row for rows in job for row in rows])
        try:
            for name, found in _add_job(policy, job, micro.step, config, collected):
                sums[name].append(found)
        except (InvalidInput, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not _is_out_of_memory(error):
                raise
            if collected is not None:
                collected.forget(sample[0].sample_id for sample in apart)
            if len(apart) == 1:
                refused[apart[0][0].sample_id] = str(error)
            else:
                alone = [job for sample in apart for job in plan_forwards([sample], config.forward_tokens_max)]
                jobs.extendleft(reversed(alone))
    traceparents = {row.sample_id: row.traceparent for row in micro.rows}
    return {
        name: SampleSeen({}, traceparent, refused[name][:REASON_CHARS_MAX])
        if name in refused
        else SampleSeen(add_up(sums[name]), traceparent)
        for name, traceparent in traceparents.items()
    }


def _impossible_rows(micro: MicroStep, vocabulary: int) -> dict[str, str]:
    """Sample → what is wrong with a row of it."""
    found: dict[str, str] = {}
    for row in micro.rows:
        try:
            check_row(row, vocabulary, micro.step)
        except ValueError as error:
            found.setdefault(row.sample_id, str(error))
    return found


def _add_job(
    policy: Policy, job: Job, step: int, config: TrainerConfig, collected: Collected | None
) -> list[tuple[str, Sums]]:
    """The job's gradient into the accumulators; for each forward what was seen of each of its samples. Raises InvalidInput, and
    what `_is_out_of_memory` knows; then nothing was added."""
    is_split = len(job) > 1 and config.norm == "execution"
    counts_M = _kept(policy, job, step, config) if is_split else None
    parameters, seen = policy.parameters, []
    total: list[torch.Tensor | None] = [None] * len(parameters)
    for rows in job:
        targets, names = _targets(rows, step, policy.device)
        told = collected.of(rows) if collected is not None else None
        loss, sums_of_samples = policy_loss(policy.target_logprobs(forest_of(rows)), targets, config, counts_M, told)
        for name, sums in zip(names, sums_of_samples, strict=True):
            if not math.isfinite(sums["gap"]) or not math.isfinite(sums["loss"]):
                raise InvalidInput(f"{name}: a log-probability or the loss is not finite")
            seen.append((name, sums))
        parts = torch.autograd.grad(loss, parameters, allow_unused=True)
        total = list(map(_plus, total, parts))
    _check_gradient([part for part in total if part is not None])
    pairs = [(parameter, part) for parameter, part in zip(parameters, total, strict=True) if part is not None]
    # All memory that this takes is had before the first is added. Copies: autograd may give the same tensor for two parameters.
    fresh = {id(parameter): part.clone() for parameter, part in pairs if parameter.grad is None}
    for parameter, part in pairs:
        parameter.grad = fresh[id(parameter)] if parameter.grad is None else parameter.grad.add_(part)
    return seen


def _is_out_of_memory(error: BaseException) -> bool:
    """On a CPU torch has no type of its own for it, and numpy Python's."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or CPU_ALLOCATOR in str(error)


def _plus(one: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    """Sum of two gradients; None is that of a parameter that took no part."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _check_gradient(parts: Sequence[torch.Tensor]) -> None:
    """Raises InvalidInput unless it can be added to others."""
    norms = [torch.linalg.vector_norm(part, dtype=torch.float32) for part in parts]
    norm = torch.stack(norms).norm().item() if norms else 0.0
    if not norm <= GRADIENT_NORM_MAX:
        raise InvalidInput(f"a gradient of norm {norm:g}; at most {GRADIENT_NORM_MAX:g} can be added to others")


def refused_whole(micro: MicroStep, reason: str) -> dict[str, SampleSeen]:
    """What was seen of a micro-step that is not computed."""
    names = micro.sample_ids or list(dict.fromkeys(row.sample_id for row in micro.rows))
    return {name: SampleSeen(refused=reason[:REASON_CHARS_MAX]) for name in names}


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
