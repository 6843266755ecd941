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

Whoever is next acts on the last fact of the cell's subject, so an actor that restarts finds its place (A6, A8).
"""


class RoleChanged(msgspec.Struct, frozen=True, kw_only=True, tag="cell.role"):
    """One phase of one role change. At run start the scheduler requests `rollout` for each cell, change 0."""

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
