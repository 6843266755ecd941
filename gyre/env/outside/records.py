"""The records of a tool gateway that is a process of its own: one tape for each execution that comes with its token.

host ── key ──────────▶ GET, DELETE /usage of any execution; nothing else
sandbox ── token ─────▶ its calls, GET /usage          token = base64url(HMAC-SHA256(key, name)), so nobody has to keep it
"""

import base64
import hmac
import logging
import re
import secrets
from pathlib import Path

from gyre.env.outside.gateway import ToolGateway, usage_reply
from gyre.env.outside.wire import Reply, Request
from gyre.env.recording import Journal, Redactor, Tape
from gyre.env.recording.entries import Checkpoint
from gyre.errors import GyreError

log = logging.getLogger(__name__)

EXECUTIONS_MAX = 1024
"""At once; the one that came first is let go for the next, its record stays and is opened again when it is back."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def token_of(name: str, key: str) -> str:
    """What opens the execution `name` and no other one, and does not tell the key."""
    return base64.urlsafe_b64encode(hmac.digest(key.encode(), name.encode(), "sha256")).decode().rstrip("=")


class Records:
    """Lets executions into `gateway`."""

    def __init__(self, gateway: ToolGateway, state: Path, redactor: Redactor, key: str, quota: int) -> None:
        """`key` is the host's; `quota` an execution's calls in all, also after its record was ended."""
        self._gateway, self._folder, self._redactor, self._key, self._quota = (
            gateway,
            state / "records",
            redactor,
            key,
            quota,
        )
        self._journals: dict[str, Journal] = {}
        gateway.stranger = self._admit
        gateway.host = self._asked_by_host

    def close(self) -> None:
        for journal in self._journals.values():
            journal.close()
        self._journals.clear()

    def _admit(self, user: str, password: str) -> str | None:
        """Whoever has an execution's token is that execution."""
        name, token = _named(user, password)
        if not _is_same(token, token_of(name, self._key)):
            return None
        return name if self._is_open(name) else None

    def _asked_by_host(self, request: Request) -> Reply | None:
        """The reply to who has the key; None: it is somebody else."""
        name, key = _named(*request.credentials("authorization"))
        if request.target != "/usage" or request.method not in ("GET", "DELETE") or not _is_same(key, self._key):
            return None
        if not self._is_open(name):
            return None
        said = usage_reply(self._gateway.gate(name))
        if request.method == "DELETE":
            self._journals[name].over("ended")
            self._let_go(name)
        return said

    def _is_open(self, name: str) -> bool:
        if not _NAME.fullmatch(name):
            return False
        if name not in self._journals:
            if len(self._journals) >= EXECUTIONS_MAX:
                self._let_go(next(iter(self._journals)))
            try:
                journal = self._journals[name] = self._opened(name)
            except (GyreError, OSError) as error:
                log.warning("%s is not let out: %s", name, error)
                return False
            self._gateway.admit(name, lambda: journal, f"{name}:{token_of(name, self._key)}")
        return True

    def _opened(self, name: str) -> Journal:
        """Its record, to be repeated first where it did not end."""
        journal = Journal(
            Tape(self._folder / f"{name}.outside.tape", self._redactor), quota=self._quota, quota_lasts=True
        )
        is_replay = journal.checkpoint is not None and not journal.is_over
        journal.begin(name, is_replay=is_replay)
        if not is_replay:
            journal.keep(Checkpoint(ordinal=0, turn=0, messages="[]"))
        return journal

    def _let_go(self, name: str) -> None:
        self._journals.pop(name).close()
        self._gateway.forget(name)


def _named(user: str, password: str) -> tuple[str, str]:
    """(name, word) of Basic credentials, or of NAME:WORD as a Bearer's."""
    name, _, word = (user, "", password) if user else password.partition(":")
    return name, word


def _is_same(given: str, word: str) -> bool:
    return secrets.compare_digest(given.encode(errors="replace"), word.encode())
