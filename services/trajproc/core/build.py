"""One member of a complete group → its sample: tree, chosen paths, rows, and the facts about it."""

from gyre.config import TrajprocConfig
from gyre.records import ExecutionEnded, SampleDropped, SampleReady
from services.trajproc.core.elite import key_of
from services.trajproc.core.rows import make_rows, sequences_of, targets_of, tokens_sampled, version_range
from services.trajproc.core.sampling import choose_paths
from services.trajproc.core.scoring import repeated_share
from services.trajproc.core.state import Group, Sample, Verdict

SEGMENTS_SHOWN_MAX = 64
"""Segments of which the fact about a sample says the advantage; their number is said in any case."""


def build_sample(group: Group, verdict: Verdict, config: TrajprocConfig, now_s: float) -> Sample:
    """Token work happens here and only here; the same records give the same rows."""
    ended = verdict.ended
    member = group.members[ended.execution_id]
    tree = member.tree(config.class_order)
    paths = choose_paths(tree, verdict.sample_id, config.paths_max, config.class_order)
    advantages_C = verdict.credit.of([call.call_index for call in tree.calls])
    rows = make_rows(
        tree, paths, verdict.sample_id, advantages_C, config.row_tokens_max, ended.traceparent, config.class_order
    )
    oldest, mean, newest = version_range(tree)
    ready = SampleReady(
        sample_id=verdict.sample_id,
        execution_id=ended.execution_id,
        group_id=group.group_id,
        attempt=ended.attempt,
        task_type=group.task_type,
        tenant=group.tenant,
        reward=verdict.reward,
        rewards=verdict.rewards,
        success=verdict.success,
        truncated=ended.ending == "timed_out",
        advantage=verdict.advantage,
        segments=len(verdict.credit.starts),
        kappa=verdict.credit.kappa,
        segment_starts=list(verdict.credit.starts[:SEGMENTS_SHOWN_MAX]),
        segment_advantages=list(verdict.credit.advantages[:SEGMENTS_SHOWN_MAX]),
        turns=ended.turns,
        tokens_tree=tree.tokens_unique,
        tokens_flat=tree.tokens_flat,
        targets_chosen=targets_of(tree, paths, config.class_order),
        sequences_chosen=sequences_of(tree, paths, config.class_order),
        targets_sampled=tokens_sampled(tree),
        paths=len(paths),
        policy_version=group.policy_version,
        version_min=oldest,
        version_mean=mean,
        version_max=newest,
        at_s=now_s,
        traceparent=ended.traceparent,
        origin=verdict.origin,
        elite_key=key_of(group.task_id or group.group_id, rows) if config.elite_share > 0 and verdict.success else "",
        repeated_share=repeated_share(member.sound),
    )
    return Sample(ready, rows, tree, [path.leaf for path in paths])


def dropped(
    ended: ExecutionEnded,
    sample_id: str,
    reason: str,
    now_s: float,
    step: int = -1,
    age_steps: int = 0,
    detail: str = "",
) -> SampleDropped:
    """What leaves training, with what it cost."""
    return SampleDropped(
        sample_id=sample_id,
        execution_id=ended.execution_id,
        group_id=ended.group_id,
        attempt=ended.attempt,
        task_type=ended.task_type,
        tenant=ended.tenant,
        reason=reason,
        detail=detail or ended.detail,
        step=step,
        age_steps=age_steps,
        waited_s=max(0.0, now_s - ended.at_s),
        turns=ended.turns,
        tokens=ended.tokens_sampled,
        occupancy_s=ended.occupancy_s,
        at_s=now_s,
        traceparent=ended.traceparent,
    )
