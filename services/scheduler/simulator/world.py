"""A cluster in virtual time around the scheduler's own core: facts in, decisions out.

    Workload ──groups──▶ ┌───────────────┐ ──GroupDispatched──▶ Rollout (cells, queue) ──ready groups──▶ Training
                         │ apply, decide │ ──RoleChanged──────▶ Roles (moves, drains, costs)                │
                         └───────────────┘ ◀── ended, ready, phases, batches, updates, publishes ───────────┘

The policy sees what it sees in production, fact by fact, and nothing else; in particular no duration before an execution has ended.
"""

import math
import random
from collections.abc import Callable

import msgspec

from gyre import records as r
from gyre.config import Config
from gyre.errors import InvariantBroken
from gyre.ids import execution_id, group_id
from services.scheduler.core import Settings, State, apply, boundary, decide, dispatch
from services.scheduler.core.estimate import predicted_s
from services.scheduler.core.roles import work
from services.scheduler.core.roles.two_way import HYSTERESIS
from services.scheduler.simulator import cells as cells_
from services.scheduler.simulator.cells import Execution, Group
from services.scheduler.simulator.clock import Events
from services.scheduler.simulator.measures import HOUR_S, Measures, Totals
from services.scheduler.simulator.roles import Roles
from services.scheduler.simulator.rollout import Rollout
from services.scheduler.simulator.spec import Spec
from services.scheduler.simulator.training import Training
from services.scheduler.simulator.workload import Source, drift

ENDLESS_STEPS = 1_000_000
"""Steps that the policy is told to make: the run is looked at in its middle and has no end of its own."""
ROUNDS_MAX = 1_000
"""Decisions that may follow from each other at one instant; more would be a policy that contradicts itself."""

TIMED_MODES = frozenset({"elastic", "elastic_plus", "colocate", "hybrid_switch"})
"""Modes with rules that wait for a time to pass: the service asks them every second, here they are asked when something can have changed."""
INSTANT_S = 1e-3
"""Just after."""
TICK_S = 15.0
"""While trainers have nothing to do, which the rules are patient with, they are asked this often."""

Planner = Callable[[State, float], r.PlanChosen | None]
"""Asked at every boundary, with the state and the time; its plan is in force from the next one."""


