"""Who may look at the trace explorer: one-time sign-in keys, and the sessions that they open.

Whoever can read the run's keys folder can sign (`gyre explorer`): keys/explorer.key is the secret, made on first start, readable by its owner only. A
sign-in key opens one session within SIGN_IN_S, a session lasts SESSION_S; both are signed claims, so a server that starts anew still knows its
sessions. Sign-in keys that were signed before the server's start are refused: it cannot know whether they were used.
"""

import base64
import hashlib
import hmac
import secrets
from pathlib import Path

import msgspec

from gyre import key_files
from gyre.errors import InvalidInput

SIGN_IN_S = 600.0
"""How long a printed link may lie about."""
SESSION_S = 12 * 3600.0
"""A working day."""
EVERYBODY = ""
"""The tenant of an operator's claims: rows of all."""
_SIGNATURE_BYTES = 32


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a key or session says, signed."""

    kind: str
    """`sign-in` or `session`."""
    run: str
    tenant: str
    """Whose rows; EVERYBODY for an operator."""
    signed_at_s: float
    nonce: str


def secret_of(keys: Path) -> bytes:
    """The secret in the run's keys folder, made where there is none. Raises ConfigError."""
    return key_files.keep(keys / "explorer.key").strip()


def sign(kind: str, run: str, tenant: str, now_s: float, secret: bytes) -> str:
    """A key or session as text that fits into an address or a cookie."""
    claims = Claims(kind=kind, run=run, tenant=tenant, signed_at_s=now_s, nonce=secrets.token_urlsafe(12))
    payload = msgspec.json.encode(claims)
    return f"{_text(payload)}.{_text(hmac.digest(secret, payload, hashlib.sha256)[:_SIGNATURE_BYTES])}"


def verify(text: str, kind: str, run: str, now_s: float, secret: bytes) -> Claims | None:
    """The claims; None for anything that this secret did not sign as this kind, for this run, or that is too old."""
    payload_text, _, signature_text = text.partition(".")
    try:
        payload, signature = _bytes(payload_text), _bytes(signature_text)
        if not hmac.compare_digest(signature, hmac.digest(secret, payload, hashlib.sha256)[:_SIGNATURE_BYTES]):
            return None
        claims = msgspec.json.decode(payload, type=Claims)
    except (ValueError, msgspec.DecodeError):
        return None
    lasts_s = SIGN_IN_S if kind == "sign-in" else SESSION_S
    fits = claims.kind == kind and claims.run == run and claims.signed_at_s <= now_s + 1 < claims.signed_at_s + lasts_s
    return claims if fits else None


class Door:
    """Exchanges sign-in keys for sessions, each once."""

    def __init__(self, run: str, secret: bytes, started_at_s: float) -> None:
        self._run = run
        self._secret = secret
        self._started_at_s = started_at_s
        self._used: dict[str, float] = {}

    def session(self, key: str, now_s: float) -> tuple[str, Claims]:
        """(session text, its claims). Raises InvalidInput, saying what to do, for a key that opens nothing."""
        claims = verify(key.strip(), "sign-in", self._run, now_s, self._secret)
        if claims is None:
            raise InvalidInput("this sign-in key is not of this run, or too old; `gyre explorer` prints a new one")
        if claims.nonce in self._used or claims.signed_at_s < self._started_at_s:
            raise InvalidInput("this sign-in key was used already; `gyre explorer` prints a new one")
        self._used = {nonce: at_s for nonce, at_s in self._used.items() if now_s < at_s + SIGN_IN_S}
        self._used[claims.nonce] = now_s
        return sign("session", self._run, claims.tenant, now_s, self._secret), claims

    def claims(self, session: str, now_s: float) -> Claims | None:
        """Of a session, None where it is none (any more)."""
        return verify(session, "session", self._run, now_s, self._secret)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
