"""Models of all families, with tokenizers that have their marks as tokens; and calls as each family writes them."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from tokenizers import AddedToken, Tokenizer

from services.rollout.core.families import FAMILIES, QWEN, Family
from services.rollout.core.session import Model
from services.rollout.core.template import ChatTemplate

from .family_templates import TEMPLATES

ENDS = {
    "glm": ["<|observation|>", "<|user|>"],
    "kimi": ["<|im_end|>"],
    "deepseek": ["<｜end▁of▁sentence｜>"],
    "mistral": ["</s>"],
    "minimax": ["[e~["],
    "llama": ["<|eot_id|>"],
    "llama-4": ["<|eot|>"],
    "gpt": ["<|return|>"],
    "pythonic": ["<|eot|>"],
}
MARKS = {
    "glm": [
        "[gMASK]", "<sop>", "<|system|>", "<|assistant|>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
    ],
    "kimi": [
        "<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>",
    ],
    "deepseek": [
        "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", "｜DSML｜",
    ],
    "minimax": ["]~!b[", "]~b]", "<minimax:tool_call>", "</minimax:tool_call>"],
    "pythonic": ["<|begin_of_text|>", "<|header_start|>", "<|header_end|>", "<|python_start|>", "<|python_end|>"],
    "gpt": ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>"],
    "llama": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"],
    "llama-4": ["<|begin_of_text|>", "<|header_start|>", "<|header_end|>", "<|python_start|>", "<|python_end|>"],
    "mistral": ["<s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]"],
}  # fmt: skip
BY_NAME: dict[str, Family] = {family.name: family for family in (QWEN, *FAMILIES)}


def model_of(name: str, model: Model) -> Model:
    """A model of this family; `model` gives the words of its tokenizer."""
    kind = name.partition("-")[0]
    tokenizer = Tokenizer.from_str(model.template._tokenizer.to_str())
    ends, marks = ENDS.get(name, ENDS[kind]), MARKS.get(name, MARKS[kind])
    tokenizer.add_special_tokens([AddedToken(mark, normalized=False) for mark in (*ends, *marks)])
    stop_ids = [tokenizer.token_to_id(mark) for mark in ends]
    return Model(ChatTemplate(tokenizer, TEMPLATES[name].strip(), {}, stop_ids))


Calls = Sequence[tuple[str, dict[str, Any]]]
"""Names and arguments."""


def written(name: str, calls: Calls, spacing: Any = None, first: int = 0) -> str:
    """Calls as this family's models say them; `first`: what they number the first as."""
    said = [_written(name, index + first, tool, arguments, spacing) for index, (tool, arguments) in enumerate(calls)]
    match name.partition("-")[0]:
        case "kimi":
            return "<|tool_calls_section_begin|>" + "".join(said) + "<|tool_calls_section_end|>"
        case "deepseek" if name in ("deepseek-v3.2", "deepseek-v4"):
            section = "function_calls" if name == "deepseek-v3.2" else "tool_calls"
            return f"<｜DSML｜{section}>\n" + "\n".join(said) + f"\n</｜DSML｜{section}>"
        case "deepseek":
            return (
                "<｜tool▁calls▁begin｜>" + ("\n" if name == "deepseek-v3" else "").join(said) + "<｜tool▁calls▁end｜>"
            )
        case "mistral" if name in ("mistral-v7", "mistral-nemo"):
            return ("[TOOL_CALLS] [" if name == "mistral-v7" else "[TOOL_CALLS][") + ", ".join(said) + "]"
        case "mistral":
            return "".join(said)
        case "minimax":
            return "<minimax:tool_call>\n" + "\n".join(said) + "\n</minimax:tool_call>"
        case "llama":
            return "; ".join(said) if name == "llama-3" else "<|python_start|><|python_end|>" + "".join(said)
        case "pythonic":
            return "[" + ", ".join(said) + "]"
        case "gpt":
            return "<|start|>assistant".join(said)
    return "\n".join(said)


def _written(name: str, index: int, tool: str, arguments: dict[str, Any], spacing: Any) -> str:
    text = json.dumps(arguments, ensure_ascii=False, indent=spacing)
    texts = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in arguments.items()
    }
    match name:
        case "qwen":
            return f'<tool_call>\n{{"name": {json.dumps(tool)}, "arguments": {text}}}\n</tool_call>'
        case "qwen3-coder":
            inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in texts.items())
            return f"<tool_call>\n<function={tool}>\n{inside}</function>\n</tool_call>"
        case "glm-4.5":
            inside = "".join(
                f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in texts.items()
            )
            return f"<tool_call>{tool}\n{inside}</tool_call>"
        case "glm-4.7":
            inside = "".join(f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in texts.items())
            return f"<tool_call>{tool}{inside}</tool_call>"
        case "kimi-k2":
            return f"<|tool_call_begin|>functions.{tool}:{index}<|tool_call_argument_begin|>{text}<|tool_call_end|>"
        case "deepseek-v3":
            return f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{tool}\n```json\n{text}\n```<｜tool▁call▁end｜>"
        case "deepseek-v3.1":
            return f"<｜tool▁call▁begin｜>{tool}<｜tool▁sep｜>{text}<｜tool▁call▁end｜>"
        case "mistral-call-id":
            return f"[TOOL_CALLS]{tool}[CALL_ID]aB3dE6gH{index % 10}[ARGS]{text}"
        case "mistral-args":
            return f"[TOOL_CALLS]{tool}[ARGS]{text}"
        case "mistral-v7" | "mistral-nemo":
            return f'{{"name": {json.dumps(tool)}, "arguments": {text}, "id": "aB3dE6gH{index % 10}"}}'
        case "deepseek-v3.2" | "deepseek-v4":
            inside = "".join(
                f'<｜DSML｜parameter name="{key}" string="{json.dumps(isinstance(arguments[key], str))}">{value}</｜DSML｜parameter>\n'
                for key, value in texts.items()
            )
            return f'<｜DSML｜invoke name="{tool}">\n{inside}</｜DSML｜invoke>'
        case "minimax-m2":
            inside = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in texts.items())
            return f'<invoke name="{tool}">\n{inside}</invoke>'
        case "pythonic":
            literal = _literal if spacing is not None else partial(json.dumps, ensure_ascii=False)
            return f"{tool}({', '.join(f'{key}={literal(value)}' for key, value in arguments.items())})"
        case "gpt-oss":
            return f"<|channel|>commentary to=functions.{tool} <|constrain|>json<|message|>{text}<|call|>"
        case "llama-3" | "llama-4":
            return f'{{"name": {json.dumps(tool)}, "parameters": {text}}}'
    raise AssertionError(name)


def _literal(value: Any) -> str:
    """Python's own words for some values and JSON's for others: models mix them."""
    return repr(value) if len(repr(value)) % 2 else json.dumps(value, ensure_ascii=False)
