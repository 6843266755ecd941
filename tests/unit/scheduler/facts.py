"""Builders of facts, with everything that the scheduler does not read left plain."""

from gyre import records as r
from gyre.ids import group_id, sample_id
from services.scheduler.core import State, apply, decide

LIMITS = r.Limits(wall_s=60.0, turns_max=10, context_tokens_max=1024, output_tokens_max=64)


def task_spec(name: str, size: int = 2, purpose: str = "train", task_type: str = "repair") -> r.TaskSpec:
    return r.TaskSpec(
        task_id=name, task_type=task_type, environment="env", seed=1, limits=LIMITS, purpose=purpose, group_size=size
    )


def submitted(
    index: int, size: int = 2, purpose: str = "train", at_s: float = 0.0, tier: str = "all", task_type: str = "repair"
):
    name = group_id(index)
    spec = task_spec(f"task-{index}", size, purpose, task_type)
    return r.GroupSubmitted(group_id=name, task=spec, tier=tier, at_s=at_s)


def started_run(steps: int, at_s: float = 0.0) -> r.RunStarted:
    return r.RunStarted(steps=steps, fingerprint="f", at_s=at_s)


def leased(execution: str, attempt: int = 1, at_s: float = 0.0) -> r.ExecutionLeased:
    return r.ExecutionLeased(execution_id=execution, group_id=_group(execution), attempt=attempt, holder="g", at_s=at_s)


def running(execution: str, attempt: int = 1, at_s: float = 0.0) -> r.ExecutionStarted:
    return r.ExecutionStarted(
        execution_id=execution, group_id=_group(execution), attempt=attempt, environment="env", image_digest="", seed=1,
        tool_versions={}, dependency_snapshot="", at_s=at_s,
    )  # fmt: skip


def ended(execution: str, attempt: int = 1, ending: str = "completed", lasted_s: float = 1.0, purpose: str = "train",
          task_type: str = "repair", at_s: float = 0.0) -> r.ExecutionEnded:  # fmt: skip
    return r.ExecutionEnded(
        execution_id=execution, group_id=_group(execution), attempt=attempt, task_type=task_type, tenant="default", purpose=purpose,
        ending=ending, reason="submitted", occupancy_s=lasted_s, at_s=at_s,
    )  # fmt: skip


def ready(execution: str, attempt: int = 1, at_s: float = 0.0) -> r.SampleReady:
    return r.SampleReady(
        sample_id=sample_id(execution, attempt), execution_id=execution, group_id=_group(execution), attempt=attempt, task_type="repair",
        tenant="default", reward=1.0, rewards={}, success=True, truncated=False, advantage=0.0, turns=1, tokens_tree=1, tokens_flat=1,
        targets_chosen=1, targets_sampled=1, paths=1, policy_version=0, version_min=0, version_mean=0.0, version_max=0, at_s=at_s,
    )  # fmt: skip


def dropped(execution: str, attempt: int = 1, reason: str = "quota", at_s: float = 0.0) -> r.SampleDropped:
    return r.SampleDropped(
        sample_id=sample_id(execution, attempt), execution_id=execution, group_id=_group(execution), attempt=attempt, task_type="repair",
        tenant="default", reason=reason, at_s=at_s,
    )  # fmt: skip


def extended(step: int, group: str, samples: list[str]) -> r.BatchExtended:
    return r.BatchExtended(
        step=step, group_id=group, sample_ids=samples, micro_ids=[], turns=1, turns_total=1, at_s=0.0
    )


def closed(
    step: int, groups: list[str], samples: list[str], cause: str = "turns", turns: int = 1, turns_target: int = 1
):
    return r.BatchClosed(
        step=step, cause=cause, turns=turns, turns_target=turns_target, groups=groups, sample_ids=samples, micro_ids=[],
        divisor=len(samples), truncated_share=0.0, failed_share={}, no_gradient=False, staleness_mean=0.0, staleness_max=0, at_s=0.0,
    )  # fmt: skip


def updated(step: int, samples: list[str], at_s: float = 0.0) -> r.StepUpdated:
    return r.StepUpdated(
        step=step, version=step + 1, burst=0, sample_ids=samples, micro_cells={}, metrics={}, opened_at_s=0.0, at_s=at_s
    )


def published(version: int, at_s: float = 0.0) -> r.WeightsPublished:
    return r.WeightsPublished(version=version, path="", checksum="", bytes=0, at_s=at_s)


def role(cell: str, change: int, target: str, phase: str, at_s: float = 0.0) -> r.RoleChanged:
    return r.RoleChanged(cell=cell, change=change, target=target, phase=phase, at_s=at_s)


def settle(state: State, now_s: float = 0.0) -> list:
    """Fold decisions until none is left; all of them, in order."""
    made = []
    while decisions := decide(state, now_s):
        made += decisions
        for decision in decisions:
            apply(state, decision)
    return made


def _group(execution: str) -> str:
    return execution.rpartition("-e")[0]
