"""Rendering only what is new, so that it equals whole rendering and its cost does not grow with the history.

    recorded:  … <|im_start|>assistant\\n {sampled} <|im_end|>
    new:                                             \\n <|im_start|>user … <|im_end|>\\n <|im_start|>assistant\\n
                                                     ▲ `close` without the token that was sampled already

The text of new messages is rendered behind a short stand-in conversation, whose own text is then cut off: as a whole, or where its turn ends when the
template writes a turn otherwise once another one follows (Qwen3 leaves out its thoughts). Whether this template allows that is checked once at start
against whole rendering; where it does not, the true history stands in front (dearer, the recorded tokens are kept all the same).
"""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby, product
from operator import itemgetter
from typing import Any

from gyre.errors import ConfigError, InvalidInput
from services.rollout.core.callids import AS_GIVEN, NINE, NUMBERED, tool_call_id
from services.rollout.core.families import family_of
from services.rollout.core.normal import Call, Message, canonical_arguments
from services.rollout.core.template import ChatTemplate, Encode

Tools = Sequence[dict[str, Any]] | None

_MARK = "MARK7"
_STAND_IN = Message("user", "x")
_PLAIN_TURN = Message("assistant", "y")
_EARLIER = "MARK8"
_EARLIER_TURN = Message("assistant", _EARLIER)
_PARAMETERS = {"type": "object", "properties": {}}
_TOOL = {"type": "function", "function": {"name": "g", "description": "d", "parameters": _PARAMETERS}}
_BARE_TOOL = {"type": "function", "function": {"name": "g", "parameters": _PARAMETERS}}
_MARKED_TURN = Message("assistant", _MARK)
_SAMPLE_ARGUMENTS = '{"MARK7":  1}'


def _call_turn(name: str = "f", arguments: str = "{}") -> Message:
    return Message("assistant", "", (Call(tool_call_id("", 0, "0_f"), name, arguments),))


_CALL_TURN, _SAMPLE_TURN = _call_turn(), _call_turn("f", _SAMPLE_ARGUMENTS)