class World:
    """One run. `until_step` goes on until an update is done; then look at `measures` and `totals`."""

    def __init__(self, spec: Spec, seed: int, planner: Planner | None = None, is_traced: bool = False) -> None:
        self.spec = spec
        self.events = Events()
        self.measures = Measures(is_traced)
        self.cells = cells_.build(spec)
        chosen, cluster = spec.scheduler, spec.cluster
        self.rollout = Rollout(
            self.cells, self.events, self.measures, spec.workload.wall_limit_h * HOUR_S, cluster.eviction_s
        )
        self.training = Training(
            self.events, self.measures, chosen.groups_per_step, chosen.streaming, cluster.publish_s, spec.training.age_steps_max
        )  # fmt: skip
        self.training.may_open = self._core_is_there
        self.training.may_come = lambda: not self.state.is_burst_open or dispatch.groups_due(self.state) > 0
        self.roles = Roles(cluster, self.cells, self.rollout, self.training, self.events, self.measures)
        if chosen.mode == "elastic_plus":
            self.roles.came_back = self._rested
        self.state = State(settings=settings_of(spec, self.cells))
        self.groups: dict[str, Group] = {}
        """Submitted and not yet sent."""
        self._parts = (self.rollout, self.training, self.roles)
        self._source = Source(spec, seed)
        self._limits = r.Limits(
            wall_s=spec.workload.wall_limit_h * HOUR_S, turns_max=1, context_tokens_max=1, output_tokens_max=1
        )
        self._planner = planner
        self._bound = [
            1.0 / max(n * cell.pace[n] for n in range(1, cell.slots + 1)) * cell.nodes for cell in self.cells
        ]
        self._slowest = min(cell.pace[-1] for cell in self.cells)
        self._silent_since_s: float | None = 0.0
        self._is_timed = chosen.mode in TIMED_MODES
        self._is_ticking = False
        self._worked_off_s = 0.0
        self._begin(seed)

    def until_step(self, step: int) -> None:
        while self.training.step < step:
            self.next_event()

    def next_event(self) -> None:
        """The next thing happens, and all that follows from it at once. Raises InvariantBroken where nothing is left to happen."""
        if not self.events.step():
            raise InvariantBroken(
                f"the simulated run stands still at step {self.training.step}: nothing is left to happen"
            )
        self._settle()

    def totals(self) -> Totals:
        """Running sums up to now."""
        now_s = self.events.now_s
        for cell in self.cells:
            cell.advance(now_s)
        self.training.advance()
        found = self.measures
        silent_s = found.silent_s + (now_s - self._silent_since_s if self._silent_since_s is not None else 0.0)
        return Totals(
            now_s, sum(cell.busy_s for cell in self.cells), sum(cell.served_s for cell in self.cells), found.trained_s, found.trainer_s,
            found.active_s, silent_s, found.ended, found.timed_out,
        )  # fmt: skip

    def bound_s(self, taken: list[tuple[int, Group]]) -> float:
        """Least time for these groups: node-seconds of their work at the most efficient load, and of their training, over all nodes. Of an execution
        that the wall limit cut, what it did, at most what it does at the slowest pace: where nothing served it for a while it did less."""
        cut_s, least_s = self._limits.wall_s * self._slowest, 0.0
        for _, group in taken:
            work_s = sum(min(execution.sampled_s, cut_s) for execution in group.executions)
            least_s += work_s * min(self._bound) + group.cost_s
        return least_s / self.spec.nodes

    # The run

    def _begin(self, seed: int) -> None:
        usual = self.state.settings.cell_capacity
        for cell in self.cells:
            if cell.slots != usual:
                self._say(r.CellReported(cell=cell.name, capacity=cell.slots, at_s=0.0, reason="size"))
        horizon = self.spec.horizon
        steps = horizon.first_steps if horizon.is_whole_run else ENDLESS_STEPS
        self._say(r.RunStarted(steps=steps, fingerprint="", at_s=0.0))
        if self.spec.cluster.failure_every_h:
            self.roles.fail_now_and_then(random.Random(f"failures {seed}"))
        self._settle()

    def _settle(self) -> None:
        """Decide, as the service does, until nothing follows, with the cluster reacting in between."""
        rollout, training, roles, state = self.rollout, self.training, self.roles, self.state
        now_s = self.events.now_s
        self._fold()
        for _ in range(ROUNDS_MAX):
            self._submit()
            decisions = decide(state, now_s)
            self.measures.decisions += 1
            for decision in decisions:
                self._follow(decision)
            if not decisions:
                rollout.place()
                if rollout.ready:
                    training.collect(rollout.ready)
                roles.react()
                training.react()
                is_news = bool(training.facts or roles.facts)  # what was only placed gives nothing to decide
                self._fold()
                if not is_news:
                    break
        else:
            raise InvariantBroken(f"decisions do not settle at {now_s:.3f} s: the last are {decisions}")
        rollout.settle()
        self._watch_silence(now_s)
        if self._is_timed:
            self._wake_later(now_s)
        if self.measures.trace is not None:
            self.measures.levels(now_s, state.waterlevel, state.capacity)

    def _wake_later(self, now_s: float) -> None:
        """Ask again when the policy takes the open batch to be worked off, and while trainers wait after that."""
        pace, fleet = self.state.pace, self.state.fleet
        if not fleet.training:
            return
        if pace.trainers and 0.0 < pace.left_s < math.inf:
            at_s = pace.at_s + pace.left_s / pace.trainers + INSTANT_S
            if at_s > now_s:
                if at_s != self._worked_off_s:
                    self._worked_off_s = at_s
                    self.events.at(at_s, self._tick)
                return
        if not self._is_ticking:
            self._is_ticking = True
            self.events.at(now_s + TICK_S, self._tick)

    def _tick(self, _: None, event: int) -> None:
        """Nothing has happened but time; deciding follows every event."""
        self._is_ticking = False

    def _rested(self) -> None:
        """A cell is back: ask again when it has rested."""
        wait_s = HYSTERESIS * self.state.fleet.switch_cost_s() + INSTANT_S
        self.events.at(self.events.now_s + wait_s, self._tick)

    def _fold(self) -> None:
        """Tell the policy what has happened."""
        state = self.state
        for part in self._parts:
            if part.facts:
                facts, part.facts = part.facts, []
                for fact in facts:
                    apply(state, fact)

    def _say(self, fact: object) -> None:
        apply(self.state, fact)

    def _submit(self) -> None:
        """Tasks come as they are needed, in the order of the data set, so that no order of dispatch can choose the easy ones.

        Before a boundary is decided what it will send has to wait already: whether the core stays depends on it.
        """
        state = self.state
        wanted = boundary.need_groups(state)[0] if boundary.is_due(state) else dispatch.groups_due(state)
        while wanted > len(state.queue):
            self._submit_one(state)

    def _submit_one(self, state: State) -> None:
        step, index = self.training.step, state.num_submitted
        task_type, work_s = self._source.group(step)
        name = group_id(index)
        group = Group(name, task_type)
        group.executions = [
            Execution(group, member, execution_id(name, member), work) for member, work in enumerate(work_s)
        ]
        group.left = len(work_s)
        hours = self.spec.training.group_node_h * self.spec.training.unique_token_share
        group.cost_s = hours * HOUR_S * drift(self.spec.workload.training_growth, step, self.spec.workload)
        self.groups[name] = group
        task = r.TaskSpec(
            task_id=name,
            task_type=task_type,
            environment="simulated",
            seed=0,
            limits=self._limits,
            group_size=len(work_s),
        )
        tier = state.settings.tier_for(predicted_s(state.estimates, task_type, self._limits.wall_s))
        self._say(r.GroupSubmitted(group_id=name, task=task, tier=tier, at_s=self.events.now_s))

    def _follow(self, decision: object) -> None:
        self._say(decision)
        kind = type(decision)
        if kind is r.GroupDispatched:
            group = self.groups.pop(decision.group_id)
            group.version = decision.policy_version
            group.sent_at_s = decision.at_s
            self.training.untaken[group.version] += 1
            self.rollout.enqueue(group)
        elif kind is r.RoleChanged:
            self.roles.request(decision)
            self._fold()
        elif kind is r.BurstOpened:
            self._open_burst(decision)

    def _open_burst(self, burst: r.BurstOpened) -> None:
        self.training.publish_at_step = burst.first_step + burst.steps
        if self.measures.trace is not None:
            self.measures.trace.bursts.append(self.events.now_s)
        if self._planner is not None and (plan := self._planner(self.state, self.events.now_s)) is not None:
            self._say(plan)

    def _core_is_there(self) -> bool:
        """A core that is about to go back opens no step."""
        core = self.state.cells[self.cells[0].name]
        if core.target != "training" or self.training.step >= self.training.publish_at_step:
            return False
        return core.kind == "training" or work.core_may_begin(self.state)

    def _watch_silence(self, now_s: float) -> None:
        if self.rollout.num_running:
            if self._silent_since_s is not None:
                self.measures.silent_s += now_s - self._silent_since_s
                self._silent_since_s = None
        elif self._silent_since_s is None:
            self._silent_since_s = now_s


def settings_of(spec: Spec, cells: list[cells_.Cell]) -> Settings:
    """The policy's settings, as a run with this configuration has them."""
    usual = cells[-1].slots if spec.scheduler.mode == "async" else cells[0].slots
    return Settings.of(Config(scheduler=msgspec.structs.replace(spec.scheduler, cell_capacity=max(1, usual))), "")
