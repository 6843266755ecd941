"""Text of a streamed reply: only what is certainly content leaves early, so that plain and streamed replies are the same."""

from collections.abc import Callable, Sequence

from services.rollout.core.toolcalls import OPEN, THINK_CLOSE, THINK_OPEN

Decode = Callable[[Sequence[int]], str]


class TokenText:
    """Tokens in, text out: whole characters only, at a cost that does not grow with what came before."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._shown = 0
        """Tokens whose text is out."""
        self._window = 0
        """Where the last shown piece began: context for decoders that join pieces."""

    def push(self, ids: Sequence[int]) -> str:
        self._ids.extend(ids)
        before = self._decode(self._ids[self._window : self._shown])
        text = self._decode(self._ids[self._window :])
        if len(text) <= len(before) or text.endswith("�"):
            return ""
        self._window, self._shown = self._shown, len(self._ids)
        return text[len(before) :]


class ContentStream:
    """Releases the start of the content as it becomes certain; what `push` gave is a prefix of `parse(text).content`."""

    def __init__(self, think_open: bool = False) -> None:
        self._text = ""
        self._reasoning = think_open
        self._reasoned = False
        """Reasoning was skipped; there is no second one."""
        self._begun = False
        self._sent = 0

    def push(self, text: str) -> str:
        self._text += text
        if not self._begun and not self._begin():
            return ""
        certain = self._text
        if (at := certain.find(OPEN)) >= 0:
            certain = certain[:at]
        else:
            certain = certain[: len(certain) - _overlap(certain, OPEN)]
        certain = certain.rstrip()
        new = certain[self._sent :]
        self._sent = max(self._sent, len(certain))
        return new

    def _begin(self) -> bool:
        """Skip reasoning and white space; False while it is open whether reasoning comes."""
        stripped = self._text.lstrip()
        if self._reasoning or (stripped.startswith(THINK_OPEN) and not self._reasoned):
            _, closed, after = self._text.partition(THINK_CLOSE)
            if not closed:
                return False
            self._text, self._reasoning, self._reasoned = after, False, True
            stripped = after.lstrip()
        elif THINK_OPEN.startswith(stripped) and not self._reasoned:
            return False
        self._text = stripped
        self._begun = bool(stripped)
        return self._begun


def _overlap(text: str, word: str) -> int:
    """Length of the longest end of `text` that begins `word`."""
    return next((size for size in range(min(len(word), len(text)), 0, -1) if word.startswith(text[-size:])), 0)
