"""What a page is about: the filters of its address, and the rows that the session may see."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gyre.config import Config
from gyre.errors import InvalidInput
from gyre.numbers import real, whole

STATES = ("running", "ready", "trained", "dropped", "ended")
"""Of an attempt: under way; evaluated and waiting for a gradient; in one; dropped; ended without any of these (yet)."""
PURPOSES = ("train", "evaluation", "all")
SHOWN_MAX = 20_000
"""Executions of one page at most."""
SHOWN = 10_000


@dataclass(frozen=True)
class Scope:
    """Which rows. `tenant` narrows everything; an empty filter narrows nothing."""

    run: str
    config: Config
    tenant: str = ""
    """Of the session or, for an operator, of the address."""
    is_operator: bool = True
    task_type: str = ""
    purpose: str = "train"
    state: str = ""
    reason: str = ""
    """Of a drop."""
    cell: str = ""
    tier: str = ""
    group: str = ""
    sample: str = ""
    step: int | None = None
    dispatched: int | None = None
    """Policy version at dispatch, v_d."""
    version: int | None = None
    """A weight version that sampled."""
    age: int | None = None
    """Least age of a sampled token when it was trained, in steps."""
    from_s: float | None = None
    to_s: float | None = None
    limit: int = SHOWN
    after: str = ""
    """Cursor of a listing."""
    values: dict[str, Any] = field(default_factory=dict)
    """Bound values of `conditions`."""


_TEXTS = ("task_type", "state", "reason", "cell", "tier", "group", "sample", "after")
_NUMBERS = ("step", "dispatched", "version", "age")
_TIMES = {"from": "from_s", "to": "to_s"}
TEXT_CHARS_MAX = 300


def scope_of(address: Mapping[str, str], run: str, config: Config, tenant: str) -> Scope:
    """Filters from an address; `tenant` is the session's, empty for an operator. Raises InvalidInput, naming what is wrong."""
    found: dict[str, Any] = {}
    for name in _TEXTS:
        found[name] = _short(name, address.get(name, ""))
    for name in _NUMBERS:
        found[name] = _number(name, address.get(name, ""), whole)
    for name, target in _TIMES.items():
        found[target] = _number(name, address.get(name, ""), real)
    if found["state"] and found["state"] not in STATES:
        raise InvalidInput(f"state={found['state']}: one of {', '.join(STATES)}")
    purpose = address.get("purpose", "train")
    if purpose not in PURPOSES:
        raise InvalidInput(f"purpose={_short('purpose', purpose)}: one of {', '.join(PURPOSES)}")
    limit = _number("limit", address.get("limit", ""), whole) or SHOWN
    asked = _short("tenant", address.get("tenant", ""))
    return Scope(
        run=run,
        config=config,
        tenant=tenant or asked,
        is_operator=not tenant,
        purpose=purpose,
        limit=max(1, min(limit, SHOWN_MAX)),
        **found,
    )


def alone(scope: Scope, **changes: Any) -> Scope:
    """The same rows' owner with other filters."""
    plain = Scope(run=scope.run, config=scope.config, tenant=scope.tenant, is_operator=scope.is_operator)
    return replace(plain, **changes)


def _short(name: str, text: str) -> str:
    if len(text) > TEXT_CHARS_MAX or "\x00" in text:
        raise InvalidInput(f"{name}: at most {TEXT_CHARS_MAX} characters, without NUL")
    return text


def _number(name: str, text: str, read: Callable[[str], Any]) -> Any:
    if not text:
        return None
    try:
        value = read(text)
    except (ValueError, OverflowError):
        value = None
    if value is None or not -(2**62) < value < 2**62:
        raise InvalidInput(f"{name}={text[:40]}: a number")
    return value
