"""Pure builders: requests, and a harness whose calls are answered with chosen text."""

import json
from typing import Any

from gyre.ids import call_id
from gyre.records import CallRecorded, Sampling, pack
from services.rollout.core.request import ChatRequest, parse_request
from services.rollout.core.session import Model, Prompt, Session
from services.rollout.core.toolcalls import Parsed

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"path": {}}}}}
    for name in ("read_file", "run_tests")
]


def request(messages: list[dict[str, Any]], tools: list | None = TOOLS, **more: Any) -> ChatRequest:
    return parse_request(json.dumps({"model": "m", "messages": messages, "tools": tools, **more}).encode())


def tool_text(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


class Harness:
    """A session driven by hand: `call` samples what it is told to."""

    def __init__(self, model: Model, sample_id: str = "g000001-e0-a1") -> None:
        self.model = model
        self.session = Session(sample_id)
        self.records: list[CallRecorded] = []
        self.prompts: list[Prompt] = []

    def call(
        self, messages: list[dict[str, Any]], text: str, finish: str = "stop", ids: list[int] | None = None, **more: Any
    ) -> Parsed:
        return self.answered(request(messages, **more), text, finish, ids)

    def answered(self, asked: ChatRequest, text: str, finish: str = "stop", ids: list[int] | None = None) -> Parsed:
        prompt = self.session.prompt(asked, self.model)
        output = ids if ids is not None else self.model.template.encode(text)
        if finish == "stop":
            output = [*output, self.model.stop_ids[0]]
        name = call_id(self.session.sample_id, self.session.next_index)
        sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=64, seed=1)
        parsed = self.model.read(output, name, sampling, asked.tools)
        record = CallRecorded(
            call_id=name, execution_id="g000001-e0", group_id="g000001", attempt=1, call_index=self.session.next_index,
            purpose="train", parent=prompt.parent.call_id, parent_tokens=prompt.kept, prompt_delta=pack(prompt.delta, "int32"),
            prompt_tokens=len(prompt.ids), output_ids=pack(output, "int32"), logprobs=pack([-1.0] * len(output), "float32"),
            versions=pack([0] * len(output), "int32"), sampling=sampling,
            finish_reason=finish, message_digest=prompt.digest.hex(), turn_digest=prompt.turn_digest(parsed).hex(),
            tool_payloads={call.call_id: call.arguments for call in parsed.calls},
        )  # fmt: skip
        self.session.take(record, self.model, self.session.ready(record, self.model, parsed))
        self.records.append(record)
        self.prompts.append(prompt)
        return parsed

    def goes_on(self, prompt: Prompt, record: int = -1) -> bool:
        """Whether it has all tokens of a recorded call, its reply among them."""
        context = self.session.trie.context(self.records[record].call_id)
        return prompt.parent is context and prompt.kept == context.length

    def ids(self, messages: list[dict[str, Any]], **more: Any) -> list[int]:
        """What the next prompt would be, without calling."""
        return self.session.prompt(request(messages, **more), self.model).ids.tolist()

    def whole(self, messages: list[dict[str, Any]], **more: Any) -> list[int]:
        """Whole rendering, as if nothing were on record."""
        made = request(messages, **more)
        return self.model.renderer.whole(made.messages, made.tools)


def reply_message(parsed: Parsed, spacing: str = "") -> dict[str, Any]:
    """The reply as a harness sends it back; `spacing` re-formats the JSON of its arguments."""
    message: dict[str, Any] = {"role": "assistant", "content": parsed.content}
    if parsed.calls:
        message["tool_calls"] = [
            {"id": c.call_id, "type": "function", "function": {"name": c.name, "arguments": spacing or c.arguments}}
            for c in parsed.calls
        ]
    return message


def tool_message(parsed: Parsed, index: int, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": parsed.calls[index].call_id, "content": content}
