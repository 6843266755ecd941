"""Targets by hand and by hypothesis, and a batch's loss as the trainer makes it: forwards, sums, divisor."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from gyre.config import TrainerConfig
from services.trainer.core.divisor import divisor
from services.trainer.core.events import Batch
from services.trainer.losses import OBJECTIVES, policy_loss
from services.trainer.losses.metrics import Sums, add_up
from services.trainer.losses.targets import Targets

BEHAVIOUR = -1.0
MASKS = ("mis_token", "mis_sequence", "geometric", "veto")
NORMS = ("execution", "token", "sequence", "constant")


@dataclass(frozen=True)
class Token:
    log_ratio: float
    advantage: float = 1.0
    sequence: int = 0
    sample: int = 0
    age: int = 0


def tokens(
    log_ratios: Sequence[float], advantages: Sequence[float] | float = 1.0, sequences=None, samples=None, ages=None
):
    """One Token for each log ratio; what is not given is 0, or 1.0 for advantages."""
    count = len(log_ratios)
    advantages = [advantages] * count if isinstance(advantages, int | float) else advantages
    zeros = [0] * count
    columns = (log_ratios, advantages, sequences or zeros, samples or sequences or zeros, ages or zeros)
    return [Token(*values) for values in zip(*columns, strict=True)]


def targets_of(given: Sequence[Token]) -> tuple[torch.Tensor, Targets]:
    """(logp_N with gradient, Targets); behaviour log-probability −1 everywhere. Sequence numbers are the tests' own, any integers."""
    samples = sorted({token.sample for token in given})
    sequences = sorted({(token.sample, token.sequence) for token in given})
    logp_N = torch.tensor([BEHAVIOUR + token.log_ratio for token in given], requires_grad=True)
    return logp_N, Targets(
        behaviour_N=torch.full((len(given),), BEHAVIOUR),
        advantages_N=torch.tensor([float(token.advantage) for token in given]),
        sequences_N=torch.tensor(
            [sequences.index((token.sample, token.sequence)) for token in given], dtype=torch.long
        ),
        ages_N=torch.tensor([token.age for token in given], dtype=torch.long),
        sample_of_S=torch.tensor([samples.index(sample) for sample, _ in sequences], dtype=torch.long),
        samples=len(samples),
    )


@dataclass(frozen=True)
class Trained:
    """A batch through one or several forwards."""

    loss: float
    gradient: dict[int, float]
    """Position of the token in the batch → ∂ loss / ∂ its log-probability, divided."""
    divisor: float
    by_sample: dict[int, Sums]


def train(
    given: Sequence[Token], config: TrainerConfig, forwards: Sequence[Sequence[int]] | None = None,
    untrained: tuple[int, int, int] = (0, 0, 0),
) -> Trained:  # fmt: skip
    """`forwards`: positions of the tokens of each forward, whole samples; by default all in one. `untrained`: (executions, targets,
    sequences) without gradient."""
    loss, gradient, seen = 0.0, {}, {}
    for positions in forwards if forwards is not None else [range(len(given))]:
        chosen = [given[position] for position in positions]
        logp_N, targets = targets_of(chosen)
        part, sums = policy_loss(logp_N, targets, config)
        part.backward()
        loss += part.item()
        gradient |= dict(zip(positions, logp_N.grad.tolist(), strict=True))
        for sample, of_sample in zip(sorted({token.sample for token in chosen}), sums, strict=True):
            seen.setdefault(sample, []).append(of_sample)
    by_sample = {sample: add_up(many) for sample, many in seen.items()}
    executions = len(by_sample) + untrained[0]
    batch = Batch(("m0",), tuple(f"s{sample}" for sample in by_sample), executions, *untrained[1:])
    by = divisor(config.norm, config.norm_constant, batch, by_sample)
    return Trained(loss / by, {position: value / by for position, value in gradient.items()}, by, by_sample)


def configuration(objective: str, norm: str = "execution", corrections: Sequence[str] = (), **more) -> TrainerConfig:
    constant = 10 if norm == "constant" else 0
    return TrainerConfig(objective=objective, norm=norm, norm_constant=constant, corrections=list(corrections), **more)


@st.composite
def configurations(draw, norms: Sequence[str] = NORMS) -> TrainerConfig:
    """Every objective, norm, proximal policy, and combination of corrections that is allowed."""
    objective = draw(st.sampled_from(sorted(OBJECTIVES)))
    corrections = draw(st.lists(st.sampled_from(MASKS), unique=True))
    if objective in ("policy_gradient", "gspo", "decoupled_ppo"):
        corrections += draw(st.sampled_from([[], ["tis_token"], ["tis_sequence"]]))
    proximal = draw(st.sampled_from(["current", "interpolated"]))
    return configuration(objective, draw(st.sampled_from(norms)), draw(st.permutations(corrections)), proximal=proximal)


LOG_RATIOS = st.sampled_from([-12.0, -1.5, -0.3, -0.08, -0.004, 0.0, 0.003, 0.05, 0.25, 1.1, 2.0])
"""Clear of the ends of every band and clip, where rounding would decide."""


@st.composite
def batches(draw, log_ratios=LOG_RATIOS):
    """1 to 14 tokens of up to 3 samples with up to 3 sequences each, in any order."""
    token = st.builds(
        Token, log_ratio=log_ratios, advantage=st.sampled_from([-2.0, -0.5, 0.0, 1.0, 1.5]), sequence=st.integers(0, 2),
        sample=st.integers(0, 2), age=st.integers(0, 4),
    )  # fmt: skip
    return draw(st.lists(token, min_size=1, max_size=14))
