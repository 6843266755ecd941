"""Agent roles in the order in which they are trained (B5)."""

from collections.abc import Sequence

TRAINED_ROLES: tuple[str, ...] = ("main", "main-summary", "sub-agent", "sub-agent-summary")
"""Highest class first, unless `trajproc.class_order` says otherwise. `side` and `unknown` calls are kept on record and never trained."""

UNTRAINED = len(TRAINED_ROLES)
"""Class of every other role."""


def class_of(role: str, class_order: Sequence[str] = TRAINED_ROLES) -> int:
    """0 is the highest class; UNTRAINED for a role that is never trained."""
    return class_order.index(role) if role in class_order else UNTRAINED
