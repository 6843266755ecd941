"""What is simulated: cluster, workload, training and the policy's knobs, read from TOML; impossible knobs are refused with what would be possible."""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gyre.config import SchedulerConfig
from gyre.config.load import no_numbers, tier_problems
from gyre.config.staleness import law_steps
from gyre.errors import InvalidInput
from services.scheduler.simulator.bounds import (
    EXECUTIONS_MAX,
    FAILURE_EVERY_H_MIN,
    NAME_CHARACTERS_MAX,
    OUTSTANDING_MAX,
    SLOTS_MAX,
    Factor,
    Failures,
    Hours,
    NodeHours,
    Nodes,
    Seconds,
    Share,
    Slots,
    SlotsPerNode,
    Slowdown,
    Spread,
    Steps,
    StepsAtLeastOne,
    Tasks,
)


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Speed(_Section):
    """Decode speed of one execution under load x = running / (slots · nodes), relative to an empty node."""

    family: Literal["hyperbolic", "knee"] = "hyperbolic"
    """hyperbolic: 1/(1 + slowdown·x). knee: min(1, (knee/x)^power)."""
    slowdown: Slowdown = 0.675
    knee: Factor = 0.6
    power: Share = 0.8

    def at(self, load: float) -> float:
        if self.family == "hyperbolic":
            return 1.0 / (1.0 + self.slowdown * load)
        return min(1.0, (self.knee / load) ** self.power) if load > 0 else 1.0


class Cluster(_Section):
    """Cells in order, and what it costs to change them. The number of cells is `scheduler.cells`."""

    nodes_per_cell: Nodes = 4
    cell_nodes: list[Nodes] = []
    """Nodes of each cell where they differ (a fixed split is one training cell and one standalone cell); empty: all alike."""
    slots_per_node: SlotsPerNode = 10.0
    """Executions a node serves at once; the rest queues."""
    cell_slots: list[Slots] = []
    """Executions each cell serves at once where that does not follow from its nodes; empty: `slots_per_node` times its nodes."""
    speed: Speed = Speed()
    into_training_s: Seconds = 8.52
    into_rollout_s: Seconds = 3.46
    """Seconds a cell serves nobody while it changes its role (the paper's figures)."""
    eviction_s: Seconds = 30.0
    """Work added to a running execution that is moved or paused: its prefix is computed again."""
    publish_s: Seconds = 0.0
    """Seconds between a burst's last update and its publish."""
    role_transfer: bool = True
    """Whether running executions are moved when their cell leaves. False: it takes no new ones and must drain first."""
    rebalance: bool = False
    """Whether a cell that comes back takes running executions over from fuller ones, at `eviction_s` each."""
    failure_every_h: Failures = 0.0
    """Mean hours between failures of one cell; 0: none. What ran there moves, at `eviction_s`."""
    repair_h: Hours = 0.5
    slow_cell_share: Share = 0.0
    slow_cell_factor: Factor = 1.0
    """Straggling cells: this share of the cells (from the last on) decodes at `1/slow_cell_factor` of the speed."""


class Workload(_Section):
    """How much work executions are, in hours at full speed."""

    kind: Literal["lognormal", "agent_runs", "history"] = "lognormal"
    """agent_runs: durations of public agents' runs (data/README.md), a task's runs resampled, scaled to `mean_h`. history: whole groups of
    `history_h`, resampled."""
    history_h: list[list[Hours]] = []
    """history: the work of each member of each group seen so far; a member that the wall limit cut counts as what it had done."""
    median_h: Hours = 1.0
    sigma: Spread = 0.5
    """Standard deviation of the logarithm."""
    group_share: Share = 0.3
    """r: share of the log-variance that is common to a group."""
    mean_h: Hours = 1.0
    """agent_runs: mean work to which the runs are scaled."""
    agent: str = ""
    """agent_runs: only this agent's; empty: each group has one agent's."""
    tasks: Tasks = 1
    """lognormal: distinct tasks, each with its own common factor, that come again and again. 1: every group is new, nothing can be learnt."""
    wall_limit_h: Hours = 4.0
    """Executions are cut here, from their start, and trained all the same (B4)."""
    environment_share: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.0
    """Share of an execution's time on an empty node that it waits for its environment, whatever the load."""
    straggler_share: Share = 0.0
    straggler_factor: Factor = 1.0
    """This share of the executions takes `straggler_factor` times the work."""
    work_growth: Factor = 1.0
    training_growth: Factor = 1.0
    """Drift: factors that work and training cost reach, geometrically, at `drift_steps`."""
    drift_steps: StepsAtLeastOne = 60


