"""For authors of custom environments: implement `Environment`, call `serve`."""

from gyre.env.environment import Environment, Evidence, Score, StepResult, Task, ToolCall

__all__ = ["Environment", "Evidence", "Score", "StepResult", "Task", "ToolCall"]
