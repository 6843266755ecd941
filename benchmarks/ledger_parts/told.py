"""A run as the ledger hears of it: groups of eight executions, some lost and tried again, some sampled by two weight versions."""

from gyre import records as r
from gyre.ids import call_id, execution_id, group_id, micro_id, sample_id

RUN = "bench"
GROUPS, GROUPS_PER_STEP, MEMBERS, CALLS, TOKENS = 48, 16, 8, 20, 64
TENANTS, TASK_TYPES = 20, 12
LOST_EVERY = 10
"""Every tenth execution had an attempt that was lost after a quarter of its calls."""
TWO_VERSIONS_EVERY = 3
"""Every third was sampled by two weight versions."""
LIMITS = r.Limits(wall_s=600, turns_max=50, context_tokens_max=4096, output_tokens_max=TOKENS)


def told(first: int = 0, groups: int = GROUPS) -> list[r.Fact]:
    """What a run says of `groups` groups from number `first` on, in the order of their steps."""
    facts: list[r.Fact] = []
    for index in range(first, first + groups):
        group, step = group_id(index), index // GROUPS_PER_STEP
        members = [execution_id(group, member) for member in range(MEMBERS)]
        task = r.TaskSpec(task_id=f"task-{index}", task_type=f"type-{index % TASK_TYPES}", environment="repair", seed=index,
                          group_size=MEMBERS, limits=LIMITS, tenant=f"tenant-{index % TENANTS}")  # fmt: skip
        facts.append(r.GroupSubmitted(group_id=group, task=task, tier="all", at_s=step))
        facts.append(r.GroupDispatched(group_id=group, execution_ids=members, task_type=task.task_type, tenant=task.tenant, purpose="train",
                                       tier="all", policy_version=step, queue_wait_s=1.0, promotions=0, at_s=step))  # fmt: skip
        samples = []
        for member, execution in enumerate(members):
            number = index * MEMBERS + member
            attempts = 2 if number % LOST_EVERY == 0 else 1
            for attempt in range(1, attempts + 1):
                calls = CALLS if attempt == attempts else CALLS // 4
                facts += _attempt(execution, group, attempt, calls, step, number % TWO_VERSIONS_EVERY == 0, task)
            samples.append(sample_id(execution, attempts))
            facts.append(_ready(samples[-1], execution, group, attempts, step, task))
        micro = micro_id(step, group, 0)
        facts.append(
            r.BatchExtended(
                step=step, group_id=group, sample_ids=samples, micro_ids=[micro], turns=160, turns_total=160, at_s=step
            )
        )
        facts.append(_updated(index, step, samples, micro))
    return facts


def _attempt(execution, group, attempt, calls, version, has_two, task) -> list[r.Fact]:
    sample = sample_id(execution, attempt)
    facts: list[r.Fact] = [
        r.ExecutionLeased(execution_id=execution, group_id=group, attempt=attempt, holder="gateway", at_s=version),
        r.ExecutionStarted(execution_id=execution, group_id=group, attempt=attempt, environment="repair", image_digest="sha256:11", seed=7,
                           tool_versions={"python": "3.11"}, dependency_snapshot="none", at_s=version),
    ]  # fmt: skip
    for index in range(calls):
        by = version + (has_two and index >= calls // 2)
        facts.append(r.CallRecorded(
            call_id=call_id(sample, index), execution_id=execution, group_id=group, attempt=attempt, call_index=index, purpose="train",
            parent=call_id(sample, index - 1) if index else "", parent_tokens=TOKENS * index, prompt_delta=b"", prompt_tokens=TOKENS * index,
            output_ids=r.pack([1] * TOKENS, "int32"), logprobs=b"", versions=r.pack([by] * TOKENS, "int32"), finish_reason="stop",
            sampling=r.Sampling(temperature=1.0, top_p=1.0, max_tokens=TOKENS, seed=1), cells=["cell-0"], at_s=version,
        ))  # fmt: skip
    facts.append(r.ExecutionEnded(
        execution_id=execution, group_id=group, attempt=attempt, task_type=task.task_type, tenant=task.tenant, purpose="train", ending="completed",
        reason="submitted", evaluation=None, turns=calls, tokens_sampled=TOKENS * calls, calls=calls, external_calls=calls, occupancy_s=30.0 * calls,
        policy_version=version, leased_at_s=version, started_at_s=version, at_s=version + 30.0 * calls,
    ))  # fmt: skip
    return facts


def _ready(sample, execution, group, attempt, version, task) -> r.SampleReady:
    return r.SampleReady(
        sample_id=sample, execution_id=execution, group_id=group, attempt=attempt, task_type=task.task_type, tenant=task.tenant, reward=1.0,
        rewards={"outcome": 1.0}, success=True, truncated=False, advantage=0.5, turns=CALLS, tokens_tree=CALLS * TOKENS, tokens_flat=CALLS * TOKENS,
        targets_chosen=CALLS * TOKENS, targets_sampled=CALLS * TOKENS, paths=1, policy_version=version, version_min=version, version_mean=version,
        version_max=version, at_s=version + 30.0 * CALLS + 2,
    )  # fmt: skip


def _updated(index: int, step: int, samples: list[str], micro: str) -> r.StepUpdated:
    """One update a group, so that each is complete for itself; only the numbers of steps differ from a real run's."""
    metrics = {"compute_s": 40.0, "targets": float(len(samples) * CALLS * TOKENS)}
    seen = {sample: {"targets": float(CALLS * TOKENS), "tokens": float(CALLS * TOKENS)} for sample in samples}
    return r.StepUpdated(step=index, version=index + 1, burst=0, sample_ids=samples, micro_cells={micro: "cell-0"}, metrics=metrics, opened_at_s=step,
                         at_s=step + 3, sample_metrics=seen)  # fmt: skip
