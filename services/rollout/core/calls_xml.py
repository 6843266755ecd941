"""Tool calls as Qwen3-Coder and its successors write them: texts between marks instead of JSON.

    <function=edit>
    <parameter=path>
    a.py
    </parameter>
    </function>

What a value is follows from the tool's schema, as the model was shown it: text where it says so or says nothing, else JSON. Python's words for
true, false and none are taken, too: the model's own template writes them so in its history.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from services.rollout.core.normal import finite

MARK = "<function="
_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*?)(?:</function>\s*)?", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^>\s]+)>(.*?)</parameter>\s*", re.DOTALL)
_WORDS = {"True": True, "False": False, "None": None}

Schemas = Mapping[str, Mapping[str, Any]]
"""Tool → the schemas of its parameters."""


def xml_call(block: str, schemas: Schemas) -> tuple[str, str] | None:
    """(name, arguments as JSON); None when this is no such call, or not a whole one."""
    found = _FUNCTION.fullmatch(block)
    if found is None:
        return None
    name, inside, at, arguments = found[1], found[2], 0, {}
    while at < len(inside.rstrip()):
        parameter = _PARAMETER.match(inside, at)
        if parameter is None:
            return None
        at = parameter.end()
        text = parameter[2].removeprefix("\n").removesuffix("\n")
        arguments[parameter[1]] = _value(text, schemas.get(name, {}).get(parameter[1]))
    return name, as_json(arguments)


def as_json(value: Any) -> str:
    """Half characters, which JSON can name and UTF-8 cannot carry, stay escaped."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def schemas_of(tools: Any) -> Schemas:
    """Of tools in chat completions' form."""
    found = {}
    for tool in tools or ():
        properties = tool["function"]["parameters"].get("properties")
        found[tool["function"]["name"]] = properties if isinstance(properties, dict) else {}
    return found


def _value(text: str, schema: Any) -> Any:
    kinds = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(kinds, str | list) or "string" in kinds:
        return text
    if text.strip() in _WORDS:
        return _WORDS[text.strip()]
    try:
        return json.loads(text, parse_float=finite, parse_constant=str)
    except (ValueError, RecursionError):
        return text
