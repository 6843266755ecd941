"""Keys of executions at the gateway: signed claims, so that a gateway that started anew knows them without any memory.

A key opens the calls of one attempt of one execution. Whether that attempt is still the one whose words count is looked up
apart (leases.Attempts).
"""

import base64
import hashlib
import hmac
import re
from typing import Literal

import msgspec

PREFIX = "gyre-"
_SIGNATURE_BYTES = 24
_KEY = re.compile(rf"{PREFIX}([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
"""Nothing else in it: a decoder passes over what is no letter of its own, and a key is also sent on in a header."""
KNOWN_MAX = 4096


class Claims(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """All that a model call needs to know of its execution."""

    execution_id: str
    attempt: int
    group_id: str
    purpose: Literal["train", "evaluation"]
    seed: int
    temperature: float
    top_p: float
    turns_max: int
    context_tokens_max: int
    output_tokens_max: int
    traceparent: str = ""
    task_type: str = ""
    environment: str = ""
    tokens_max: int = 0
    calls_max: int = 0
    concurrency_max: int = 0


def sign(claims: Claims, secret: bytes) -> str:
    payload = msgspec.msgpack.encode(claims)
    return f"{PREFIX}{_text(payload)}.{_text(_signature(payload, secret))}"


def verify(key: str, secret: bytes) -> Claims | None:
    """The claims of a key this secret signed; None for any other text."""
    if (said := _KEY.fullmatch(key)) is None:
        return None
    try:
        payload, signature = (base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) for text in said.groups())
    except ValueError:
        return None
    if not hmac.compare_digest(signature, _signature(payload, secret)):
        return None
    return msgspec.msgpack.decode(payload, type=Claims)


class Keys:
    """Keys of one secret; each is verified once."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._known: dict[str, Claims] = {}
        """The latest that were right."""

    def claims(self, key: str) -> Claims | None:
        """As `verify`."""
        if (known := self._known.get(key)) is not None:
            return known
        if (claims := verify(key, self._secret)) is not None:
            if len(self._known) >= KNOWN_MAX:
                del self._known[next(iter(self._known))]
            self._known[key] = claims
        return claims


def _signature(payload: bytes, secret: bytes) -> bytes:
    return hmac.digest(secret, payload, hashlib.sha256)[:_SIGNATURE_BYTES]


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
