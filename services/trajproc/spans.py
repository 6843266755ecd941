"""What an execution's trace says of its time here: waiting for its group, built, waiting for a batch (E).

A trace has no gap between the execution's end and its gradient: the group's wait begins where `execution` ends, the batch's where the group's
ends, and the trainer's `train.wait_for_cell` where the batch's ends.
"""

from gyre.records import BatchExtended, SampleReady
from gyre.telemetry import emit_span
from services.trajproc.core.state import Group


def built(group: Group, record: SampleReady, began_s: float, ended_s: float) -> None:
    """`trajectory.wait_for_group`, with its evaluation and that of the others, and `trajectory.build`."""
    about = {"gyre_execution": record.execution_id, "gyre_sample": record.sample_id, "gyre_group": record.group_id}
    verdict = next(one for one in group.verdicts if one.sample_id == record.sample_id)
    emit_span("trajectory.wait_for_group", verdict.ended.at_s, began_s, record.traceparent, **about)
    emit_span(
        "trajectory.build", began_s, ended_s, record.traceparent, **about,
        gyre_attempt=record.attempt, gyre_paths=record.paths, gyre_tokens_tree=record.tokens_tree,
        gyre_targets=record.targets_chosen, gyre_advantage=record.advantage,
    )  # fmt: skip


def taken(group: Group, record: BatchExtended, taken_s: float) -> None:
    """`trajectory.wait_for_batch` of each of the group's samples that the batch takes."""
    for verdict in group.trainable:
        if verdict.sample_id in record.sample_ids and verdict.ready_at_s:
            emit_span(
                "trajectory.wait_for_batch", verdict.ready_at_s, taken_s, verdict.ended.traceparent,
                gyre_execution=verdict.ended.execution_id, gyre_sample=verdict.sample_id, gyre_group=group.group_id,
                gyre_step=record.step, gyre_policy_age_steps=record.step - group.policy_version,
            )  # fmt: skip
