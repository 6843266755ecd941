"""Leases, attempts, fencing (OpenEnv#1143, NeMo-RL#3599), what environments say, keys, routing."""

import pytest

from gyre.errors import Conflict, InvalidInput, NotFound
from gyre.records import Evaluation, Limits, TaskDispatched, TaskSpec
from services.rollout.core.ending import check_ending, check_evaluation
from services.rollout.core.keys import Claims, sign, verify
from services.rollout.core.leases import Attachment, Attempts, LeaseBook, Offer
from services.rollout.core.routing import Routing

LEASE_S = 10.0


def task(execution: str, environment: str = "e", attempt_base: int = 0, wall_s: float = 100.0) -> TaskDispatched:
    limits = Limits(wall_s=wall_s, turns_max=1, context_tokens_max=10, output_tokens_max=5)
    spec = TaskSpec(task_id="t", task_type="x", environment=environment, seed=1, limits=limits)
    return TaskDispatched(
        execution_id=execution,
        group_id="g",
        member=0,
        task=spec,
        tier="all",
        policy_version=0,
        seed=1,
        attempt_base=attempt_base,
    )


def process(name: str, slots: int = 2, environment: str = "e", **running: int) -> Attachment:
    return Attachment(name, environment, slots, 0.0, True, dict(running))


def book(now_s: float = 0.0, attempts: Attempts | None = None) -> LeaseBook:
    return LeaseBook(attempts or Attempts(), LEASE_S, 3, now_s)


def test_a_task_waits_until_an_environment_of_its_name_has_a_free_slot():
    made = book(-100)
    assert made.offer(task("a"), 1, 0)[0] is Offer.PARK
    made.attach(process("p", slots=1), 0)
    assert made.offer(task("b", environment="other"), 1, 0)[0] is Offer.PARK
    assert made.offer(task("a"), 1, 0)[0] is Offer.ASSIGN
    assert made.offer(task("c"), 1, 0)[0] is Offer.PARK
    made.release("a")
    assert made.offer(task("c"), 1, 0)[0] is Offer.ASSIGN


def test_a_redelivery_of_what_still_runs_is_the_same_attempt():
    made = book()
    made.attach(process("p"), 0)
    lease = made.offer(task("a"), 1, 0)[1]
    assert made.offer(task("a"), 2, 1) == (Offer.CONTINUE, lease)
    assert lease.attempt == 1


def test_after_a_restart_an_execution_waits_for_its_environment_and_goes_on_there():
    """State and restarts: the facts say attempt 2 is under way; its environment reconnects within lease_s."""
    attempts = Attempts()
    attempts.leased("a", 2)
    made = book(0, attempts)
    made.attach(process("other"), 0)
    assert made.offer(task("a"), 3, 1)[0] is Offer.PARK
    assert made.attach(process("p", a=2, b=1), 2) == [("b", 1)], "b is not under way: cancel it"
    assert made.find("p", "a", 2) is None, "its words wait for the lease"
    offer, lease = made.offer(task("a"), 3, 3)
    assert (offer, lease.attempt, lease.instance_id) == (Offer.CONTINUE, 2, "p")


def test_after_a_restart_a_full_environment_still_gets_its_leases_back():
    """Both slots of p run what an earlier gateway leased: no slot is free, and yet their tasks must be taken, or no ending is ever heard."""
    attempts = Attempts()
    attempts.leased("a", 1)
    attempts.leased("b", 1)
    made = book(0, attempts)
    assert not made.awaits_leases()
    made.attach(process("p", slots=2, a=1, b=1), 0)
    assert made.free_slots() == 0 and made.awaits_leases()
    made.offer(task("a"), 2, 1)
    assert made.awaits_leases()
    made.offer(task("b"), 2, 1)
    assert not made.awaits_leases()


def test_after_a_restart_without_its_environment_it_is_given_to_another():
    attempts = Attempts()
    attempts.leased("a", 2)
    made = book(0, attempts)
    made.attach(process("other"), 0)
    offer, lease = made.offer(task("a"), 3, LEASE_S + 1)
    assert (offer, lease.attempt) == (Offer.ASSIGN, 3)
    with pytest.raises(Conflict, match="fenced"):
        made.find("other", "a", 2)


def test_a_silent_environment_loses_its_executions_and_a_reconnect_in_time_keeps_them():
    made = book()
    made.attach(process("p"), 0)
    lease = made.offer(task("a"), 1, 0)[1]
    made.detach("p", 5)
    assert made.lost(5 + LEASE_S) == []
    made.attach(process("p", a=1), 12)
    assert made.lost(16) == []
    made.detach("p", 16)
    assert made.lost(16 + LEASE_S + 0.1) == [lease]
    made.release("a")
    made.attach(process("q"), 30)
    assert made.offer(task("a"), 2, 30)[1].attempt == 2


