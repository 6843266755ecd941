"""From executions to batches."""

from typing import Literal

from gyre.config.sections.base import Positive, Seconds, Section, Share


class TrajprocConfig(Section):
    """From executions to batches (B3–B7, C5, C8–C10)."""

    turns_per_step: Positive = 320
    """A batch is complete when its executions have made this many model calls (C5); plan it as B·N·turns of one execution."""
    wait_s: Seconds = 3600.0
    """How long a batch waits for more groups once it has begun; then it closes with what is there (cause `wait`)."""
    paths_max: Positive = 5
    """J_max: candidate paths trained of one execution (B5)."""
    advantage: Literal["group", "group_std", "leave_one_out", "zero"] = "group"
    """Baseline by execution within its group; `zero` gives every execution advantage 0 (a control that must not learn)."""
    milestone_share: Share = 0.3
    """Part of the total reward that milestones can pay; the outcome pays the rest (D5)."""
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
    """Token budget of one micro-step."""
