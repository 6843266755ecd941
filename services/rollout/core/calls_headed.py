"""Tool calls whose name stands between marks, before their arguments as a JSON object (Kimi K2, DeepSeek V3, Mistral).

<|tool_call_begin|>functions.edit:0<|tool_call_argument_begin|>{"path": "a.py"}<|tool_call_end|>
[TOOL_CALLS]edit[ARGS]{"path": "a.py"}
"""

import re

from services.rollout.core.calls_json import Read, Said, json_arguments
from services.rollout.core.calls_xml import Schemas
from services.rollout.core.opencalls import JsonSkim, Skim

HEAD_CHARS_MAX = 400
"""What stands before the arguments is no longer; what is longer is none."""
FENCE = "```"


class Headed:
    """One family's form."""

    def __init__(self, head: str, close: str, is_fenced: bool = False) -> None:
        """`head`: an expression for what stands between the opening mark and the arguments, with a group `name` and maybe `own`; it must not be
        able to go on without end. `close`: the closing mark, if it has one. `is_fenced`: arguments may end with three backticks."""
        self._head = re.compile(head)
        self._has_own = "own" in self._head.groupindex
        self._close = close
        self._is_fenced = is_fenced

    def read(self, text: str, at: int, schemas: Schemas) -> Read:
        """The call behind an opening mark that ends at `at`. None instead of arguments, or nothing before the closing mark, is no arguments."""
        head = self._head.match(text, at)
        if head is None:
            return None, self._broken(text, at)
        begin, own = head.end(), (head["own"] or "") if self._has_own else ""
        if text.startswith("{", begin):
            said, end = json_arguments(text, begin, head["name"], own)
            return (said, end) if said is None or end is None else self._behind(text, said, end)
        if text.startswith("null", begin):
            return self._behind(text, Said(head["name"], "{}", own), begin + len("null"))
        if self._close and text.startswith(self._close, begin):
            return Said(head["name"], "{}", own), begin
        return None, self._broken(text, at)

    def skim(self, text: str, at: int) -> Skim | None:
        """Of a call that is open."""
        head = self._head.match(text, at)
        return JsonSkim(head.end()) if head is not None and text.startswith("{", head.end()) else None

    def _behind(self, text: str, said: Said, end: int) -> Read:
        while end < len(text) and text[end].isspace():
            end += 1
        if self._is_fenced:
            if text.startswith(FENCE, end):
                end += len(FENCE)
                while end < len(text) and text[end].isspace():
                    end += 1
            elif end < len(text) and FENCE.startswith(text[end:]):
                return None, None
        return said, end

    @staticmethod
    def _broken(text: str, at: int) -> int | None:
        """None where more text may make a head of it."""
        return None if len(text) - at <= HEAD_CHARS_MAX else at
