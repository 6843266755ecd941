"""From executions to batches."""

from typing import Annotated, Literal

from msgspec import Meta

from gyre.config.sections.base import NotNegative, Positive, Seconds, Section, Share


class TrajprocConfig(Section):
    """From executions to batches (B3–B7, C5, C8–C10)."""

    turns_per_step: Positive = 320
    """A batch is complete when its executions have made this many model calls (C5); plan it as B·N·turns of one execution."""
    wait_s: Seconds = 3600.0
    """How long a batch waits for more groups once it has begun; then `missing` says what becomes of what has not arrived."""
    missing: Literal["later", "wait", "truncate", "drop"] = "later"
    """Policy for executions that have not arrived when the wait is over (C5). later: the batch closes without them (cause `wait`), they go into a
    later one. wait: it stays open, with an alarm each `wait_s`. truncate: they are told to finish and are scored on what they left behind, inside
    `truncated_share_max`. drop: they are voided and dropped, reason `wait`. Both favour short executions, which `later` and `wait` do not."""
    missing_grace_s: Seconds = 120.0
    """truncate, drop: how long a batch waits for those it told to end; what has not ended by then goes into a later one."""
    paths_max: NotNegative = 5
    """J_max: candidate paths trained of one execution (B5). 0: all of them. Fewer cost less and leave more that was sampled untrained: in the paper
    1 takes 41 % of the uncapped time and trains worse, with larger gradients; 5 takes 75 % and scores as uncapped."""
    class_order: Annotated[tuple[Literal["main", "main-summary", "sub-agent", "sub-agent-summary"], ...], Meta(min_length=1)] = (
        "main", "main-summary", "sub-agent", "sub-agent-summary",
    )  # fmt: skip
    """Classes of calls, the first trained first (B5). A class left out is never trained; its tokens stay context of those that are."""
    snapshot_facts: Positive = 50_000
    """Facts between two snapshots of the processor's state: what a restart folds again at most."""
    keep_trees: bool = True
    """Keep each sample's tree in the run's folder (B3) for `gyre tree`: about 4 bytes a token and 4 more a sampled one. false: nothing is kept."""
    advantage: Literal["group", "group_std", "group_median", "leave_one_out", "max_rl", "optimal", "reward", "zero"] = (
        "group"
    )
    """Advantage of an execution within its group (B7). group: reward − mean; group_std: divided by the deviation (GRPO); group_median: reward −
    median; leave_one_out: reward − mean of the others (RLOO); max_rl: divided by the mean, for outcomes 0 and 1; optimal: baseline weighted by
    length (OPO); reward: no baseline; zero: none at all (a control that must not learn)."""
    baseline_masked: bool = True
    """Whether executions that are kept from the gradient (nothing to train; truncated where `truncated_share_max` is 0) are in the baseline."""
    baseline_fallback: Literal["none", "running"] = "none"
    """Baseline where a group cannot give one, as all its rewards are equal or one stands alone (D9). none: no gradient. running: the mean reward
    of its task type's executions up to now, in units of reward, so an `advantage` that is not (group_std, max_rl) is refused. A group that
    succeeds throughout is then reinforced as well, and one that fails throughout is not lost."""
    baseline_memory: Positive = 256
    """Executions that the running mean remembers. Few: it is as noisy as a group; many: it lags behind a policy that learns."""
    credit: Literal["execution", "turn", "segment", "fusion"] = "execution"
    """What a call is credited with (D3). execution: its execution's advantage; turn, segment: generalised advantage estimate of its turn or of
    its segment, which ends where a milestone was first verified; fusion: κ·execution + (1 − κ)·segment."""
    segment_calls_min: Positive = 1
    """Shortest segment in model calls: a milestone that comes sooner ends no segment, and is paid in the one it falls into. 1: every one ends one."""
    segment_calls_max: Positive = 32
    """Longest segment; at least 2·segment_calls_min − 1. Without milestones an execution is cut by this alone; large: one segment."""
    gamma: Share = 1.0
    """Discount by model call inside an execution (turn, segment, fusion). 1: none, as outcomes at the end want it; 0.99 halves after 69 calls."""
    lambda_scale: Annotated[float, Meta(ge=0.0)] = 1.0
    """a of λ = 1 − 1/(a·segments), at least 0 (VAPO). Large: the outcome reaches back to the first segment; small: only the next value does.
    0: λ = 1, nothing is bootstrapped, the critic is a baseline and no more."""
    fusion_spread: Annotated[float, Meta(ge=0.0)] = 0.1
    """s_0 of κ = s_R/(s_R + s_0), s_R the group's reward deviation (0.5 where half of it succeed). 0: segments speak only where all rewards are
    equal; large: segments alone. Segment advantages are in units of reward, so an `advantage` that is not (group_std, max_rl) is refused."""
    critic: Literal["zero", "group_mean", "group_state", "tabular"] = "tabular"
    """Values where segments begin (D6). zero: the milestones' potential is the value; group_mean: the group's mean return; group_state: of
    those of the group that stood at the same milestones (GiGPO); tabular: running mean by task type and milestones verified, over groups."""
    critic_memory: Positive = 64
    """Visits that a running mean of `tabular` remembers. 1: the newest only; large: old policies' returns stay in it."""
    milestone_share: Share = 0.3
    """Part of the total reward that milestones can pay; the outcome pays the rest (D5)."""
    milestones_gated: list[str] = []
    """Task types whose milestones pay beside a verified success only (D5): where reaching them is worth nothing by itself, as half an answer is."""
    outcome_counts: bool = True
    """false: the environment has no outcome that it can verify; what it says is on record and pays nothing, so a required rule evaluator must."""
    learned_alone: bool = False
    """true: learned and dense evaluators may be the whole reward where neither an outcome nor a required rule counts. Such a policy learns to
    please one model (D4), and nothing tells."""
    gaming_window: NotNegative = 512
    """Newest executions of a task type that are watched for reward gaming (D4). Fewer: blind to slow drift; more: three numbers each; 0: not
    watched."""
    age_steps_max: Positive = 8
    """Hard cap on a sample's age (step − v_d) when it is trained; older ones are dropped and counted (C8)."""
    truncated_share_max: Share = 0.5
    """Line for the share of timed-out (truncated) executions in a batch; what exceeds it is dropped and counted, reason `truncated` (C5)."""
    failed_share_max: Share = 1.0
    """Share of unsuccessful samples kept in a batch for a task type that `failed_share_by_type` does not name (C10)."""
    failed_share_by_type: dict[str, Share] = {}
    """Task type → share of unsuccessful samples kept."""
    no_gradient_alarm: Positive = 2
    """Batches without any gradient in a row that raise an alarm (C10)."""
    micro_tokens: Positive = 4096
    """Token budget of one micro-step. A larger sample is a micro-step of its own."""
    row_tokens_max: Positive = 8192
    """Longest packed row (B8), or as long as the longest context. A larger subtree is cut into several, each of which computes its prefix again: as
    much as trainer.forward_tokens_max has memory for."""
    elite_share: Share = 0.0
    """Executions of the elite store that are trained again beside a batch, as a share of its own (D9). 0: there is no store. More: solutions
    that were found are held on to, and less of each step is the present policy's."""
    elite_count_max: Positive = 256
    """Executions that the elite store holds."""
    elite_bytes_max: Positive = 256 * 1024 * 1024
    """Bytes of their rows, on disk."""
