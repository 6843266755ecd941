"""Which place of the gateway a path means: clients differ in whether `/v1` and a slash belong to a base URL, and one URL is given to all of them."""

import re
from functools import lru_cache

CALLS = ("chat/completions", "messages", "responses")
COUNTS = ("messages/count_tokens", "responses/input_tokens")
MODELS, MODEL = "models", "model"
READ, ASKED = ("GET", "HEAD"), ("POST",)
METHODS = {"": READ, "healthz": READ, MODELS: READ, MODEL: READ, **dict.fromkeys(CALLS + COUNTS, ASKED)}
"""Place → methods it is asked by."""

_PLACE = re.compile(rf"/+(?:v1/+){{0,2}}(?:(?P<place>{'|'.join((*CALLS, *COUNTS, MODELS))})/?|models/(?P<model>.+))")


@lru_cache(maxsize=64)
def place_of(path: str) -> tuple[str, str] | None:
    """(place, name of a model where it is one's); None: there is nothing."""
    if path in ("/", "/healthz"):
        return path[1:], ""
    if (found := _PLACE.fullmatch(path)) is None:
        return None
    return (found["place"], "") if found["place"] else (MODEL, found["model"])
