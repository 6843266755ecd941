"""What a call's tokens say while they come: only what is certain leaves early, so that plain and streamed replies are the same."""

from collections.abc import Callable, Sequence

from gyre.records import Sampling
from services.rollout.core.blocks import FirstCall
from services.rollout.core.families import QWEN, Family

Decode = Callable[[Sequence[int]], str]

BYTES_MAX = 4
"""Of a character in UTF-8; a token has at least one of them."""
SILENT_MAX = 64
"""Tokens without text after which more of them are no longer waited with."""


class TokenText:
    """Tokens in, text out: whole characters only, at a cost that does not grow with what came before."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._shown = 0
        """Tokens whose text is out."""
        self._window = 0
        """Where the last shown piece began: context for decoders that join pieces."""

    @property
    def shown(self) -> int:
        """Tokens whose text is out."""
        return self._shown

    def push(self, ids: Sequence[int]) -> str:
        self._ids.extend(ids)
        before = self._decode(self._ids[self._window : self._shown])
        for end in range(len(self._ids), max(self._shown, len(self._ids) - BYTES_MAX), -1):
            text = self._decode(self._ids[self._window : end])
            # a character that is open at the last of these ends was closed at none before: its first bytes are none of a character
            if not text.endswith("\ufffd") or len(self._ids) - end == BYTES_MAX - 1:
                return self._show(text, before, end)
        return ""

    def _show(self, text: str, before: str, end: int) -> str:
        if len(text) <= len(before) and end - self._shown <= SILENT_MAX:
            return ""
        self._window, self._shown = self._shown, end
        return text[len(before) :]


class SaidStream:
    """Reasoning and content as they become certain: each is a beginning of what `parse` says of the whole text."""

    def __init__(self, think_open: bool = False, family: Family = QWEN) -> None:
        self._think_open, self._think_close = family.think
        self._held, self._is_bare = family.held, not family.open
        self.reasoning = ""
        self.content = ""
        self._text = ""
        """What is still to be told; in the content, all of it."""
        self._state = "thinking" if think_open else "begin"
        self._is_first = True

    def push(self, text: str) -> None:
        self._text += text
        if self._is_first and not self._begin():
            return
        if self._state == "thinking":
            close = self._think_close
            inside, closed, after = self._text.partition(close)
            self.reasoning = self._longer(self.reasoning, inside if closed else _without_begun(inside, close))
            if not closed:
                return
            self._text, self._state = after, "content"
        certain = self._text
        if self._is_bare:
            begun = certain.lstrip()
            is_open = any(begun.startswith(mark) or mark.startswith(begun) for mark in self._held)
            self.content = self._longer(self.content, "" if is_open else certain)
            return
        for mark in self._held:
            certain, opened, _ = certain.partition(mark)
            if not opened:
                certain = _without_begun(certain, mark)
        self.content = self._longer(self.content, certain)

    def _begin(self) -> bool:
        """False while it is open whether the text begins with reasoning."""
        stripped = self._text.lstrip()
        open_ = self._think_open
        if len(stripped) < len(open_) and open_.startswith(stripped):
            return False
        if stripped.startswith(open_):
            self._text, self._state = stripped[len(open_) :], "thinking"
        elif self._state == "begin":
            self._state = "content"
        self._is_first = False
        return True

    @staticmethod
    def _longer(said: str, text: str) -> str:
        new = text.strip()
        return new if len(new) > len(said) else said


class OutputReader:
    """Reads a running call's tokens, also for where they must end: at a stop sequence, after the one call that is wanted."""

    def __init__(
        self, decode: Decode, stop_ids: Sequence[int], think_open: bool, sampling: Sampling, family: Family = QWEN
    ) -> None:
        self._decode = decode
        self._stop_ids = frozenset(stop_ids)
        self._think_open, self._family = think_open, family
        self._sampling = sampling
        self._longest = max((len(stop) for stop in sampling.stop_sequences), default=0)
        self._ids: list[int] = []
        self._tokens = TokenText(decode)
        self._text = ""
        self._told = 0
        """Characters that cannot become part of a stop sequence any more."""
        self._first_call = FirstCall(think_open, family) if sampling.is_one_call else None
        self._said = SaidStream(think_open, family)
        self._said.push(sampling.prefix)

    @property
    def reasoning(self) -> str:
        return self._said.reasoning

    @property
    def content(self) -> str:
        return self._said.content

    @property
    def is_watching(self) -> bool:
        """Whether the output may have to end before the model ends it."""
        return bool(self._longest) or self._sampling.is_one_call

    def push(self, ids: Sequence[int]) -> int | None:
        """How many of all tokens so far are the output, when it must end there."""
        ids = [token for token in ids if token not in self._stop_ids]
        before = self._tokens.shown
        self._ids.extend(ids)
        self._text += self._tokens.push(ids)
        if self.is_watching and self._ends(self._text, max(0, self._told - self._longest), self._first_call):
            for kept in range(before + 1, len(self._ids) + 1):
                if self._ends(self._decode(self._ids[:kept]), 0, FirstCall(self._think_open, self._family)):
                    self._said.push(before_stop(self._text, self._sampling.stop_sequences)[0][self._told :])
                    return kept
        certain = len(self._text)
        for stop in self._sampling.stop_sequences:
            certain = min(certain, len(_without_begun(self._text, stop)))
        self._said.push(self._text[self._told : certain])
        self._told = max(self._told, certain)
        return None

    def _ends(self, text: str, start: int, first_call: FirstCall | None) -> bool:
        if any(text.find(stop, start) >= 0 for stop in self._sampling.stop_sequences):
            return True
        if not self._sampling.is_one_call or first_call is None:
            return False
        return first_call.is_in(self._sampling.prefix + text)


def before_stop(text: str, stops: Sequence[str]) -> tuple[str, str]:
    """(text before the first stop sequence in it, that sequence); the text and nothing when there is none."""
    found = [(at, stop) for stop in stops if (at := text.find(stop)) >= 0]
    if not found:
        return text, ""
    at, stop = min(found, key=lambda one: (one[0], len(one[1])))
    return text[:at], stop


def _without_begun(text: str, word: str) -> str:
    """`text` less the longest end of it that begins `word`."""
    size = next((size for size in range(min(len(word) - 1, len(text)), 0, -1) if word.startswith(text[-size:])), 0)
    return text[: len(text) - size]
