"""Facts about cells, capacity and weights."""

from typing import Literal

import msgspec

CellRole = Literal["rollout", "training"]

CELL_PHASES: dict[CellRole, tuple[str, ...]] = {
    "training": ("requested", "drained", "unloaded", "training"),
    "rollout": ("requested", "released", "loaded", "serving"),
}
"""Phases of a role change in order, by target role, and who says each:

    into training: requested (scheduler) → drained (gateway: no call runs there any more) → unloaded (rollout cell: weights and
    KV cache freed) → training (trainer cell: training state loaded)
    into rollout:  requested (scheduler) → released (trainer cell: training state set aside) → loaded (rollout cell: newest
    published weights in) → serving (gateway: routes calls to it)

Whoever is next acts on the last fact of the cell's subject, so an actor that restarts finds its place (A6, A8). The phases of a process that
the cell does not have are left out (`gyre.config.cells`): `requested → training` where it always trains, `requested → loaded → serving`
where it never does.
"""


class RoleChanged(msgspec.Struct, frozen=True, kw_only=True, tag="cell.role"):
    """One phase of one role change. At run start the scheduler requests change 0 of each cell: `training` if it always trains, else `rollout`."""

    cell: str
    change: int
    """Ordinal of the cell's role change; phases of an older change are ignored."""
    target: CellRole
    phase: str
    at_s: float
    duration_s: float = 0.0
    """How long this phase's own work took at whoever reports it."""
    burst: int = 0
    moved_calls: int = 0
    """With `drained`: running calls that were moved to other cells."""


class CellReported(msgspec.Struct, frozen=True, kw_only=True, tag="cell.reported"):
    """How many executions a cell can serve from now on. 0: it is lost; a cell nobody knew is added."""

    cell: str
    capacity: int
    at_s: float
    reason: str = ""


class BurstOpened(msgspec.Struct, frozen=True, kw_only=True, tag="burst.opened"):
    """A boundary (A4), decided once: what the burst that begins here trains and dispatches, and who stays in training."""

    burst: int
    """Ordinal, from 0."""
    first_step: int
    """Also the policy version that was published here."""
    steps: int
    """μ of this burst; its publish is version first_step + steps. Fewer at the end of a run."""
    need_groups: int
    """Groups to be dispatched at this boundary."""
    carry_groups: float
    """What rounding to whole groups leaves for the next boundary."""
    core_stays: bool
    at_s: float
    extra_depth_steps: float = 0.0
    """φ in force."""
    release_share: float = 1.0
    """ρ in force."""
    is_two_way: bool = False
    """Whether cells may also go back inside the burst (elastic_plus)."""


class PlanChosen(msgspec.Struct, frozen=True, kw_only=True, tag="plan.chosen"):
    """The planner's answer (elastic_plus), in force from the next boundary on."""

    plan: int
    """Ordinal, from 1."""
    steps_per_publish: int
    extra_depth_steps: float
    release_share: float
    is_two_way: bool
    order: str
    at_s: float
    predicted_gain: float = 0.0
    """Share of time saved against staying as configured, by simulation."""
    reason: str = ""


class WaterlevelChanged(msgspec.Struct, frozen=True, kw_only=True, tag="waterlevel.changed"):
    """w(t) = dispatched − finished, with the capacity that serves it (A3)."""

    waterlevel: int
    dispatched: int
    finished: int
    capacity: int
    """C_R(t), executions."""
    outstanding_groups: int
    policy_version: int
    burst: int
    at_s: float


class WeightsPublished(msgspec.Struct, frozen=True, kw_only=True, tag="weights.published"):
    """A new policy version for rollout; ends a burst (A4)."""

    version: int
    path: str
    """A safetensors file on storage that cells share."""
    checksum: str
    """sha256 of the file, hexadecimal."""
    bytes: int
    at_s: float
