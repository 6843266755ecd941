"""Back-pressure towards submitters: what may wait, for whom there is room, and when to come again (C1)."""

import math

from gyre.errors import Overloaded
from gyre.records import TaskSpec
from services.scheduler.core import Settings, State

RETRY_MIN_S, RETRY_MAX_S = 1.0, 30.0
RETRY_SHARE = 0.25
"""A queue empties at boundaries. Who comes again after this share of the time since the last one is late by at most that share of a burst, however
long bursts are."""
OTHERS_WEIGHT = 1.0
"""Where weights are set, this much of a tier is kept for the tenants that are not named, all together."""


def tenant_queue_max(settings: Settings, tier: str, tenant: str) -> int:
    """Groups that a tenant may have waiting in a tier: all of it while no weights are set, else its share by weight, at least one."""
    return _share(settings, tenant, settings.tier(tier).queue_max)


def tenant_evaluations_max(settings: Settings, tenant: str) -> int:
    """Executions of its evaluations that a tenant may have waiting and unfinished: by weight as in a tier."""
    return _share(settings, tenant, settings.evaluations_max)


def _share(settings: Settings, tenant: str, whole: int) -> int:
    if not settings.tenant_weights:
        return whole
    weights = sum(settings.tenant_weights.values()) + OTHERS_WEIGHT
    return max(1, math.floor(whole * settings.tenant_weights.get(tenant, OTHERS_WEIGHT) / weights))


def retry_after_s(state: State, now_s: float) -> float:
    """When it is worth asking again."""
    return min(RETRY_MAX_S, max(RETRY_MIN_S, RETRY_SHARE * (now_s - state.boundary_at_s)))


class Admission:
    """Counts what one request adds to the queues. `admit` raises Overloaded for the first task for which there is no room."""

    def __init__(self, state: State, now_s: float) -> None:
        self._state = state
        self._now_s = now_s
        self._tiers: dict[str, int] = {}
        self._tenants: dict[tuple[str, str], int] = {}
        self._evaluations: dict[str, int] = {}
        """Tenant → executions of the evaluations that were admitted."""
        self._num_evaluations = 0

    def admit(self, task: TaskSpec, tier: str) -> None:
        if task.purpose == "evaluation":
            self._admit_evaluation(task)
            return
        queue, settings = self._state.queue, self._state.settings
        key = (tier, task.tenant)
        in_tier = queue.waiting_by_tier.get(tier, 0) + self._tiers.get(tier, 0)
        of_tenant = queue.waiting_by_tenant.get(tier, {}).get(task.tenant, 0) + self._tenants.get(key, 0)
        if in_tier >= settings.tier(tier).queue_max:
            self._refuse(f"tier `{tier}` is full: {in_tier} groups wait in it")
        if of_tenant >= tenant_queue_max(settings, tier, task.tenant):
            self._refuse(
                f"tenant `{task.tenant}` has {of_tenant} groups waiting in tier `{tier}`, which is its share of it"
            )
        self._tiers[tier] = self._tiers.get(tier, 0) + 1
        self._tenants[key] = self._tenants.get(key, 0) + 1

    def _admit_evaluation(self, task: TaskSpec) -> None:
        """Where nothing is, a group of any size: it would have to wait for ever."""
        held, settings = self._state.evaluations, self._state.settings
        in_all = held.num_held + self._num_evaluations
        of_tenant = held.held(task.tenant) + self._evaluations.get(task.tenant, 0)
        most, share = settings.evaluations_max, tenant_evaluations_max(settings, task.tenant)
        room = min(most - in_all, share - of_tenant)
        possible = f"a group of {room} would be taken now" if room > 0 else "there is room when some have ended"
        if in_all and in_all + task.group_size > most:
            self._refuse(f"{in_all} executions of evaluations wait or are unfinished, of {most} at most: {possible}")
        if of_tenant and of_tenant + task.group_size > share:
            self._refuse(
                f"tenant `{task.tenant}` has {of_tenant} executions of evaluations waiting or unfinished, of {share} that are its share: {possible}"
            )
        self._num_evaluations += task.group_size
        self._evaluations[task.tenant] = self._evaluations.get(task.tenant, 0) + task.group_size

    def _refuse(self, why: str) -> None:
        raise Overloaded(f"{why}; submit again later", retry_after_s(self._state, self._now_s))
