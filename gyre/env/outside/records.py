"""The records of a tool gateway that is a process of its own: one tape for each execution that comes with the key."""

import logging
import re
import secrets
from pathlib import Path

from gyre.env.outside.gateway import ToolGateway
from gyre.env.recording import Journal, Redactor, Tape
from gyre.env.recording.entries import Checkpoint
from gyre.errors import GyreError

log = logging.getLogger(__name__)

EXECUTIONS_MAX = 1024
"""At once; the one that came first is let go for the next, its record stays and is opened again when it is back."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class Records:
    """Lets executions into `gateway`."""

    def __init__(self, gateway: ToolGateway, state: Path, redactor: Redactor, key: str, quota: int) -> None:
        self._gateway, self._folder, self._redactor, self._key, self._quota = (
            gateway,
            state / "records",
            redactor,
            key,
            quota,
        )
        self._journals: dict[str, Journal] = {}
        gateway.stranger = self._admit
        gateway.over = self._over

    def close(self) -> None:
        for journal in self._journals.values():
            journal.close()
        self._journals.clear()

    def _admit(self, user: str, password: str) -> str | None:
        """Whoever has the key is the execution that it names."""
        name, _, key = (user, "", password) if user else password.partition(":")
        if not _NAME.fullmatch(name) or not secrets.compare_digest(key.encode() or b"-", self._key.encode()):
            return None
        if name not in self._journals:
            if len(self._journals) >= EXECUTIONS_MAX:
                self._let_go(next(iter(self._journals)))
            try:
                journal = self._journals[name] = self._opened(name)
            except (GyreError, OSError) as error:
                log.warning("%s is not let out: %s", name, error)
                return None
            self._gateway.admit(name, lambda: journal, f"{name}:{self._key}")
        return name

    def _opened(self, name: str) -> Journal:
        """Its record, to be repeated first where it did not end."""
        journal = Journal(Tape(self._folder / f"{name}.outside.tape", self._redactor), quota=self._quota)
        is_replay = journal.checkpoint is not None and not journal.is_over
        journal.begin(name, is_replay=is_replay)
        if not is_replay:
            journal.keep(Checkpoint(ordinal=0, turn=0, messages="[]"))
        return journal

    def _over(self, name: str) -> None:
        if name in self._journals:
            self._journals[name].over("ended")
            self._let_go(name)

    def _let_go(self, name: str) -> None:
        self._journals.pop(name).close()
        self._gateway.forget(name)
