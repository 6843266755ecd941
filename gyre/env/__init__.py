"""For authors of custom environments: implement `Environment`, call `serve`."""

from typing import TYPE_CHECKING, Any

from gyre.env.environment import Environment, Evidence, Rollback, Score, StepResult, Task, ToolCall

if TYPE_CHECKING:
    from gyre.env.driven import Agent, Driven
    from gyre.env.forking import fork
    from gyre.env.serving import serve, serve_async

__all__ = [
    "Agent", "Driven", "Environment", "Evidence", "Rollback", "Score", "StepResult", "Task", "ToolCall", "fork", "serve", "serve_async",
]  # fmt: skip
_LATE = {
    "Agent": "gyre.env.driven",
    "Driven": "gyre.env.driven",
    "fork": "gyre.env.forking",
    "serve": "gyre.env.serving",
    "serve_async": "gyre.env.serving",
}


def __getattr__(name: str) -> Any:
    # Whoever only describes tasks (gyre train, demonstrations) pays for no gRPC and no HTTP client.
    if name in _LATE:
        import importlib

        return getattr(importlib.import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
