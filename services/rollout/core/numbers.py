"""Numbers of tool arguments that come back as doubles (B2).

    the model says       {"id": 1234567890123456789}
    comes back           {"id": 1234567890123456800}   what JavaScript's JSON.parse and JSON.stringify leave of it, and others' that have doubles only

Calls that differ in such a number are different calls, so histories are told apart by exact numbers (normal.canonical_arguments). A rounded call is
known again by its name, or by being what one recorded call alone is rounded to, and gets the model's own words back. Any other number is an edit.
"""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from re import compile as expression

from services.rollout.core.normal import Call, Message, canonical_arguments, finite

EXACT_MAX = 2**53
"""Every whole number up to it is a double."""
PLAIN_BELOW = 1e21
"""JavaScript writes larger ones with an exponent."""
_LARGE = expression(r"\d{16}|[eE]\+?\d\d")
"""In all arguments that have a number beyond EXACT_MAX, and in few others."""


class Rounded:
    """One session's calls that do not come back whole from everybody."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[str, str]] = {}
        """Name of a recorded call with large numbers → its arguments, and their canonical form once they are rounded."""
        self._by_form: dict[str, str] = {}
        """That form → the arguments that have it; empty where recorded calls differ in them."""
        self._is_any = False

    def know(self, payloads: Mapping[str, str]) -> None:
        """Recorded calls by name, their arguments as the model wrote them."""
        for name, own in payloads.items():
            if not _LARGE.search(own):
                continue
            form, exact = canonical_arguments(own, _by_javascript), canonical_arguments(own)
            self._by_name[name] = own, form
            same = self._by_form.setdefault(form, own)
            if canonical_arguments(same) != exact:
                self._by_form[form] = ""
            self._is_any |= form != exact

    def restored(self, messages: list[Message], payloads: Mapping[str, str]) -> list[Message]:
        """The same messages, rounded calls as they were; `payloads`: of all recorded calls."""
        if not self._is_any:
            return messages
        return [self._message(message, payloads) if message.calls else message for message in messages]

    def _message(self, message: Message, payloads: Mapping[str, str]) -> Message:
        calls = tuple(self._call(call, payloads) for call in message.calls)
        if calls == message.calls:
            return message
        return Message(message.role, message.content, calls, reasoning=message.reasoning)

    def _call(self, call: Call, payloads: Mapping[str, str]) -> Call:
        if (known := self._by_name.get(call.call_id)) is not None:
            own, form = known
            is_rounded = own != call.arguments and canonical_arguments(call.arguments) == form
            return replace(call, arguments=own) if is_rounded else call
        if call.call_id in payloads or not _LARGE.search(call.arguments):
            return call
        own = self._by_form.get(canonical_arguments(call.arguments), "")
        return replace(call, arguments=own) if own else call


def _by_javascript(text: str) -> int | float | str:
    """The number that others read where JavaScript has read this one and written it."""
    number = finite(text)
    if isinstance(number, str) or not number.is_integer():
        return number
    if abs(number) <= EXACT_MAX or abs(number) >= PLAIN_BELOW:
        return int(number)
    return int(Decimal(repr(number)))  # the fewest digits that are this double, then zeros
