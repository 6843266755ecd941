"""Tools of Anthropic's messages API that are named by a type instead of a schema.

| type | run by | here |
|---|---|---|
| `bash_…`, `text_editor_…`, `memory_…` | the harness | functions, with the schema that the API's documentation gives |
| `computer_…` | the harness | refused: its results are pictures |
| all others (`web_search_…`, `code_execution_…`, `mcp_toolset`, …) | Anthropic's servers | left out: nobody here runs them |
"""

import re
from typing import Any

from services.rollout.core.options import BadRequest

_KIND = re.compile(r"(bash|text_editor|memory|computer)_\d{8}")
_TEXT: dict[str, Any] = {"type": "string"}
_LINES: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}


def _commands(words: str, **more: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a tool that does several things, by `command`, to what is at a path."""
    return {
        "type": "object",
        "properties": {"command": {"type": "string", "enum": words.split()}, "path": _TEXT, **more},
        "required": ["command"],
    }


_EDITOR = _commands(
    "view create str_replace insert undo_edit", view_range=_LINES, file_text=_TEXT, old_str=_TEXT, new_str=_TEXT,
    insert_line={"type": "integer"}, insert_text=_TEXT,
)  # fmt: skip
_MEMORY = _commands(
    "view create str_replace insert delete rename", view_range=_LINES, file_text=_TEXT, old_str=_TEXT, new_str=_TEXT,
    insert_line={"type": "integer"}, insert_text=_TEXT, old_path=_TEXT, new_path=_TEXT,
)  # fmt: skip
_BASH = {"type": "object", "properties": {"command": _TEXT, "restart": {"type": "boolean"}}}
_OF_THE_HARNESS: dict[str, tuple[str, dict[str, Any]]] = {
    "bash": ("Run a command in a shell that stays open between calls, or restart that shell.", _BASH),
    "text_editor": ("View, create and edit files.", _EDITOR),
    "memory": ("View, create and edit the files in which memories are kept.", _MEMORY),
}


def own_form(tool: dict[str, Any], place: str) -> dict[str, Any] | None:
    """A tool as one with a schema; None for those that nobody here runs. Raises BadRequest."""
    kind = tool.get("type")
    if kind in (None, "custom"):
        return tool
    if not isinstance(kind, str):
        raise BadRequest(f"{place}.type must be text", f"{place}.type")
    named = _KIND.fullmatch(kind)
    if named is None:
        return None
    if named[1] == "computer":
        raise BadRequest(f"{place} is of type {kind}: this model reads text only", place, "unsupported_value")
    description, schema = _OF_THE_HARNESS[named[1]]
    return {"name": tool.get("name"), "description": description, "input_schema": schema}
