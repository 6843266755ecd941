"""The state in the words of the contract."""

from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from services.scheduler.admission import tenant_queue_max
from services.scheduler.core import State
from services.scheduler.core.queue import promotions


def describe(state: State) -> pb.GetStateResponse:
    """The state as operators and tests see it; `refused_transitions` also counts what fenced attempts said."""
    return pb.GetStateResponse(
        cells=[
            pb.CellState(cell=name, target=cell.target, phase=cell.phase, changes=max(0, cell.change))
            for name, cell in state.cells.items()
        ],
        waterlevel=state.waterlevel, capacity=state.capacity, policy_version=state.published_version, burst=state.burst,
        outstanding_groups=state.outstanding_groups, queued_groups=len(state.queue) + len(state.evaluations),
        steps_done=state.steps_done, steps_wanted=state.steps_wanted, dispatched=state.dispatched, finished=state.finished,
        executions_by_state={str(name): count for name, count in state.executions_by_state.items() if count},
        refused_transitions={**state.refused, **({"fenced": state.fenced} if state.fenced else {})},
    )  # fmt: skip


def queues(state: State, now_s: float) -> pb.GetQueuesResponse:
    """Every configured tier, whether anything waits in it or not."""
    waited: dict[str, float] = {}
    promoted: dict[str, int] = {}
    for group in state.queue.groups.values():
        waited[group.tier] = max(waited.get(group.tier, 0.0), now_s - group.submitted_at_s)
        promoted[group.tier] = promoted.get(group.tier, 0) + promotions(group, state.settings, now_s)
    tiers = []
    for tier in state.settings.tiers:
        tenants = state.queue.waiting_by_tenant.get(tier.name, {})
        tiers.append(
            pb.TierQueue(
                tier=tier.name, waiting_groups=state.queue.waiting_by_tier.get(tier.name, 0), queue_max=tier.queue_max,
                unfinished_executions=state.active_by_tier.get(tier.name, 0), concurrency_max=tier.concurrency_max,
                wait_s_max=waited.get(tier.name, 0.0), promotions=promoted.get(tier.name, 0), waiting_by_tenant=tenants,
                queue_max_by_tenant={name: tenant_queue_max(state.settings, tier.name, name) for name in tenants},
            )
        )  # fmt: skip
    return pb.GetQueuesResponse(tiers=tiers, evaluations=len(state.evaluations))