class Training(_Section):
    """A step is `scheduler.groups_per_step` groups of `group_node_h` node-hours each."""

    group_node_h: NodeHours = 6.0
    unique_token_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """What tree packing leaves of the cost (B8)."""
    age_steps_max: Annotated[int, Meta(ge=0)] = 0
    """Hard cap on staleness, as `trajproc.age_steps_max` (C8): a batch is held open for a group in its last admissible step. 0: none."""


class Horizon(_Section):
    """What is measured."""

    first_steps: StepsAtLeastOne = 12
    """Wall time to this update, from the start."""
    warmup_steps: Steps = 12
    """Left out of the steady state; rounded up to whole bursts."""
    steady_steps: Steps = 60
    """Rounded up to whole bursts; 0 measures the first steps only."""
    is_whole_run: bool = False
    """Whether the run ends with `first_steps`: nothing is sent that no step of it trains, so its last steps wait for their slowest groups.
    Otherwise they are the first of a run that goes on."""


class Spec(_Section):
    """One simulated run."""

    name: str = ""
    cluster: Cluster = Cluster()
    workload: Workload = Workload()
    training: Training = Training()
    scheduler: SchedulerConfig = SchedulerConfig(cells=8, groups_per_step=4, steps_per_publish=4)
    """The same section as in a run's configuration; `cell_capacity` follows from the cluster."""
    horizon: Horizon = Horizon()

    @property
    def cell_nodes(self) -> list[int]:
        """Nodes of each cell, in order."""
        return self.cluster.cell_nodes or [self.cluster.nodes_per_cell] * self.scheduler.cells

    @property
    def nodes(self) -> int:
        return sum(self.cell_nodes)

    @property
    def cell_slots(self) -> list[int]:
        """Executions that each cell serves at once, in order."""
        return self.cluster.cell_slots or [int(self.cluster.slots_per_node * count + 1e-9) for count in self.cell_nodes]

    @property
    def staleness_steps(self) -> float:
        """The law's mean (gyre.config.staleness)."""
        return law_steps(self.scheduler)


def load(path: Path) -> Spec:
    """Read and check; raises InvalidInput that names the field and what would be possible."""
    try:
        return parse(msgspec.toml.decode(path.read_bytes()))
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no specification at {path}") from error
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{path}: {error}") from error


