"""Rendering only what is new, so that it equals whole rendering and its cost does not grow with the history.

    recorded:  … <|im_start|>assistant\\n {sampled} <|im_end|>
    new:                                             \\n <|im_start|>user … <|im_end|>\\n <|im_start|>assistant\\n
                                                     ▲ `close` without the token that was sampled already

The text of new messages is rendered behind a short stand-in conversation, whose own text is then cut off. Whether this
template allows that is checked once at start against whole rendering; where it does not, the true history stands in front
(dearer, the recorded tokens are kept all the same).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gyre.errors import ConfigError, InvalidInput
from services.rollout.core.calls_xml import MARK
from services.rollout.core.normal import Call, Message, canonical_arguments
from services.rollout.core.template import ChatTemplate, Encode
from services.rollout.core.toolcalls import THINK_OPEN

Tools = Sequence[dict[str, Any]] | None

_MARK = "MARK7"
_STAND_IN = Message("user", "x")
_PLAIN_TURN = Message("assistant", "y")
_CALL_TURN = Message("assistant", "", (Call("call_0", "f", "{}"),))


class Renderer:
    """Prompts of one model."""

    def __init__(self, template: ChatTemplate) -> None:
        """Raises ConfigError when the template cannot carry a conversation at all."""
        self._template = template
        self._as_text, self._system = True, ("system", "system")
        self._alternates = False
        self._alternates = not self._takes_two()
        """Users' messages in a row are told as one: the template refuses or drops them."""
        self._as_text = self._takes_text()
        self._system = tuple(
            "system" if self._takes_system(before) else "user" for before in ((), (_STAND_IN, _PLAIN_TURN))
        )
        """What system messages are shown as: the first message, a later one."""
        try:
            self.close = self._text([_STAND_IN, Message("assistant", _MARK)], None, False).rpartition(_MARK)[2]
            prompt = self._text([_STAND_IN], None, True)
            self._before = {turn: self._text([_STAND_IN, turn], None, False) for turn in (_PLAIN_TURN, _CALL_TURN)}
        except InvalidInput as error:
            raise ConfigError(f"the model's chat template cannot render a plain conversation: {error}") from error
        self.close_ids = template.encode(self.close)
        self.think_open = prompt.rstrip().endswith(THINK_OPEN)
        """The generation prompt itself opens the reasoning."""
        self.is_xml = MARK in self._before[_CALL_TURN]
        """Calls stand between marks instead of being JSON (calls_xml.py)."""
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
        `last_id`. A turn that was cut before its end is closed here, by tokens nobody sampled. Raises InvalidInput."""
        text = self._new_text(messages, known, tools, payloads)
        ids = (encode or self._template.encode)(self.close + text)
        if self.close_ids and last_id == self.close_ids[0]:
            return ids[1:]
        return ids

    def _new_text(
        self, messages: Sequence[Message], known: int, tools: Tools, payloads: Mapping[str, str] | None
    ) -> str:
        new = messages[known:]
        turn = _CALL_TURN if new and new[0].role == "tool" else _PLAIN_TURN
        if self.is_stable:
            before, after = self._before[turn], self._text([_STAND_IN, turn, *new], None, True, payloads)
        else:
            before, after = (
                self._text(messages[:known], tools, False, payloads),
                self._text(messages, tools, True, payloads),
            )
            if not after.startswith(before):
                before, after = self._before[turn], self._text([_STAND_IN, turn, *new], None, True, payloads)
        if not after.startswith(before):
            raise InvalidInput("the model's chat template rewrites earlier turns; these messages cannot follow")
        return after[len(before) :]

    def _check_stable(self) -> bool:
        """Compare with whole rendering at the kinds of places where a conversation goes on."""
        tools = [
            {
                "type": "function",
                "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}},
            }
        ]
        call = Message("assistant", "", (Call("call_1", "f", '{"a": 1}'), Call("call_2", "f", "{}")))
        talk = [
            Message("system", "s"), Message("user", "u"), call, Message("tool", "r", (), "call_1"), Message("tool", "r2", (), "call_2"),
            Message("assistant", "t"), Message("user", "v"), call, Message("tool", "r3", (), "call_1"),
        ]  # fmt: skip
        ends = {3: 5, 6: 7, 8: 9}
        self.is_stable = True
        for known, end in ends.items():
            try:
                before, after = self._text(talk[:known], tools, False), self._text(talk[:end], tools, True)
                if not before.endswith(self.close) or not after.startswith(before):
                    return False
                if self._new_text(talk[:end], known, tools, None) != after[len(before) :]:
                    return False
            except InvalidInput:
                return False
        return True

    def _shows_ids(self) -> bool:
        """Of a call, or of the one that a result answers; of a length that picky templates take."""
        name = f"{_MARK}CALL"
        talk = [_STAND_IN, Message("assistant", "", (Call(name, "f", "{}"),)), Message("tool", "r", (), name)]
        try:
            return name in self._text(talk, None, False)
        except InvalidInput:
            return False

    def _takes_text(self) -> bool:
        """Whether the template writes arguments given as text unchanged (else it gets objects)."""
        try:
            return '{"k":  1}' in self._text(
                [_STAND_IN, Message("assistant", "", (Call("call_0", "f", '{"k":  1}'),))], None, False
            )
        except InvalidInput:
            return False

    def _takes_two(self) -> bool:
        """Whether the template shows a user's message behind another one."""
        try:
            return _MARK in self._text([_STAND_IN, Message("user", _MARK)], None, False)
        except InvalidInput:
            return False

    def _takes_system(self, before: Sequence[Message]) -> bool:
        """Whether the template shows a system message there: some refuse it, some leave it out."""
        try:
            return _MARK in self._text([*before, Message("system", _MARK), _STAND_IN], None, False)
        except InvalidInput:
            return False

    def _text(
        self, messages: Sequence[Message], tools: Tools, generation: bool, payloads: Mapping[str, str] | None = None
    ) -> str:
        plain = [self._plain(message, payloads or {}, index > 0) for index, message in enumerate(messages)]
        return self._template.render(_in_turns(plain) if self._alternates else plain, tools, generation)

    def _plain(self, message: Message, payloads: Mapping[str, str], is_late: bool) -> dict[str, Any]:
        role = self._system[is_late] if message.role == "system" else message.role
        plain: dict[str, Any] = {"role": role, "content": message.content}
        if message.reasoning:
            plain["reasoning_content"] = message.reasoning
        if message.calls:
            plain["tool_calls"] = [
                {
                    "id": c.call_id,
                    "type": "function",
                    "function": {"name": c.name, "arguments": self._arguments(c, payloads)},
                }
                for c in message.calls
            ]
        if message.role == "tool":
            plain["tool_call_id"] = message.tool_call_id
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
    for message in plain:
        if message["role"] == "user" and turns and turns[-1]["role"] == "user":
            turns[-1] = {"role": "user", "content": f"{turns[-1]['content']}\n\n{message['content']}"}
        else:
            turns.append(message)
    return turns
