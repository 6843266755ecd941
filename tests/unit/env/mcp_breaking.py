"""An environment whose every tool breaks in its own way: `python -m gyre.env.mcp tests.unit.env.mcp_breaking:Breaking`."""

from gyre.env import Environment, Score, StepResult

ERRORS = {"value": ValueError, "key": KeyError, "deep": RecursionError, "own": type("Own", (Exception,), {})}


class Breaking(Environment):
    name = "breaking"

    def tools(self):
        names = [*ERRORS, "well"]
        return [{"name": name, "description": "", "inputSchema": {"type": "object"}} for name in names]

    def reset(self):
        return [{"role": "user", "content": "go"}]

    def step(self, call):
        if call.name in ERRORS:
            raise ERRORS[call.name]("boom")
        return StepResult(content="fine")

    def score(self):
        return Score(outcome=0.0)
