"""Turns of several messages in channels, as gpt-oss writes them (harmony), told as one turn in the form that all other families have.

    <|channel|>analysis<|message|>hm<|end|>                                        reasoning
    <|start|>assistant<|channel|>commentary<|message|>I look.<|end|>               content, as `final` is
    <|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>   a call; `to=` may stand behind the channel, too

become  <|channel|>analysis<|message|>hm<|end|>I look.<|channel|>commentary to=functions.f…<|message|>{}<|call|>

The first message's `<|start|>assistant` is the prompt's. Reasoning that comes behind content or calls is not told: what is told early cannot be
taken back. What is no head of a message is text, and stays in the message where it stands.
"""

import re

THINK = ("<|channel|>analysis<|message|>", "<|end|>")
OPEN, CLOSE = "<|channel|>commentary to=", "<|call|>"
FINAL = "<|channel|>final<|message|>"
MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|return|>", CLOSE)
CALL_HEAD = (
    r"\s{0,8}(?:functions\.)?(?P<name>[^\s<>|]{1,128})(?=[\s<])"
    r"[^<\n]{0,64}+(?:<\|(?:constrain|channel)\|>[^<\n]{0,64}+){0,2}+<\|message\|>\s{0,8}"
)
"""What stands between OPEN and a call's arguments, for calls_headed.py."""

_START = "<|start|>assistant"
_BEGINNINGS = (_START, "<|channel|>", "to=")
_HEAD_CHARS_MAX = 400
"""A head is no longer."""
_HEAD = re.compile(
    r"(?:<\|start\|>assistant)?(?P<head> {0,8}+(?:to=(?P<first>[^\s<>|]{1,140}+) {0,8}+)?"
    r"(?:<\|channel\|> {0,8}+(?P<channel>\w{1,32}+) {0,8}+(?:to=(?P<later>[^\s<>|]{1,140}+))?)?"
    r"[^<\n]{0,64}+(?:<\|(?:constrain|channel)\|>[^<\n]{0,64}+){0,2}+<\|message\|>)"
)
"""Possessive throughout: a text that is no head is known for none at once, whatever it repeats."""
_NO_HEAD = re.compile(r"\n|<\|(?:start|message|end|return|call)\|>")
"""What no head goes on behind."""
_SPACE = re.compile(r"\s*")
_TEXT_ENDS = re.compile(r"<\|(?:end|return|start|channel)\|>")
_CALL_ENDS = re.compile(r"<\|(?:end|return|start|call)\|>")
_JSON_ENDS = re.compile(r'"|<\|(?:end|return|start|call)\|>')
_MARK_BEGUN = re.compile(r"<(?:\|\w{0,8}\|?)?\Z")
_MARK_CHARS_MAX = 11
_IN_STRING = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


