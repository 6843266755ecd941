"""An environment of verifiers, as it would be without Gyre: sums by way of a tool, and a rubric that looks at the last number said."""

import re

import verifiers as vf
from datasets import Dataset

PAIRS = [(2, 3), (10, 20), (7, 8), (40, 2)]


def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: the first one
        b: the second one
    """
    return str(a + b)


def right(completion, answer) -> float:
    """1 when the last number of the last message is the sum."""
    numbers = re.findall(r"-?\d+", str(completion[-1].content or "")) if completion else []
    return float(bool(numbers) and numbers[-1] == answer)


def asked(completion) -> float:
    """A tenth for having used the tool."""
    return float(any(getattr(message, "tool_calls", None) for message in completion))


def load_environment() -> vf.Environment:
    rows = [{"question": f"What is {a} + {b}? Use add.", "answer": str(a + b)} for a, b in PAIRS]
    data = Dataset.from_list(rows)
    return vf.ToolEnv(
        dataset=data,
        eval_dataset=data,
        tools=[add],
        max_turns=4,
        rubric=vf.Rubric(funcs=[right, asked], weights=[0.9, 0.1]),
    )
