"""Other people's shapes of tools and of their results, read as ours: MCP's tools and content blocks, Gymnasium's five-tuple. Pure."""

import json
import math
from typing import Any

import msgspec

from gyre.env.environment import StepResult
from gyre.env.limits import truth
from gyre.errors import InvalidInput

BLOCK_TYPES = ("text", "image", "audio", "resource", "resource_link")


def openai_tools(tools: Any) -> list[dict[str, Any]]:
    """Tools in OpenAI's function format, from that or from MCP's (`name`, `description`, `inputSchema`). Raises InvalidInput."""
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, dict) for tool in tools):
        raise InvalidInput("tools() must return a list of tools in OpenAI's function format or in MCP's")
    return [_openai_tool(tool) for tool in tools]


def _openai_tool(tool: dict[str, Any]) -> dict[str, Any]:
    if "function" not in tool and "inputSchema" in tool:
        parameters = tool["inputSchema"] or {"type": "object", "properties": {}}
        function = {"name": tool.get("name"), "description": tool.get("description") or "", "parameters": parameters}
        tool = {"type": "function", "function": function}
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise InvalidInput("tools() must return tools in OpenAI's function format or in MCP's, each with a name")
    return tool


def mcp_tools(tools: Any) -> list[dict[str, Any]]:
    """The same the other way round: as MCP lists them. Raises InvalidInput."""
    functions = [tool["function"] for tool in openai_tools(tools)]
    return [
        {
            "name": function["name"], "description": function.get("description", ""),
            "inputSchema": function.get("parameters") or {"type": "object", "properties": {}},
        }
        for function in functions
    ]  # fmt: skip


def mcp_result(result: StepResult) -> dict[str, Any]:
    """A result as MCP's tools/call answers it."""
    return {"content": [{"type": "text", "text": result.content}], "isError": result.error}


def step_result(said: Any) -> StepResult:
    """A StepResult from what `step` returned: one of ours, Gymnasium's five-tuple (observation, reward, terminated, truncated, info), or an MCP
    result `{"content": [blocks], "isError": bool}`. Raises InvalidInput."""
    if isinstance(said, StepResult):
        if isinstance(said.content, list):
            said = msgspec.structs.replace(said, content=block_text(said.content))
        if not isinstance(said.content, str):
            raise InvalidInput(f"step() returned no StepResult with text: its content is {type(said.content).__name__}")
        return _plain(said)
    if isinstance(said, tuple) and len(said) == 5:
        return _five(*said)
    if isinstance(said, dict) and isinstance(said.get("content"), list):
        return _plain(StepResult(content=block_text(said["content"]), error=said.get("isError", False)))
    raise InvalidInput(f"step() returned no StepResult with text: {type(said).__name__}")


def _five(observation: Any, reward: Any, terminated: Any, truncated: Any, info: Any) -> StepResult:
    """Of a pair of ends that are both true the world's own counts, as in Gymnasium: what is terminated has no value beyond it."""
    if not isinstance(info, dict):
        raise InvalidInput(f"step()'s info must be a dict, not {type(info).__name__}")
    said = _plain(
        StepResult(content=observation_text(observation), done=terminated, truncated=truncated, reward=reward)
    )
    return msgspec.structs.replace(said, truncated=said.truncated and not said.done)


def _plain(said: StepResult) -> StepResult:
    """With Python's own texts, numbers and truths, whatever an author computed them with; half a pair of surrogates becomes a question mark."""
    return StepResult(
        content=str(said.content).encode(errors="replace").decode(), reward=_reward(said.reward),
        done=truth("done", said.done), error=truth("error", said.error), truncated=truth("truncated", said.truncated),
    )  # fmt: skip


def _reward(reward: Any) -> float:
    try:
        if math.isfinite(paid := float(reward)):
            return paid
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidInput(f"step()'s reward must be a number, not {str(reward)[:80]!r}")


def observation_text(observation: Any) -> str:
    """As the model reads it: text as it is, a dict line by line, else its own text."""
    if isinstance(observation, dict):
        return "\n".join(f"{name}: {value}" for name, value in observation.items())
    return str(observation)


def block_text(blocks: list[Any]) -> str:
    """MCP content blocks as one text; what is no text is named, since the tools of a chat answer in text. Raises InvalidInput."""
    return "\n".join(_one_block(block) for block in blocks)


def _one_block(block: Any) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind not in BLOCK_TYPES:
        shown = json.dumps(block, default=str)[:80]
        raise InvalidInput(f"a content block must have a type of {', '.join(BLOCK_TYPES)}, unlike {shown}")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource" and isinstance((inner := block.get("resource") or {}).get("text"), str):
        return inner["text"]
    if kind == "resource_link":
        return f"[{block.get('name', 'resource')}: {block.get('uri', '')}]"
    held = block if kind != "resource" else block["resource"]
    return f"[{kind} {held.get('mimeType', '')}: {len(held.get('data') or held.get('blob') or '')} characters of base64, not shown]"
