"""Which place of the gateway a path means, behind whatever base URL a client was given."""

import re
from functools import lru_cache

from services.rollout.core.wires import BASE

CALLS = ("chat/completions", "messages", "responses")
COUNTS = ("messages/count_tokens", "responses/input_tokens")
MODELS, MODEL = "models", "model"
READ, ASKED = ("GET", "HEAD"), ("POST",)
METHODS = {"": READ, "healthz": READ, MODELS: READ, MODEL: READ, **dict.fromkeys(CALLS + COUNTS, ASKED)}
"""Place → methods it is asked by."""

_PLACE = re.compile(rf"{BASE}(?:(?P<place>{'|'.join((*CALLS, *COUNTS, MODELS))})/?|models/(?P<model>.+))")


@lru_cache(maxsize=64)
def place_of(path: str) -> tuple[str, str] | None:
    """(place, name of a model where it is one's); None: there is nothing."""
    if path in ("/", "/healthz"):
        return path[1:], ""
    if (found := _PLACE.fullmatch(path)) is None:
        return None
    return (found["place"], "") if found["place"] else (MODEL, found["model"])
