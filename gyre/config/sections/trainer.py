"""Optimizer, objective, publishing."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gyre.config.sections.base import NotNegative, Positive, Section, Share

Decay = Annotated[float, Meta(ge=0, lt=1)]
Band = tuple[Annotated[float, Meta(ge=0)], Annotated[float, Meta(ge=0)]]
Correction = Literal["tis_token", "tis_sequence", "mis_token", "mis_sequence", "geometric", "veto"]
HAVE_THE_RATIO = ("cispo", "aipo", "grpo")
"""Objectives that carry the token's importance ratio in themselves."""


class TrainerConfig(Section):
    """Optimizer, objective, publishing (A2, A7, A8, C8)."""

    objective: Literal["policy_gradient", "cispo", "aipo", "grpo", "gspo", "decoupled_ppo"] = "gspo"
    """Policy objective (docs/losses.md). gspo: clip of the whole call's ratio, the paper's for stale data and long outputs; cispo, aipo: truncated
    importance weight on the log-probability, keeps every token's gradient; grpo: clip of the token's ratio; decoupled_ppo: clip around
    `proximal`; policy_gradient: no ratio but what `corrections` bring."""
    lr: Annotated[float, Meta(gt=0, le=100)] = 1e-4
    """Learning rate of AdamW."""
    lr_warmup_steps: NotNegative = 0
    """Steps over which the learning rate rises linearly."""
    lr_final_share: Share = 1.0
    """Share of `lr` that is left at the run's last step; it falls linearly after the warm-up. 1 keeps it constant."""
    weight_decay: Annotated[float, Meta(ge=0)] = 0.0
    """Decoupled weight decay."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """AdamW's running-average coefficients."""
    grad_norm_max: Annotated[float, Meta(gt=0)] = 1.0
    """Gradients are clipped to this norm."""
    corrections: list[Correction] = msgspec.field(default_factory=lambda: ["veto"])
    """For the gap between sampler and trainer, in any order. Weights: tis_token, tis_sequence (for policy_gradient, gspo, decoupled_ppo; the last
    two take tis_token by themselves). Masks: mis_token (`token_band`), mis_sequence (`sequence_band`), geometric (`geometric_band`), veto
    (`veto_ratio`): what they leave out counts in no denominator. The veto alone costs nothing while sampler and trainer agree; with []
    everything that was sampled is trusted."""
    norm: Literal["execution", "token", "sequence", "constant"] = "execution"
    """What has the same say: every execution (B7), token, or model call; constant divides by executions · `norm_constant`. Under `token` a long
    execution outweighs many short ones, under `execution` a long one's tokens weigh little each."""
    norm_constant: NotNegative = 0
    """Tokens that the summed loss of an execution is divided by under the norm `constant` (Dr. GRPO); its longest possible output
    (tasks.turns_max · tasks.output_tokens_max) makes no execution weigh more than under `execution`. 0 under every other norm."""
    ess_min: Share = 0.5
    """Effective share of the importance weights below which the step size shrinks with its square root: by √(ess / ess_min), continuous at the
    line (as VCPO, arXiv 2602.17616). 0: never; 1: any spread of the weights costs some step size."""
    ratio_max: Annotated[float, Meta(ge=1)] = 5.0
    """Cap of importance weights (truncated importance sampling), of a token or of a sequence. 1 never weights anything up; very large: no
    truncation."""
    clip_low: Annotated[float, Meta(ge=0)] = 0.0
    """Ratio clip below 1 (gspo, grpo, decoupled_ppo). 0: the objective's own: gspo .005, the others .2. From 1 on there is no lower clip."""
    clip_high: Annotated[float, Meta(ge=0)] = 0.0
    """Ratio clip above 1, likewise."""
    proximal: Literal["current", "interpolated"] = "interpolated"
    """decoupled_ppo's proximal policy. interpolated: between sampler and policy by the token's age (A-3PO); current: the policy itself, so that
    nothing is clipped."""
    token_band: Band = (0.5, 5.0)
    """mis_token keeps tokens whose ratio is inside (IcePop's band). [0, ratio_max] is the one-sided mask of masked importance sampling."""
    sequence_band: Band = (0.0, 5.0)
    """mis_sequence keeps sequences the product of whose ratios is inside. A lower end above 0 leaves out most long sequences."""
    geometric_band: Band = (0.9, 1.1)
    """geometric keeps sequences the geometric mean of whose ratios is inside, whatever their length. [0.999, 1.001] is for engines that differ in
    arithmetic only; wider lets staleness through."""
    veto_ratio: Annotated[float, Meta(gt=0, lt=1)] = 1e-4
    """veto leaves out a sequence with any token ratio below this. Towards 1 every sequence that the policy has come to like less goes."""
    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    """CPU threads of one trainer cell, and of the warm start. More than the cores that are free make small models many times slower."""
    device: str = "cpu"
    """Where a trainer cell computes."""
    forward_tokens_max: Positive = 8192
    """Tokens of one forward and backward: bounds memory whatever the micro-step's size (a single longer row is taken alone). A sample with more is
    computed twice, first without gradient for what its denominators count."""
    claim_s: Annotated[float, Meta(ge=0.5)] = 10.0
    """A claimed micro-step whose cell is silent for this long goes to another cell. Far below a second a busy cell is taken for dead."""
    checkpoints_kept: Positive = 3
    """Newest checkpoints that are kept on disk, and newest published weights (3 of these at least)."""
    token_log: bool = True
    """Write what was made of each target token (log-probability, in the gradient or not, clipped or not) to tokens/ of the run's folder, for the
    trace explorer: 5 bytes a token. False where nobody will look at single tokens."""

    def __post_init__(self) -> None:
        """Raises ValueError (a ConfigError with its place when it comes from a file) for settings that contradict each other."""
        if problems := contradictions(self):
            raise ValueError("; ".join(problems))


def contradictions(trainer: TrainerConfig) -> list[str]:
    """Each with what would be possible."""
    problems = []
    weights = [name for name in trainer.corrections if name.startswith("tis_")]
    if len(set(trainer.corrections)) < len(trainer.corrections):
        problems.append(f"corrections {trainer.corrections} names one twice: name each once")
    if len(set(weights)) > 1:
        problems.append("corrections tis_token and tis_sequence are two weights for one gap: name one")
    if weights and trainer.objective in HAVE_THE_RATIO:
        problems.append(
            f"corrections {weights[0]} would weight {trainer.objective} by the ratio a second time: leave it out, or set objective "
            "policy_gradient, gspo or decoupled_ppo; the masks (mis_token, mis_sequence, geometric, veto) fit every objective"
        )
    for name in ("token_band", "sequence_band", "geometric_band"):
        low, high = getattr(trainer, name)
        if not low < high:
            problems.append(f"{name} [{low:g}, {high:g}] is empty: its lower end must be below its upper end")
        elif not low <= 1.0 <= high:
            problems.append(
                f"{name} [{low:g}, {high:g}] leaves out tokens sampled by the very policy that is trained: 1 must be inside"
            )
    if trainer.norm == "constant" and not trainer.norm_constant:
        problems.append(
            "norm constant needs norm_constant, in tokens: tasks.turns_max · tasks.output_tokens_max is the usual one"
        )
    if trainer.norm != "constant" and trainer.norm_constant:
        problems.append(f"norm_constant {trainer.norm_constant} is for norm constant: with norm {trainer.norm} it is 0")
    return problems