def test_attempts_run_out_and_a_recorded_ending_is_never_run_again():
    made = book(-100)
    made.attach(process("p"), 0)
    for lost in (1, 2, 3):
        offer, lease = made.offer(task("a"), lost, 0)
        assert (offer, lease.attempt) == (Offer.ASSIGN, lost)
        made.attempts.recorded("a", lost)
        made.release("a")
    assert made.offer(task("a"), 4, 0)[0] is Offer.EXHAUSTED, "attempts_max is 3"
    assert made.offer(task("a"), 4, 0, releases=1)[0] is Offer.ASSIGN, "one was given up by command"
    made.release("a")
    assert made.offer(task("a", attempt_base=4), 1, 0)[0] is Offer.ASSIGN, "dispatched anew: it has its attempts again"
    made.attempts.leased("b", 1)
    made.attempts.ended("b", 1)
    assert made.offer(task("b"), 2, 0)[0] is Offer.OVER
    assert made.offer(task("b", attempt_base=1), 1, 0)[0] is Offer.ASSIGN, "dispatched anew after that ending"


def test_deliveries_are_no_attempts():
    """Parked and delivered again over many gateway starts, or going on as one attempt over them, it still has its three attempts."""
    made = book(-100)
    assert made.offer(task("a"), 9, 0)[0] is Offer.PARK, "nobody ever ran it"
    made.attach(process("p"), 0)
    offer, lease = made.offer(task("a"), 10, 0)
    assert (offer, lease.attempt) == (Offer.ASSIGN, 10)
    made.attempts.recorded("a", 10)
    for delivery in range(11, 20):
        assert made.offer(task("a"), delivery, 0) == (Offer.CONTINUE, lease)
        made.attempts.recorded("a", 10)
    made.release("a")
    assert made.offer(task("a"), 20, 0)[0] is Offer.ASSIGN, "one loss of three"


def test_words_of_strangers_and_of_older_attempts_are_refused():
    """OpenEnv#1143: nothing late is taken for something else."""
    made = book()
    made.attach(process("p"), 0)
    made.attach(process("q"), 0)
    lease = made.offer(task("a"), 1, 0)[1]
    other = "q" if lease.instance_id == "p" else "p"
    assert made.find(lease.instance_id, "a", 1) is lease
    for instance, execution, attempt, error in [
        (other, "a", 1, Conflict), (lease.instance_id, "a", 2, Conflict), (lease.instance_id, "z", 1, NotFound)
    ]:  # fmt: skip
        with pytest.raises(error):
            made.find(instance, execution, attempt)


def test_deadlines_are_the_servers_own():
    """Start: 120 s. After Started: wall clock 100 s and a fifth of it for the evaluation."""
    made = book()
    made.attach(process("p", slots=2), 0)
    lease = made.offer(task("a"), 1, 0)[1]
    assert made.overdue(120) == [] and made.overdue(120.1) == [lease]
    lease.started_s = 50
    assert made.overdue(170) == [] and made.overdue(170.1) == [lease]


def test_late_facts_about_older_attempts_change_nothing():
    attempts = Attempts()
    attempts.leased("a", 2)
    attempts.leased("a", 1)
    attempts.ended("a", 1)
    assert attempts.is_current("a", 2) and not attempts.is_current("a", 1)
    attempts.ended("a", 2)
    attempts.leased("a", 2)
    assert attempts.newest("a") == 0


@pytest.mark.parametrize("outcome", [float("nan"), float("inf"), -0.1, 1.1])
def test_scores_out_of_bounds_are_no_scores(outcome):
    with pytest.raises(InvalidInput, match="outcome"):
        check_evaluation(outcome, True, {}, {}, "{}", 1)


@pytest.mark.parametrize(
    "milestones, weights, evidence",
    [
        ({"a": True}, {}, "{}"), ({}, {"a": float("nan")}, "{}"), ({}, {"a": -1.0}, "{}"), ({"a b": True}, {"a b": 0.1}, "{}"),
        ({}, {}, "[]"), ({}, {}, "{"), ({}, {}, '{"x": NaN}'), ({}, {}, '{"x": "' + "y" * 70_000 + '"}'),
        ({str(i): True for i in range(65)}, {str(i): 0.0 for i in range(65)}, "{}"),
    ],
)  # fmt: skip
def test_what_an_environment_sends_is_bounded_and_checked(milestones, weights, evidence):
    with pytest.raises(InvalidInput):
        check_evaluation(1.0, True, milestones, weights, evidence, 1)


@pytest.mark.parametrize("turns", [{"a": -1}, {"a": 2**31 - 1}, {"b": 1}, {str(i): 1 for i in range(65)}])
def test_milestone_turns_are_of_declared_milestones_and_bounded(turns):
    """D3: before the start, beyond any execution, of a milestone without weight, more than are taken."""
    with pytest.raises(InvalidInput, match="milestone"):
        check_evaluation(1.0, True, {}, {"a": 0.1}, "{}", 1, turns)
    assert check_evaluation(1.0, True, {}, {"a": 0.1}, "{}", 1, {"a": 3}).milestone_turns == {"a": 3}


