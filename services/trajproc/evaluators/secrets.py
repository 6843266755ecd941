"""Keeps an evaluator's token out of the books: a server may send back what it was sent, in an error and in an answer alike."""

from typing import Any

import msgspec

from gyre.evaluation import Finding
from gyre.strict_json import DEPTH_MAX

PUT_IN_PLACE = "[token]"


def without(value: Any, secret: str, depth: int = DEPTH_MAX) -> Any:
    """JSON value → the same with every text free of `secret`. What is nested deeper than evidence may be stays as it is: it is refused anyway."""
    if not secret or depth < 0:
        return value
    if isinstance(value, str):
        return value.replace(secret, PUT_IN_PLACE)
    if isinstance(value, dict):
        return {without(name, secret, depth): without(inner, secret, depth - 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without(inner, secret, depth - 1) for inner in value]
    return value


def finding_without(finding: Finding, secret: str) -> Finding:
    """Before anything of it is cut, so that no part of the secret is left at a cut."""
    if not secret:
        return finding
    words = {name: without(getattr(finding, name), secret) for name in ("evidence", "looked_at", "detail")}
    return msgspec.structs.replace(finding, **words)
