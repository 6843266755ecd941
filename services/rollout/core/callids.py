"""Names of tool calls: what a harness is given, and what the model's template is shown of it.

    the model says     functions.edit:3            Kimi K2; Mistral's are nine letters or digits
    the harness has    call_<24 digits>_3_edit     one of its own for each call of a run; it may hold letters, digits, `_` and `-` only
    the template gets  functions.edit:3

A name carries what the template needs, so the prompt that follows a result needs nothing but the result. Calls that this gateway never named (a
conversation that was begun elsewhere) are numbered where the form has numbers.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.rollout.core.normal import Message

_NUMBERED_OWN = re.compile(r"(?:functions\.)?([A-Za-z0-9_-]{1,128}):(\d{1,9})")
_NUMBERED = re.compile(r"call_[0-9a-f]{24}_(\d+)_(.+)")
_NINE_OWN = re.compile(r"[A-Za-z0-9]{9}")
_NINE = re.compile(r"call_[0-9a-f]{24}_([A-Za-z0-9]{9})")


@dataclass(frozen=True, slots=True)
class CallIds:
    """One form of names."""

    kept: Callable[[str], str]
    """What of the model's own name the harness's carries."""
    shown: Callable[[str], str]
    """What the template is given for a harness's name."""
    named: Callable[[Sequence[Message]], Mapping[str, str]] = lambda messages: {}
    """What it is given instead for calls of these messages that this gateway never named."""


def tool_call_id(call_id: str, index: int, kept: str = "") -> str:
    """The same call gives the same ids, also from a gateway that started anew."""
    name = "call_" + hashlib.sha256(f"{call_id}/{index}".encode()).hexdigest()[:24]
    return f"{name}_{kept}" if kept else name


def _kept_number(own: str) -> str:
    said = _NUMBERED_OWN.fullmatch(own)
    return f"{said[2]}_{said[1]}" if said is not None else ""


def _numbered(name: str) -> str:
    given = _NUMBERED.fullmatch(name)
    return f"functions.{given[2]}:{given[1]}" if given is not None else name


def _counted(messages: Sequence[Message]) -> Mapping[str, str]:
    calls = [call for message in messages for call in message.calls]
    return {
        call.call_id: f"functions.{call.name}:{index}"
        for index, call in enumerate(calls)
        if not _NUMBERED.fullmatch(call.call_id) and not _NUMBERED_OWN.fullmatch(call.call_id)
    }


def _nine(name: str) -> str:
    if (given := _NINE.fullmatch(name)) is not None:
        return given[1]
    return name if _NINE_OWN.fullmatch(name) else hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:9]


AS_GIVEN = CallIds(lambda own: "", lambda name: name)
NUMBERED = CallIds(_kept_number, _numbered, _counted)
NINE = CallIds(lambda own: own if _NINE_OWN.fullmatch(own) else "", _nine)