def test_an_environment_that_never_came_up_leaves_a_marked_placeholder():
    """B4."""
    said = check_ending("failed", "environment_error", "x" * 5000, 0, None, has_started=False)
    assert said.evaluation == Evaluation(outcome=0.0, valid=False, placeholder=True)
    assert len(said.detail) == 2000
    for ending, reason in (("completed", "submitted"), ("voided", "x"), ("failed", "No Word")):
        with pytest.raises(InvalidInput):
            check_ending(ending, reason, "", 0, None, has_started=False)


def test_a_key_opens_its_own_attempt_and_no_forged_one():
    claims = Claims(
        execution_id="a", attempt=1, group_id="g", purpose="train", seed=1, temperature=1.0, top_p=1.0, turns_max=1,
        context_tokens_max=1, output_tokens_max=1,
    )  # fmt: skip
    key = sign(claims, b"s" * 32)
    assert verify(key, b"s" * 32) == claims
    payload, _, signature = key.partition(".")
    other = sign(
        Claims(**{f: getattr(claims, f) for f in claims.__struct_fields__} | {"attempt": 2}), b"s" * 32
    ).partition(".")[0]
    for forged in (
        f"{other}.{signature}",
        payload,
        f"{payload}.",
        key[5:],
        key + "x",
        "",
        "gyre-.",
        "gyre-é.x",
        key.upper(),
    ):
        assert verify(forged, b"s" * 32) is None
    assert verify(key, b"t" * 32) is None


def test_sessions_stay_with_their_prefix_spread_when_cold_and_move_to_the_last_cell():
    """A6: the destination that will serve longest is the last in the order of cells."""
    routing = Routing(["cell-0", "cell-1", "cell-2"], capacity=8)
    assert routing.choose("s") is None
    for name in routing.cells:
        routing.set_serving(name, True)
    homes = {f"s{i}": routing.choose(f"s{i}") for i in range(6)}
    assert sorted(homes.values()) == ["cell-0", "cell-0", "cell-1", "cell-1", "cell-2", "cell-2"]
    assert all(routing.choose(session) == home for session, home in homes.items())
    routing.set_serving("cell-0", False)
    moved = [session for session, home in homes.items() if home == "cell-0"]
    assert {routing.choose(session) for session in moved} == {"cell-2"}
    routing.cells["cell-2"].suspected = True
    assert {routing.choose(session) for session in moved} == {"cell-1"}


def test_while_a_pool_is_away_the_cell_that_stays_is_not_buried():
    """A9, colocate with a standalone cell: it takes sessions up to its capacity, who finds no place waits, and goes home when the pool is back."""
    routing = Routing(["cell-0", "cell-1", "cell-2"], capacity=4)
    for name in routing.cells:
        routing.set_serving(name, True)
    homes = {f"s{i}": routing.choose(f"s{i}") for i in range(9)}
    for name in ("cell-0", "cell-1"):
        routing.set_serving(name, False)
    placed = {session: routing.choose(session) for session in homes}
    assert sorted(map(str, placed.values())) == ["None"] * 5 + ["cell-2"] * 4
    assert routing.choose("new") is None
    waiting = [session for session, cell in placed.items() if cell is None]
    routing.forget(next(session for session, cell in placed.items() if cell))
    assert routing.choose(waiting[0]) == "cell-2"
    for name in ("cell-0", "cell-1"):
        routing.set_serving(name, True)
    assert all(routing.choose(session) == homes[session] for session in waiting[1:])


def test_a_cell_that_comes_back_is_filled_again():
    """14 sessions at one cell, none at the other: they part until the difference is at most 4."""
    routing = Routing(["cell-0", "cell-1"], capacity=64)
    routing.set_serving("cell-1", True)
    for index in range(14):
        routing.choose(f"s{index}")
    routing.set_serving("cell-0", True)
    for index in range(14):
        routing.choose(f"s{index}")
    sizes = sorted(len(cell.sessions) for cell in routing.cells.values())
    assert sum(sizes) == 14 and sizes[1] - sizes[0] <= 4


def test_a_session_that_gave_up_its_place_comes_back_to_its_prefix():
    """A6: the place is another's, the prefix stays where it was computed; it goes elsewhere only where its cell has no room."""
    routing = Routing(["cell-0", "cell-1", "cell-2"], capacity=1)
    for name in ("cell-0", "cell-1"):
        routing.set_serving(name, True)
    homes = {session: routing.choose(session) for session in ("a", "b")}
    assert routing.choose("c") is None and sorted(homes.values()) == ["cell-0", "cell-1"]
    routing.give_up_place("a")
    assert not routing.is_placed("a") and routing.choose("a") == homes["a"]
    routing.give_up_place("a")
    assert routing.choose("c") == homes["a"] and routing.choose("a") is None
    routing.give_up_place("b")
    assert routing.choose("a") == homes["b"], "its own cell is full"
