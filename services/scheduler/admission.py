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
OTHERS = ""
"""Whose places these take; the name of no tenant."""


def tenant_queue_max(settings: Settings, tier: str, tenant: str) -> int:
    """Groups that a tenant may have waiting in a tier, with all others that are not named where it is none that is: all of it while no weights are
    set, else its share by weight, at least one."""
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


def account(settings: Settings, tenant: str) -> str:
    """Whose places a tenant takes: its own, or where weights name others, those of all that are not named: any number of them has one share."""
    return tenant if not settings.tenant_weights or tenant in settings.tenant_weights else OTHERS


def _held(settings: Settings, whose: str, by_tenant: dict[str, int]) -> int:
    if whose != OTHERS:
        return by_tenant.get(whose, 0)
    return sum(count for tenant, count in by_tenant.items() if tenant not in settings.tenant_weights)


class Admission:
    """Counts what one request adds to the queues. `admit` raises Overloaded for the first task for which there is no room."""

    def __init__(self, state: State, now_s: float) -> None:
        self._state = state
        self._now_s = now_s
        self._tiers: dict[str, int] = {}
        self._waiting: dict[tuple[str, str], int] = {}
        """Tier, whose places → groups of theirs, with those that were admitted."""
        self._evaluations: dict[str, int] = {}
        """Whose places → executions of their evaluations, with those that were admitted."""
        self._num_evaluations = 0

    def admit(self, task: TaskSpec, tier: str) -> None:
        if task.purpose == "evaluation":
            self._admit_evaluation(task)
            return
        queue, settings = self._state.queue, self._state.settings
        whose = account(settings, task.tenant)
        key = (tier, whose)
        in_tier = queue.waiting_by_tier.get(tier, 0) + self._tiers.get(tier, 0)
        if key not in self._waiting:
            self._waiting[key] = _held(settings, whose, queue.waiting_by_tenant.get(tier, {}))
        if in_tier >= settings.tier(tier).queue_max:
            self._refuse(f"tier `{tier}` is full: {in_tier} groups wait in it")
        if self._waiting[key] >= tenant_queue_max(settings, tier, task.tenant):
            self._refuse(
                f"{_have(whose)} {self._waiting[key]} groups waiting in tier `{tier}`, which is {_their(whose)} share of it"
            )
        self._tiers[tier] = self._tiers.get(tier, 0) + 1
        self._waiting[key] += 1

    def _admit_evaluation(self, task: TaskSpec) -> None:
        """Where nothing is, a group of any size: it would have to wait for ever."""
        held, settings = self._state.evaluations, self._state.settings
        whose = account(settings, task.tenant)
        if whose not in self._evaluations:
            self._evaluations[whose] = _held(settings, whose, held.waiting_of) + _held(settings, whose, held.unfinished)
        in_all, theirs = held.num_held + self._num_evaluations, self._evaluations[whose]
        most, share = settings.evaluations_max, tenant_evaluations_max(settings, task.tenant)
        room = min(most - in_all, share - theirs)
        possible = f"a group of {room} would be taken now" if room > 0 else "there is room when some have ended"
        if in_all and in_all + task.group_size > most:
            self._refuse(f"{in_all} executions of evaluations wait or are unfinished, of {most} at most: {possible}")
        if theirs and theirs + task.group_size > share:
            self._refuse(
                f"{_have(whose)} {theirs} executions of evaluations waiting or unfinished, of {share} that are {_their(whose)} share: {possible}"
            )
        self._num_evaluations += task.group_size
        self._evaluations[whose] += task.group_size

    def _refuse(self, why: str) -> None:
        raise Overloaded(f"{why}; submit again later", retry_after_s(self._state, self._now_s))


def _have(whose: str) -> str:
    return (
        "the tenants that scheduler.tenant_weights does not name have" if whose == OTHERS else f"tenant `{whose}` has"
    )


def _their(whose: str) -> str:
    return "their" if whose == OTHERS else "its"