class Renderer:
    """Prompts of one model."""

    def __init__(self, template: ChatTemplate) -> None:
        """Raises ConfigError when the template cannot carry a conversation at all."""
        self._template = template
        self._as_text, self._system = True, ("system", "system")
        self._ids, self._has_none = AS_GIVEN, False
        self._reasoning, self._reasons_alone, self._describes = "reasoning_content", False, False
        self._alternates = False
        self._alternates = not self._takes_two()
        """Users' messages in a row are told as one: the template refuses or drops them."""
        self._learn_calls()
        self._system = tuple(
            "system" if self._takes_system(before) else "user" for before in ((), (_STAND_IN, _EARLIER_TURN))
        )
        """What system messages are shown as: the first message, a later one."""
        try:
            self.close = self._text([_STAND_IN, Message("assistant", _MARK)], None, False).rpartition(_MARK)[2]
            prompt = self._text([_STAND_IN], None, True)
            if self.close and not self._has_none and not self._ends_once():
                self._has_none = True
                self._has_none = self._ends_once()
            self.family = family_of(self._sample())
            if self.family.ids is not AS_GIVEN:
                self._ids = self.family.ids
            self._learn_ends()
        except InvalidInput as error:
            raise ConfigError(f"the model's chat template cannot render a plain conversation: {error}") from error
        self._learn_reasoning()
        self.close_ids, call_close = template.encode(self.close), template.encode(self._call_close)
        self._ends = {*self.close_ids[:1], *call_close[:1], *template.encode(self._past_close)[:1]}
        """Tokens that close a turn."""
        calls_stop = () if self._call_close == self.close else call_close[:1]
        self.stop_ids = tuple(dict.fromkeys((*template.stop_ids, *calls_stop)))
        """Tokens that end a turn: the model's, and what its template ends a turn of calls with."""
        self._names_calls = self._shows_names()
        self._describes = not self._takes_tool(_BARE_TOOL) and self._takes_tool(_TOOL)
        """A tool without a description gets an empty one: the template refuses it (gpt-oss)."""
        call_end = template.encode(self.family.close) if self.family.close and self.family.behind else []
        self._call_end = call_end[0] if len(call_end) == 1 else None
        """The token that ends a call, where calls stand in a section that something else ends."""
        self.think_open = prompt.rstrip().endswith(self.family.think[0])
        """The generation prompt itself opens the reasoning."""
        self.shows_ids = self._shows_ids()
        """Names of calls are part of what the model reads."""
        self.is_stable = self._check_stable()
        """Whether the stand-in gives what whole rendering gives."""

    def whole(
        self,
        messages: Sequence[Message],
        tools: Tools,
        payloads: Mapping[str, str] | None = None,
        encode: Encode | None = None,
    ) -> list[int]:
        """Ids of a conversation no part of which is on record; `encode`: how text becomes ids, where that is not the template's. Raises
        InvalidInput, and what `encode` raises."""
        return (encode or self._template.encode)(self._text(messages, tools, True, payloads))

    def after_reply(
        self,
        messages: Sequence[Message],
        known: int,
        last_id: int,
        tools: Tools,
        payloads: Mapping[str, str] | None = None,
        encode: Encode | None = None,
    ) -> list[int]:
        """Ids that follow a recorded context which ends with the reply `messages[known − 1]`, whose last sampled token is
        `last_id`. A turn that was cut before its end is closed here, by tokens nobody sampled, and so is the section of the one call that was
        wanted. Raises InvalidInput."""
        text = self._new_text(messages, known, tools, payloads)
        if last_id == self._call_end:
            return (encode or self._template.encode)(self.family.behind + self.close + text)
        close = self._call_close if messages[known - 1].calls else self._past_close
        ids = (encode or self._template.encode)(close + text)
        if self.close_ids:
            return ids[1:] if last_id in self._ends else ids
        # nothing closes a turn but the beginning of the next one, which the model samples (GLM)
        return ids[1:] if last_id in self._template.stop_ids and ids[:1] == [last_id] else ids

    def _new_text(
        self, messages: Sequence[Message], known: int, tools: Tools, payloads: Mapping[str, str] | None
    ) -> str:
        new = messages[known:]
        turn, marked = self._stand_in(messages, known)
        if not self.is_stable:
            before, after = (
                self._text(messages[:known], tools, False, payloads),
                self._text(messages, tools, True, payloads),
            )
            if after.startswith(before):
                return after[len(before) :]
        before = self._before.get(turn) or self._text([_STAND_IN, turn], None, False)
        after = self._text([_STAND_IN, turn, *new], None, True, payloads)
        if after.startswith(before):
            return after[len(before) :]
        text = self._behind_mark([_STAND_IN, marked, *new], payloads)
        if text is None:
            raise InvalidInput("the model's chat template rewrites earlier turns; these messages cannot follow")
        return text

    def _stand_in(self, messages: Sequence[Message], known: int) -> tuple[Message, Message]:
        """A turn as short as can be, of the kind of the one that the messages from `known` on follow; and one that has the mark."""
        if known == len(messages) or messages[known].role != "tool":
            return _PLAIN_TURN, _MARKED_TURN
        calls = messages[known - 1].calls
        if not self._names_calls or not calls:
            return _CALL_TURN, _SAMPLE_TURN
        return _call_turn(calls[0].name), _call_turn(calls[0].name, _SAMPLE_ARGUMENTS)

    def _behind_mark(self, messages: Sequence[Message], payloads: Mapping[str, str] | None = None) -> str | None:
        """What stands behind the turn that has the mark: for templates that write a turn otherwise once it is not the last (Qwen3's thoughts). None
        where the mark is gone, or nothing says where its turn ends."""
        text = self._text(messages, None, True, payloads)
        begun = text.find(_MARK)
        close = self._past_close
        end = text.find(close, begun) if begun >= 0 and close else -1
        return text[end + len(close) :] if end >= 0 else None

    def _check_stable(self) -> bool:
        """Compare with whole rendering at the kinds of places where a conversation goes on."""
        tools = [_TOOL]
        self.is_stable = True
        for count in (2, 1):  # calls of one turn: some templates take no more than one
            calls = tuple(Call(tool_call_id("", index, f"{index}_g"), "g", '{"a": 1}') for index in range(count))
            turn, results = Message("assistant", "", calls), [Message("tool", "r", (), call.call_id) for call in calls]
            talk = [Message("system", "s"), Message("user", "u"), turn, *results]
            talk += [Message("assistant", "t"), Message("user", "v"), turn, results[0]]
            ends = {3: 3 + count, 4 + count: 5 + count, 6 + count: 7 + count}
            try:
                return all(self._is_stable_at(talk, known, end, tools) for known, end in ends.items())
            except InvalidInput:
                pass
        return False

    def _is_stable_at(self, talk: Sequence[Message], known: int, end: int, tools: Tools) -> bool:
        """A template that tells of the tools with the user's newest words (Mistral) has told of them where the history is on record."""
        new = self._new_text(talk[:end], known, tools, None)
        for offered in (tools, None):
            before, after = self._text(talk[:known], offered, False), self._text(talk[:end], offered, True)
            if after.startswith(before):
                close = self._call_close if talk[known - 1].calls else self.close
                return before.endswith(close) and new == after[len(before) :]
        marked = self._stand_in(talk, known)[1]
        return new == self._behind_mark([*talk[: known - 1], marked, *talk[known:end]])

    def _learn_ends(self) -> None:
        """What else than a turn at the end ends with: gpt-oss writes another mark behind a turn of calls, and another one behind words that
        something follows."""
        self._call_close = self._past_close = self.close
        self._before = {turn: self._text([_STAND_IN, turn], None, False) for turn in (_PLAIN_TURN, _CALL_TURN)}
        call, own = self._before[_CALL_TURN], self.family.close
        if own and call.endswith(own) and not call.endswith(self.close):
            self._call_close = own
        later = Message("user", _EARLIER)
        _, mark, behind = self._text([_STAND_IN, _MARKED_TURN, later], None, False).rpartition(_MARK)
        first, both = self._text([_STAND_IN], None, False), self._text([_STAND_IN, later], None, False)
        said = both.removeprefix(first)
        if mark and not behind.startswith(self.close) and both.startswith(first) and behind.endswith(said):
            self._past_close = behind.removesuffix(said) or self.close

    def _learn_reasoning(self) -> None:
        """What the template calls the reasoning of a turn, and whether it takes it beside words and calls (gpt-oss refuses that)."""
        calls = _CALL_TURN.calls
        for self._reasoning in ("reasoning_content", "thinking"):
            if self._shows(Message("assistant", "", calls, reasoning=_EARLIER)):
                self._reasons_alone = not self._shows(Message("assistant", "y", calls, reasoning=_EARLIER))
                return

    def _shows(self, turn: Message) -> bool:
        try:
            return _EARLIER in self._text([_STAND_IN, turn], None, False)
        except InvalidInput:
            return False

    def _takes_tool(self, tool: dict[str, Any]) -> bool:
        try:
            return bool(self._text([_STAND_IN], [tool], False))
        except InvalidInput:
            return False

    def _shows_names(self) -> bool:
        """Whether the template says with a result whose it is, by the name of the call."""
        turn, result = _call_turn(_MARK), Message("tool", "r", (), _CALL_TURN.calls[0].call_id)
        try:
            before, after = (
                self._text([_STAND_IN, turn], None, False),
                self._text([_STAND_IN, turn, result], None, False),
            )
        except InvalidInput:
            return False
        return after.count(_MARK) > before.count(_MARK)

    def _shows_ids(self) -> bool:
        """Of a call, or of the one that a result answers; of a length that picky templates take."""
        name = f"{_MARK}CALL"
        talk = [_STAND_IN, Message("assistant", "", (Call(name, "f", "{}"),)), Message("tool", "r", (), name)]
        try:
            return self._ids is NUMBERED or name in self._text(talk, None, False)
        except InvalidInput:
            return False

    def _learn_calls(self) -> None:
        """What the template wants of calls: arguments as text, which it writes unchanged, else as objects; names as they are, else of nine letters
        or digits; beside them an empty content, else none (DeepSeek)."""
        for self._has_none, self._as_text, self._ids in product((False, True), (True, False), (AS_GIVEN, NINE)):
            try:
                written = self._sample()
            except InvalidInput:
                continue
            if (_SAMPLE_ARGUMENTS if self._as_text else _MARK) in written:
                return
        self._has_none, self._as_text, self._ids = False, False, AS_GIVEN

    def _sample(self) -> str:
        return self._text([_STAND_IN, _SAMPLE_TURN], None, False)

    def _ends_once(self) -> bool:
        """Whether a turn of calls is shown, and as one: some templates write a second one for its empty content (DeepSeek)."""
        try:
            written, plain = self._sample(), self._text([_STAND_IN, _PLAIN_TURN], None, False)
        except InvalidInput:
            return False
        return _MARK in written and written.count(self.close) <= plain.count(self.close)

    def _takes_two(self) -> bool:
        """Whether the template shows a user's message behind another one."""
        try:
            return _MARK in self._text([_STAND_IN, Message("user", _MARK)], None, False)
        except InvalidInput:
            return False

    def _takes_system(self, before: Sequence[Message]) -> bool:
        """Whether the template shows a system message there: some refuse it, some leave it out, some put it before all that was said."""
        try:
            text = self._text([*before, Message("system", _MARK), _STAND_IN], None, False)
        except InvalidInput:
            return False
        return text.find(_MARK) > text.find(_EARLIER)

    def _text(
        self, messages: Sequence[Message], tools: Tools, generation: bool, payloads: Mapping[str, str] | None = None
    ) -> str:
        named = self._ids.named(messages)
        plain = [self._plain(message, payloads or {}, named, index > 0) for index, message in enumerate(messages)]
        if tools and self._describes:
            tools = [{**tool, "function": {"description": "", **tool["function"]}} for tool in tools]
        return self._template.render(_in_turns(plain) if self._alternates else plain, tools, generation)

    def _plain(
        self, message: Message, payloads: Mapping[str, str], named: Mapping[str, str], is_late: bool
    ) -> dict[str, Any]:
        role = self._system[is_late] if message.role == "system" else message.role
        content = None if self._has_none and message.calls and not message.content else message.content
        plain: dict[str, Any] = {"role": role, "content": content}
        if message.reasoning and not (self._reasons_alone and message.calls and message.content):
            plain[self._reasoning] = message.reasoning
        if message.calls:
            plain["tool_calls"] = [
                {
                    "id": named.get(c.call_id) or self._ids.shown(c.call_id),
                    "type": "function",
                    "function": {"name": c.name, "arguments": self._arguments(c, payloads)},
                }
                for c in message.calls
            ]
        if message.role == "tool":
            plain["tool_call_id"] = named.get(message.tool_call_id) or self._ids.shown(message.tool_call_id)
        return plain

    def _arguments(self, call: Call, payloads: Mapping[str, str]) -> Any:
        """The model's own text where the harness sent the same in other clothes (B2; rounded ones: numbers.py); an edited one is the harness's."""
        text, own = call.arguments or "{}", payloads.get(call.call_id)
        if own is not None and own != text and canonical_arguments(own) == canonical_arguments(text):
            text = own
        if self._as_text:
            return text
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text


def _in_turns(plain: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What users, and a system that is told as one, say in a row is one message."""
    turns: list[dict[str, Any]] = []
    for role, messages in groupby(plain, key=itemgetter("role")):
        if role == "user":
            turns.append({"role": role, "content": "\n\n".join(message["content"] for message in messages)})
        else:
            turns += messages
    return turns