def parse(tree: dict[str, Any]) -> Spec:
    """A specification from a tree as TOML gives it."""
    try:
        spec = msgspec.convert(tree, Spec, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"specification: {error}") from error
    if strange := [
        *no_numbers(msgspec.to_builtins(spec))
    ]:  # of what it was converted to: a knob may come as the text "nan"
        raise InvalidInput("specification: " + "; ".join(strange))
    check(spec)
    return spec


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, section by section."""
    tree = dict(base)
    for key, value in changes.items():
        tree[key] = merged(tree.get(key, {}), value) if isinstance(value, dict) else value
    return tree


def changed(spec: Spec, **knobs: Any) -> Spec:
    """The same with other knobs of the policy, checked."""
    spec = msgspec.structs.replace(spec, scheduler=msgspec.structs.replace(spec.scheduler, **knobs))
    check(spec)
    return spec


def check(spec: Spec) -> None:
    """Raises InvalidInput for what no cluster could do."""
    chosen = spec.scheduler
    if not spec.name.isprintable() or len(spec.name) > NAME_CHARACTERS_MAX:
        raise InvalidInput(
            f"name is shown on screens and in pictures: at most {NAME_CHARACTERS_MAX} characters, all of them printable, not {spec.name[:80]!a}"
        )
    if spec.workload.kind == "history" and not all(spec.workload.history_h or [[]]):
        raise InvalidInput("workload.history_h must hold at least one group, and no empty one")
    nodes = spec.cell_nodes
    for name, each in (("cell_nodes", spec.cluster.cell_nodes), ("cell_slots", spec.cluster.cell_slots)):
        if each and len(each) != chosen.cells:
            raise InvalidInput(
                f"cluster.{name} names {len(each)} cells, scheduler.cells {chosen.cells}: they must agree"
            )
    if chosen.extra_depth_steps < 0:
        raise InvalidInput(f"scheduler.extra_depth_steps (φ) is {chosen.extra_depth_steps:g}: it must be 0 or more")
    largest = max(spec.cell_slots)
    if min(spec.cell_slots) < 1:
        raise InvalidInput(
            f"cluster.slots_per_node {spec.cluster.slots_per_node:g} leaves a cell without a slot: at least {1 / min(nodes):g}"
        )
    _check_size(spec)
    if chosen.group_size > largest:
        raise InvalidInput(
            f"scheduler.group_size {chosen.group_size} is larger than any cell: at most {largest} executions fit into one"
        )
    if problems := tier_problems(chosen):
        raise InvalidInput("; ".join(problems))
    for tier in chosen.tiers:
        if tier.concurrency_max < chosen.group_size:
            raise InvalidInput(
                f"tier {tier.name}: concurrency_max {tier.concurrency_max} lets no group of {chosen.group_size} through: at least {chosen.group_size}"
            )
    if spec.horizon.is_whole_run and spec.horizon.warmup_steps + spec.horizon.steady_steps:
        raise InvalidInput(
            "horizon.is_whole_run ends the run with first_steps: a steady state after it needs warmup_steps and steady_steps 0"
        )
    cap = spec.training.age_steps_max
    if 0 < cap < spec.staleness_steps:
        raise InvalidInput(
            f"training.age_steps_max {cap} is below the mean staleness {spec.staleness_steps:g} of these knobs: at least "
            f"{math.ceil(spec.staleness_steps)}"
        )
    _check_roles(spec)


def _check_size(spec: Spec) -> None:
    """What would not fit into memory, or would not end."""
    chosen, horizon = spec.scheduler, spec.horizon
    if (held := sum(spec.cell_slots)) > SLOTS_MAX:
        raise InvalidInput(
            f"the cells hold {held:,} executions at once (cluster.slots_per_node, nodes, scheduler.cells): at most {SLOTS_MAX:,} in all"
        )
    if 0.0 < spec.cluster.failure_every_h < FAILURE_EVERY_H_MIN:
        raise InvalidInput(
            f"cluster.failure_every_h {spec.cluster.failure_every_h:g} is too often for any work to be done: 0 for none, or at least "
            f"{FAILURE_EVERY_H_MIN}"
        )
    ahead = chosen.extra_depth_steps + chosen.steps_per_publish
    if horizon.is_whole_run:
        ahead = min(ahead, horizon.first_steps)
    a_step = chosen.groups_per_step * chosen.group_size
    if ahead * a_step > OUTSTANDING_MAX:
        raise InvalidInput(
            f"{ahead:,.6g} steps of {a_step:,} executions would be dispatched ahead (scheduler.extra_depth_steps + steps_per_publish, times "
            f"groups_per_step · group_size): at most {OUTSTANDING_MAX:,} executions, {OUTSTANDING_MAX / a_step:,.6g} steps of so many"
        )
    steps = (
        max(horizon.first_steps, horizon.warmup_steps + horizon.steady_steps + 2 * (chosen.steps_per_publish - 1))
        + ahead
    )
    if steps * a_step > EXECUTIONS_MAX:
        raise InvalidInput(
            f"{steps:,.6g} steps (horizon, and what is dispatched ahead) of {a_step:,} executions are too much to simulate: at most "
            f"{EXECUTIONS_MAX:,} executions, {EXECUTIONS_MAX / a_step:,.6g} steps of so many"
        )


def _check_roles(spec: Spec) -> None:
    chosen = spec.scheduler
    training, standalone, cells = chosen.training_cells, chosen.standalone_cells, chosen.cells
    if chosen.mode == "async":
        if not 1 <= training < cells or training + standalone != cells:
            raise InvalidInput(
                f"async needs training_cells + standalone_cells = cells = {cells} with at least 1 of each, not {training} + {standalone}"
            )
        return
    if training:
        raise InvalidInput(f"training_cells is for async; in {chosen.mode} it must be 0, not {training}")
    if standalone >= cells:
        raise InvalidInput(f"standalone_cells {standalone} leaves no cell to train: at most {cells - 1} of {cells}")
