"""Gymnasium's spaces as JSON: what a model is told it may do, and what it said as an action of the space.

| space | JSON |
|---|---|
| Discrete | one of its names (their numbers, where there are none) |
| MultiDiscrete, MultiBinary | array of integers |
| Box | number, or (nested) array of numbers |
| Text | string |
| Tuple, Dict | array, object of the inner ones |
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from gyre.errors import InvalidInput


def schema(space: spaces.Space, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """JSON schema of the space's actions; `names` are those of a Discrete one. Raises InvalidInput for a kind that is not above."""
    match space:
        case spaces.Discrete():
            return {"type": "string", "enum": list(names or _numbers(space))}
        case spaces.MultiDiscrete():
            return _array({"type": "integer"}, space.shape, f"each from 0 to below {space.nvec.tolist()}")
        case spaces.MultiBinary():
            return _array({"type": "integer", "enum": [0, 1]}, space.shape)
        case spaces.Box():
            kind = "integer" if np.issubdtype(space.dtype, np.integer) else "number"
            bounds = f"from {_plain(space.low)} to {_plain(space.high)}"
            return _array({"type": kind}, space.shape, bounds)
        case spaces.Text():
            return {"type": "string", "maxLength": space.max_length}
        case spaces.Tuple():
            return {
                "type": "array",
                "prefixItems": [schema(inner) for inner in space.spaces],
                "minItems": len(space.spaces),
            }
        case spaces.Dict():
            inner = {name: schema(one) for name, one in space.spaces.items()}
            return {"type": "object", "properties": inner, "required": list(inner)}
    raise InvalidInput(f"actions of a {type(space).__name__} space have no form in JSON; wrap it or override `action`")


def action(space: spaces.Space, said: Any, names: tuple[str, ...] = ()) -> Any:
    """What the model said as a member of the space. Raises ValueError that says what would be right."""
    match space:
        case spaces.Discrete():
            known = names or _numbers(space)
            if str(said) not in known or isinstance(said, bool):
                raise ValueError(f"unknown action `{str(said)[:80]}`; actions: {', '.join(known)}")
            return known.index(str(said)) + int(space.start)
        case spaces.Tuple():
            if not isinstance(said, list) or len(said) != len(space.spaces):
                raise ValueError(f"an array of {len(space.spaces)} values is needed")
            return tuple(action(inner, one) for inner, one in zip(space.spaces, said, strict=True))
        case spaces.Dict():
            if not isinstance(said, dict) or set(said) != set(space.spaces):
                raise ValueError(f"an object with {', '.join(space.spaces)} is needed")
            return {name: action(inner, said[name]) for name, inner in space.spaces.items()}
        case spaces.Text():
            found = str(said)
        case _:
            found = _numeric(space, said)
    if not space.contains(found):
        raise ValueError(f"{str(said)[:80]} is outside {space}")
    return found


def _numeric(space: spaces.Space, said: Any) -> np.ndarray:
    try:
        given = np.asarray(said, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"numbers of shape {list(space.shape)} are needed") from error
    if given.shape != space.shape or not np.isfinite(given).all():
        raise ValueError(f"numbers of shape {list(space.shape)} are needed, not of {list(given.shape)}")
    if np.issubdtype(space.dtype, np.integer) and (given != np.floor(given)).any():
        raise ValueError("whole numbers are needed")
    return given.astype(space.dtype)


def _numbers(space: spaces.Discrete) -> tuple[str, ...]:
    return tuple(str(index) for index in range(int(space.start), int(space.start) + int(space.n)))


def _array(items: dict[str, Any], shape: tuple[int, ...], description: str = "") -> dict[str, Any]:
    for size in reversed(shape):
        items = {"type": "array", "items": items, "minItems": size, "maxItems": size}
    return items | ({"description": description} if description else {})


def _plain(bound: np.ndarray) -> str:
    """One number where all are the same."""
    return str(bound.flat[0]) if bound.size and (bound == bound.flat[0]).all() else str(bound.tolist())