class Channels:
    """Reads one turn piece by piece, each character a few times at most."""

    marks = MARKS

    def __init__(self, think_open: bool) -> None:
        """`think_open`: the prompt already opened the reasoning."""
        self._raw, self._at = "", 0
        self._message = "thinking" if think_open else ""
        """`thinking`, `hidden`, `words` or `call`; empty: none has begun since the last one ended."""
        self._is_head = not think_open
        """A head may stand here."""
        self._told = self._message
        """The newest thing that is told: nothing, `thinking`, or else."""
        self._ends: re.Pattern[str] | None = None
        """What a call may end with; None: that depends on what it begins with."""
        self._in_string = False
        """A text of a call's JSON is open: it may hold all marks."""

    def push(self, text: str) -> str:
        """What is certain now."""
        self._raw, self._at = self._raw[self._at :] + text, 0
        told = []
        while (piece := self._head() if self._is_head else self._body()) is not None:
            told.append(piece)
        return "".join(told)

    def end(self) -> str:
        """The rest, where nothing more comes: a head that is cut says nothing, but that of a call is text as a cut call is."""
        rest, self._at = self._raw[self._at :], len(self._raw)
        if not rest or (self._is_head and "to=" not in rest and rest.startswith(("<|start|>", "<|channel|>"))):
            return ""
        begun = "" if self._message else self._begin("words")
        return begun + self._shown(rest.removeprefix(_START) if self._is_head else rest)

    def _head(self) -> str | None:
        """None: it is open whether one stands here."""
        self._at = at = _SPACE.match(self._raw, self._at).end()  # type: ignore[union-attr]
        rest = self._raw[at : at + _HEAD_CHARS_MAX]
        if any(beginning.startswith(rest) for beginning in _BEGINNINGS):
            return None
        if rest.startswith(_BEGINNINGS):
            if (head := _HEAD.match(self._raw, at, at + _HEAD_CHARS_MAX)) is not None:
                self._at, self._is_head = head.end(), False
                return self._headed(head)
            if len(rest) < _HEAD_CHARS_MAX and _NO_HEAD.search(rest, len("<")) is None:
                return None
        self._at, self._is_head = at + 1, False
        return ("" if self._message else self._begin("words")) + self._shown(self._raw[at])

    def _headed(self, head: re.Match[str]) -> str:
        if to := head["first"] or head["later"]:
            self._ends = None
            written = head["head"].lstrip()
            return self._begin("call") + (written if written.startswith(OPEN) else f"{OPEN}{to}<|message|>")
        return self._begin("thinking" if head["channel"] == "analysis" else "words")

    def _begin(self, message: str) -> str:
        """What stands before a message of this kind."""
        before, self._message = self._told, message
        if message == "thinking" and before not in ("", "thinking"):
            self._message = "hidden"
            return ""
        self._told = message
        if message == "thinking":
            return "\n\n" if before else THINK[0]
        if before == "thinking":
            return THINK[1]
        return "\n\n" if before and message == "words" else ""

    def _shown(self, text: str) -> str:
        return "" if self._message == "hidden" else text

    def _body(self) -> str | None:
        """None: nothing more is certain."""
        if self._message == "call":
            return self._call()
        ended = _TEXT_ENDS.search(self._raw, self._at)
        if ended is None:
            return self._all_but_a_mark()
        text = self._shown(self._raw[self._at : ended.start()])
        self._at, self._is_head = ended.start(), True
        if ended[0] in ("<|end|>", "<|return|>"):
            self._at, self._message = ended.end(), ""
        return text

    def _call(self) -> str | None:
        raw, begun = self._raw, self._at
        if self._in_string:
            self._at = at = _IN_STRING.match(raw, begun).end()  # type: ignore[union-attr]
            if raw.startswith('"', at):
                self._at, self._in_string = at + 1, False
            return raw[begun : self._at] or None
        if self._ends is None:
            if (first := _SPACE.match(raw, begun).end()) == len(raw):  # type: ignore[union-attr]
                return self._all_but_a_mark()
            self._ends = _JSON_ENDS if raw[first] == "{" else _CALL_ENDS
        ended = self._ends.search(raw, begun)
        if ended is None:
            return self._all_but_a_mark()
        self._at = ended.end()
        if ended[0] == '"':
            self._in_string = True
            return raw[begun : self._at]
        self._message, self._is_head = "", True
        if ended[0] == "<|start|>":
            self._at = ended.start()
        return raw[begun : ended.start()] + CLOSE

    def _all_but_a_mark(self) -> str | None:
        """The text that is there, but its end where that may become a mark."""
        begun = self._at
        mark = _MARK_BEGUN.search(self._raw, max(begun, len(self._raw) - _MARK_CHARS_MAX))
        self._at = mark.start() if mark is not None else len(self._raw)
        return self._shown(self._raw[begun : self._at]) if self._at > begun else None


def as_one_turn(text: str, think_open: bool) -> str:
    """A whole turn."""
    channels = Channels(think_open)
    return channels.push(text) + channels.end()
