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


class _UpToMark:
    """What stands before a mark, white space at its ends left aside; each character is looked at once."""

    def __init__(self, marks: Sequence[str]) -> None:
        """`marks`: whichever comes first ends it; none: nothing does."""
        self.said = ""
        self._marks = marks
        self._space = ""
        """Behind `said`: part of it when something follows."""
        self._begun = ""
        """Behind that: it may become a mark."""

    def push(self, text: str) -> str | None:
        """What stands behind the mark; None while there is none."""
        text = self._begun + text
        found = [(at, mark) for mark in self._marks if (at := text.find(mark)) >= 0]
        first, mark = min(found, default=(len(text), ""))
        end = first if found else min((len(_without_begun(text, mark)) for mark in self._marks), default=len(text))
        words, self._begun = text[:end].rstrip(), text[end:]
        if words:
            said, self.said = self.said, ""  # it grows in its place where nobody else has it (CPython)
            said += self._space + words if said else words.lstrip()
            self.said, self._space = said, text[len(words) : end]
        elif self.said:
            self._space += text[:end]
        return text[first + len(mark) :] if found else None


class SaidStream:
    """Reasoning and content as they become certain: each is a beginning of what `parse` says of the whole text."""

    def __init__(self, think_open: bool = False, family: Family = QWEN) -> None:
        self._think_open, think_close = family.think
        self._reasoning, self._content = _UpToMark((think_close,)), _UpToMark(family.held if family.open else ())
        self._bare_marks = () if family.open else family.held
        """What a call begins with where it stands alone."""
        self._channels = family.channels(think_open) if family.channels is not None else None
        self._text = ""
        """What does not say yet whether it is reasoning, content or a call."""
        self._state = "thinking" if think_open else "begin"
        self._is_first = True

    @property
    def reasoning(self) -> str:
        return self._reasoning.said

    @property
    def content(self) -> str:
        return self._content.said

    def push(self, text: str) -> None:
        self._text += text if self._channels is None else self._channels.push(text)
        if self._is_first and not self._begin():
            return
        text, self._text = self._text, ""
        if self._state == "thinking":
            after = self._reasoning.push(text)
            if after is None:
                return
            text, self._state = after, "content"
        if self._state == "content" and self._bare_marks:
            text = text.lstrip()
            if any(text.startswith(mark) for mark in self._bare_marks):
                self._state = "call"
            elif any(mark.startswith(text) for mark in self._bare_marks):
                self._text = text
                return
            self._bare_marks = ()
        if self._state == "content" and self._content.push(text) is not None:
            self._state = "call"

    def _begin(self) -> bool:
        """False while it is open whether the text begins with reasoning."""
        self._text = self._text.lstrip()
        open_ = self._think_open
        if len(self._text) < len(open_) and open_.startswith(self._text):
            return False
        if self._text.startswith(open_):
            self._text, self._state = self._text[len(open_) :], "thinking"
        elif self._state == "begin":
            self._state = "content"
        self._is_first = False
        return True


def ends_early(sampling: Sampling) -> bool:
    """Whether the output may have to end before the model ends it."""
    return bool(sampling.stop_sequences) or sampling.is_one_call


class OutputReader:
    """Reads a running call's tokens, also for where they must end: at a stop sequence, after the one call that is wanted."""

    def __init__(
        self, decode: Decode, stop_ids: Sequence[int], think_open: bool, sampling: Sampling, family: Family = QWEN
    ) -> None:
        self._decode = decode
        self._stop_ids = frozenset(stop_ids)
        self._think_open, self._family = think_open, family
        self._sampling, self._may_end = sampling, ends_early(sampling)
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

    def push(self, ids: Sequence[int]) -> int | None:
        """How many of all tokens so far are the output, when it must end there."""
        ids = [token for token in ids if token not in self._stop_ids]
        before = self._tokens.shown
        self._ids.extend(ids)
        text, self._text = self._text, ""  # it grows in its place where nobody else has it (CPython)
        text += self._tokens.push(ids)
        self._text = text
        del text
        if self._may_end and self._ends(self._text, max(0, self._told - self._longest), self._first_call):
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
