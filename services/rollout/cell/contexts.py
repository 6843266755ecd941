"""What calls had at this cell, prompt and output, so that the next prompt of a session is sent as what it adds.

    gateway                                    cell
      call 1: all ids of the prompt   ──▶      the engine; its output
      ◀── output, name `f3.1`                  f3.1 = prompt + output
      call 2: `f3.1`, 4096 of its     ──▶      4096 tokens of f3.1 + those ids
      tokens, the ids that follow              NOT_FOUND where f3.1 is not known: the gateway asks again with all ids

A name is this process's own and is given once, so no other context can ever be meant by it.
"""

import itertools
import os
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from gyre.errors import NotFound
from services.rollout.core.trie import Context, Ids

TOKENS_MAX = 32 << 20
"""Of all sessions, 128 MiB; the longest unused are forgotten first. A context that goes on from another one is only what it adds."""


class Contexts:
    """Of one cell."""

    def __init__(self, tokens_max: int = TOKENS_MAX) -> None:
        self._tokens_max = tokens_max
        self._ours, self._serial = os.urandom(6).hex(), itertools.count()
        self._sessions: OrderedDict[str, dict[str, Context]] = OrderedDict()
        """By name; the session that was used last at the end."""
        self._tokens: dict[str, int] = {}
        """Session → tokens of its contexts' own."""
        self._sum = 0

    def find(self, session: str, name: str, kept: int) -> Context | None:
        """The context whose first `kept` tokens a prompt begins with; None where it names none. Raises NotFound."""
        if not name:
            return None
        found = self._sessions.get(session, {}).get(name)
        if found is None or not 0 <= kept <= found.length:
            raise NotFound(f"{kept} tokens of context {name} of {session} are not known here; send the whole prompt")
        self._sessions.move_to_end(session)
        return found

    def keep(self, session: str, parent: Context | None, kept: int, prompt: Ids, output: Sequence[int]) -> str:
        """A call's context: the first `kept` tokens of `parent`'s, then `prompt` and `output`; its name. Empty where `parent` was forgotten
        meanwhile: all that it stands on would be held, and not counted."""
        if parent is not None and parent.call_id not in self._sessions.get(session, {}):
            return ""
        own = np.concatenate([prompt, np.array(output, np.int32)])
        name = f"{self._ours}.{next(self._serial)}"
        of_session = self._sessions.setdefault(session, {})
        self._sessions.move_to_end(session)
        of_session[name] = Context(name, parent, kept if parent is not None else 0, own, 0)
        self._tokens[session] = self._tokens.get(session, 0) + len(own)
        self._sum += len(own)
        while self._sum > self._tokens_max:
            oldest, _ = self._sessions.popitem(last=False)
            self._sum -= self._tokens.pop(oldest)
        return name


def whole(parent: Context | None, kept: int, ids: Ids) -> Ids:
    """int32: the first `kept` tokens of `parent`'s context, then `ids`."""
    return ids if parent is None else np.concatenate([*parent.pieces(kept), ids])
