"""Agent roles in the order in which they are trained (B5)."""

TRAINED_ROLES: tuple[str, ...] = ("main", "main-summary", "sub-agent", "sub-agent-summary")
"""Highest class first. `side` and `unknown` calls are kept on record and never trained."""

UNTRAINED = len(TRAINED_ROLES)
"""Class of every other role."""

_CLASS_OF = {role: index for index, role in enumerate(TRAINED_ROLES)}


def class_of(role: str) -> int:
    """0 is the highest class; UNTRAINED for a role that is never trained."""
    return _CLASS_OF.get(role, UNTRAINED)
