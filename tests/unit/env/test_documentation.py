"""docs/environments.md: its code is code."""

import re
from pathlib import Path

from gyre.env import ToolCall
from gyre.env.limits import check_milestones, check_sendable

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "environments.md"


def test_the_documented_environment_works():
    """Both blocks of Python run; the first one's secret is found by guessing its seed."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    first, second = ({"__name__": "document"} for _ in range(2))
    exec(blocks[0], first)
    exec(blocks[1], second)
    (task,) = first["tasks"]("train", 1, 7)
    environment = first["Guessing"](task)
    check_sendable("messages", [environment.reset(), environment.tools()])
    check_milestones(environment.milestones)
    secret = task.seed % 10
    wrong, right = (
        environment.step(ToolCall(call_id="1", name="guess", arguments={"number": number}))
        for number in ((secret + 5) % 10, secret)
    )
    assert (wrong.done, right.done) == (False, True)
    assert environment.step(ToolCall(call_id="1", name="guess", arguments={})).error
    assert environment.score().outcome == 1.0 and environment.score().milestones == {"close": True}
    assert len(blocks) == 2 and len(list(second["tasks"]("train", 3, 1))) == 3
