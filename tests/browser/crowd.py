"""A run of many executions as facts: groups in order, versions rising, every seventh execution sampled by an older version."""

from gyre import records as r
from gyre.ids import call_id, execution_id, group_id, sample_id

MEMBERS, CALLS, GROUPS_PER_STEP = 8, 3, 25
STEP_S = 20.0
LIMITS = r.Limits(wall_s=600, turns_max=50, context_tokens_max=4096, output_tokens_max=64)


def crowd(executions: int) -> list[r.Fact]:
    """`executions` trained ones."""
    facts: list[r.Fact] = []
    groups = executions // MEMBERS
    for step in range((groups + GROUPS_PER_STEP - 1) // GROUPS_PER_STEP):
        at_s = 1000.0 + step * STEP_S
        members = []
        for index in range(step * GROUPS_PER_STEP, min((step + 1) * GROUPS_PER_STEP, groups)):
            facts += _group(index, max(0, step - 1), at_s)
            members += [sample_id(execution_id(group_id(index), member), 1) for member in range(MEMBERS)]
        facts += _step(step, members, at_s + 1.5 * STEP_S)
    return facts


def _group(index: int, version: int, at_s: float) -> list[r.Fact]:
    group = group_id(index)
    members = [execution_id(group, member) for member in range(MEMBERS)]
    task = r.TaskSpec(
        task_id=f"task-{index}",
        task_type=f"type-{index % 3}",
        environment="e",
        seed=index,
        limits=LIMITS,
        group_size=MEMBERS,
    )
    facts: list[r.Fact] = [
        r.GroupSubmitted(group_id=group, task=task, tier="all", at_s=at_s - 1),
        r.GroupDispatched(group_id=group, execution_ids=members, task_type=task.task_type, tenant="default", purpose="train", tier="all",
                          policy_version=version, queue_wait_s=1.0, promotions=0, at_s=at_s),
    ]  # fmt: skip
    for member, execution in enumerate(members):
        facts += _execution(group, execution, index * MEMBERS + member, version, at_s, task.task_type)
    return facts


def _execution(group: str, execution: str, number: int, version: int, at_s: float, task_type: str) -> list[r.Fact]:
    begin_s = at_s + 0.05 * (number % 150)
    took_s = 3.0 + (number * 37 % 97) / 10
    sample = sample_id(execution, 1)
    own = {"execution_id": execution, "group_id": group, "attempt": 1}
    facts: list[r.Fact] = [
        r.ExecutionLeased(**own, holder="gateway", at_s=begin_s),
        r.ExecutionStarted(
            **own,
            environment="e",
            image_digest="sha256:11",
            seed=7,
            tool_versions={},
            dependency_snapshot="",
            at_s=begin_s,
        ),
    ]
    for index in range(CALLS):
        by = max(0, version - 4) if number % 7 == 0 else version + (index == CALLS - 1 and number % 3 == 0)
        facts.append(r.CallRecorded(
            call_id=call_id(sample, index), **own, call_index=index, purpose="train", parent=call_id(sample, index - 1) if index else "",
            parent_tokens=0, prompt_delta=b"", prompt_tokens=8 * index, output_ids=r.pack([1] * 8, "int32"), logprobs=b"",
            versions=r.pack([by] * 8, "int32"), finish_reason="stop", sampling=r.Sampling(temperature=1.0, top_p=1.0, max_tokens=8, seed=1),
            cells=[f"cell-{number % 4}"], started_at_s=begin_s + took_s * index / CALLS, first_token_at_s=begin_s + took_s * index / CALLS + 0.1,
            at_s=begin_s + took_s * (index + 0.8) / CALLS,
        ))  # fmt: skip
    facts.append(r.ExecutionEnded(
        **own, task_type=task_type, tenant="default", purpose="train", ending="completed", reason="submitted", evaluation=None, turns=CALLS,
        tokens_sampled=8 * CALLS, calls=CALLS, external_calls=CALLS, occupancy_s=took_s, policy_version=version, leased_at_s=begin_s,
        started_at_s=begin_s, at_s=begin_s + took_s,
    ))  # fmt: skip
    facts.append(r.SampleReady(
        sample_id=sample, **own, task_type=task_type, tenant="default", reward=0.5, rewards={}, success=True, truncated=False, advantage=0.1,
        turns=CALLS, tokens_tree=24, tokens_flat=24, targets_chosen=24, targets_sampled=24, paths=1, policy_version=version,
        version_min=max(0, version - 4) if number % 7 == 0 else version, version_mean=float(version), version_max=version + 1,
        at_s=begin_s + took_s + 0.1,
    ))  # fmt: skip
    return facts


def _step(step: int, members: list[str], at_s: float) -> list[r.Fact]:
    return [
        r.BatchClosed(
            step=step, cause="turns", turns=len(members) * CALLS, turns_target=len(members) * CALLS, groups=[], sample_ids=members, micro_ids=[],
            divisor=len(members), truncated_share=0.0, failed_share={}, no_gradient=False, staleness_mean=1.0, staleness_max=1, at_s=at_s - 2,
        ),
        r.StepUpdated(step=step, version=step + 1, burst=step, sample_ids=members, micro_cells={}, metrics={"loss": 0.1}, opened_at_s=at_s - 2,
                      at_s=at_s),
        r.WeightsPublished(version=step + 1, path="w", checksum="c", bytes=1, at_s=at_s + 0.1),
    ]  # fmt: skip
