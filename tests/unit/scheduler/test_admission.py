"""Back-pressure: tiers and tenants have their bounds, and who is refused is told when to come again (C1)."""

import msgspec
import pytest

from gyre.config import TierConfig
from gyre.errors import Overloaded
from services.scheduler.admission import RETRY_MAX_S, RETRY_MIN_S, Admission, retry_after_s, tenant_queue_max
from services.scheduler.core import Settings, State, apply
from services.scheduler.describe import queues
from tests.unit.scheduler import facts

SETTINGS = Settings(
    cells=1,
    cell_capacity=8,
    groups_per_step=1,
    steps_per_publish=1,
    extra_depth_steps=0.0,
    tiers=(TierConfig(queue_max=8),),
)
SHARED = msgspec.structs.replace(SETTINGS, tenant_weights={"a": 2.0, "b": 1.0})


def task(index: int, tenant: str = "default", purpose: str = "train"):
    return msgspec.structs.replace(facts.submitted(index, purpose=purpose).task, tenant=tenant)


def submit(state: State, index: int, tenant: str, at_s: float = 0.0) -> None:
    apply(state, msgspec.structs.replace(facts.submitted(index, at_s=at_s), task=task(index, tenant)))


def test_without_weights_a_tenant_may_have_the_whole_tier():
    state = State(SETTINGS)
    for index in range(6):
        submit(state, index, "a")
    admission = Admission(state, 0.0)
    for index in (6, 7):
        admission.admit(task(index, "a"), "all")
    with pytest.raises(Overloaded, match="tier `all` is full: 8 groups wait"):
        admission.admit(task(8, "b"), "all")
    admission.admit(task(9, purpose="evaluation"), "all")


def test_with_weights_one_tenant_cannot_fill_a_tier():
    """Eight places by weights 2, 1 and 1 for all others: 4, 2 and 2."""
    assert [tenant_queue_max(SHARED, "all", name) for name in ("a", "b", "x")] == [4, 2, 2]
    state = State(SHARED)
    for index in range(4):
        submit(state, index, "a")
    admission = Admission(state, 0.0)
    with pytest.raises(Overloaded, match="tenant `a` has 4 groups waiting"):
        admission.admit(task(4, "a"), "all")
    admission.admit(task(5, "b"), "all")
    admission.admit(task(6, "x"), "all")


def test_tenants_that_are_not_named_have_one_share_together():
    """C1: of eight places 4 are kept for `a` and 2 for `b`, however many others there are and in however many requests they come; so of
    evaluations. Whatever they do, there is room for who is named."""
    state = State(SHARED)
    submit(state, 0, "x0")
    admission = Admission(state, 0.0)
    admission.admit(task(1, "x1"), "all")
    for index in range(2, 5):
        with pytest.raises(
            Overloaded,
            match=r"the tenants that scheduler.tenant_weights does not name have 2 groups waiting .* their share",
        ):
            admission.admit(task(index, f"x{index}"), "all")
    for index, tenant in enumerate("aaaabb", 10):
        admission.admit(task(index, tenant), "all")

    state = State(msgspec.structs.replace(SHARED, evaluations_max=16))
    apply(state, msgspec.structs.replace(facts.submitted(0), task=task(0, "x0", "evaluation")))
    admission = Admission(state, 0.0)
    admission.admit(task(1, "x1", "evaluation"), "all")
    with pytest.raises(
        Overloaded, match=r"does not name have 4 executions of evaluations .* of 4 that are their share"
    ):
        admission.admit(task(2, "x2", "evaluation"), "all")
    admission.admit(task(3, "b", "evaluation"), "all")


def test_the_hint_grows_with_the_burst_and_is_bounded():
    state = State(SETTINGS)
    state.boundary_at_s = 1000.0
    assert retry_after_s(state, 1001.0) == RETRY_MIN_S
    assert retry_after_s(state, 1040.0) == 10.0
    assert retry_after_s(state, 9999.0) == RETRY_MAX_S


def test_queues_are_told_by_tier_and_tenant():
    """Of three groups one has waited past the first aging boundary and one past the second: 2 + 1 promotions."""
    state = State(SHARED)
    for index, (tenant, at_s) in enumerate([("a", 0.0), ("a", 700.0), ("b", 1250.0)]):
        submit(state, index, tenant, at_s)
    (tier,) = queues(state, 1300.0).tiers
    assert (tier.waiting_groups, tier.queue_max, tier.wait_s_max, tier.promotions) == (3, 8, 1300.0, 3)
    assert dict(tier.waiting_by_tenant) == {"a": 2, "b": 1} and dict(tier.queue_max_by_tenant) == {"a": 4, "b": 2}
