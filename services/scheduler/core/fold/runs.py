"""The run, its boundaries, its cells, and groups up to their dispatch."""

from gyre import records as r
from services.scheduler.core import boundary
from services.scheduler.core.groups import Execution, Group
from services.scheduler.core.settings import Knobs
from services.scheduler.core.state import State, bump

TASKS_REMEMBERED = 200_000
"""For submitters that say a task again: far more than any of them can have on its way."""
FORGOTTEN_AT_ONCE = 2


def _run_started(state: State, fact: r.RunStarted) -> None:
    if fact.steps <= state.steps_wanted:
        return
    if state.steps_left == 0:  # inside a burst the next publish is the next boundary, and sees the new end
        state.started_at_s = state.boundary_at_s = fact.at_s
    state.steps_wanted = fact.steps


def _weights_published(state: State, fact: r.WeightsPublished) -> None:
    """A burst is over. What its boundary could not send is counted anew at the next."""
    if fact.version <= state.published_version:
        return
    if state.history.updated_at_s > 0.0:
        state.history.published(fact.at_s)
    state.published_version = fact.version
    state.steps_done = max(state.steps_done, fact.version)
    state.groups_per_step = boundary.smoothed(state)
    state.burst_groups, state.burst_steps = 0.0, 0
    state.boundary_at_s = fact.at_s
    state.need, state.core_stays = 0, False


def _burst_opened(state: State, fact: r.BurstOpened) -> None:
    if fact.burst < state.bursts:
        return
    state.bursts = fact.burst + 1
    state.opened_step, state.burst_end = fact.first_step, fact.first_step + fact.steps
    state.need, state.carry = fact.need_groups, fact.carry_groups
    state.level = state.outstanding_groups + fact.need_groups
    state.sent_groups = state.releases = state.evaluations.sent = 0
    state.core_stays = fact.core_stays
    state.knobs = Knobs(
        steps_per_publish=state.planned.steps_per_publish, extra_depth_steps=fact.extra_depth_steps, release_share=fact.release_share,
        is_two_way=fact.is_two_way, order=state.planned.order,
    )  # fmt: skip


def _plan_chosen(state: State, fact: r.PlanChosen) -> None:
    if fact.plan <= state.plans:
        return
    state.plans = fact.plan
    state.planned = Knobs(
        steps_per_publish=fact.steps_per_publish, extra_depth_steps=fact.extra_depth_steps, release_share=fact.release_share,
        is_two_way=fact.is_two_way, order=fact.order,
    )  # fmt: skip


def _role_changed(state: State, fact: r.RoleChanged) -> None:
    cell = state.cells.get(fact.cell)
    before = (cell.change, cell.target, cell.burst) if cell else (-1, "rollout", -1)
    if not state.fleet.role_changed(fact):
        return
    if cell.kind == "elastic" and fact.change > before[0] >= 0:
        is_in = fact.target == "training"
        state.releases += is_in - (before[1:] == ("training", state.burst))
        if cell.position == 0 and is_in:
            state.entered_step = state.steps_done
        elif cell.position == 0:
            state.was_in_vain = state.entered_step == state.steps_done
    state.pace.to(fact.at_s, state.fleet.trainers)
    state.history.to(fact.at_s, state.waterlevel, state.capacity)


def _cell_reported(state: State, fact: r.CellReported) -> None:
    state.fleet.reported(fact)
    state.pace.to(fact.at_s, state.fleet.trainers)
    state.history.to(fact.at_s, state.waterlevel, state.capacity)


def _alarm_raised(state: State, fact: r.AlarmRaised) -> None:
    if fact.service == "scheduler":
        state.alarms[fact.kind] = max(fact.at_s, state.alarms.get(fact.kind, fact.at_s))


def _group_submitted(state: State, fact: r.GroupSubmitted) -> None:
    if fact.task.task_id in state.group_of_task:
        return
    state.group_of_task[fact.task.task_id] = fact.group_id
    state.num_submitted += 1
    group = Group(group_id=fact.group_id, task=fact.task, tier=fact.tier, submitted_at_s=fact.at_s)
    if group.is_trained:
        state.queue.push(group, state.settings, state.estimates)
    else:
        state.evaluations.push(group)
    _forget_tasks(state)


def _forget_tasks(state: State) -> None:
    """The oldest, so that memory does not grow with the run; one whose group is not over counts as new again. Two at a time make up for more than
    the one that has come."""
    known = state.group_of_task
    for _ in range(FORGOTTEN_AT_ONCE):
        if len(known) <= TASKS_REMEMBERED:
            return
        task_id = next(iter(known))
        group_id = known.pop(task_id)
        if not state.is_over(group_id):
            known[task_id] = group_id


def _group_dispatched(state: State, fact: r.GroupDispatched) -> None:
    group = state.queue.remove(fact.group_id) or state.evaluations.remove(fact.group_id)
    if group is None:
        return
    group.policy_version = fact.policy_version
    group.dispatched_at_s = fact.at_s
    group.attempt_base = fact.attempt_base
    group.executions = {execution: Execution() for execution in fact.execution_ids}
    group.num_active = len(group.executions)
    state.groups[group.group_id] = group
    state.dispatched_groups += 1
    state.dispatched += group.num_active
    state.history.to(fact.at_s, state.waterlevel, state.capacity)
    bump(state.active_by_tier, group.tier, group.num_active)
    state.promotions += fact.promotions
    if group.is_trained:
        state.queue.charge(group, state.settings, state.estimates)
        state.outstanding_groups += 1
        state.untaken_groups += 1
        state.sent_groups += 1
        state.need = max(0, state.need - 1)
    else:
        state.evaluations.dispatched(group)


HANDLERS = {
    r.RunStarted: _run_started,
    r.WeightsPublished: _weights_published,
    r.BurstOpened: _burst_opened,
    r.PlanChosen: _plan_chosen,
    r.RoleChanged: _role_changed,
    r.CellReported: _cell_reported,
    r.AlarmRaised: _alarm_raised,
    r.GroupSubmitted: _group_submitted,
    r.GroupDispatched: _group_dispatched,
}
