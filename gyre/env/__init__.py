"""For authors of custom environments: implement `Environment`, call `serve`."""

from typing import TYPE_CHECKING, Any

from gyre.env.environment import Environment, Evidence, Rollback, Score, StepResult, Task, ToolCall

if TYPE_CHECKING:
    from gyre.env.serving import serve, serve_async

__all__ = ["Environment", "Evidence", "Rollback", "Score", "StepResult", "Task", "ToolCall", "serve", "serve_async"]


def __getattr__(name: str) -> Any:
    # Whoever only describes tasks (gyre train, demonstrations) pays for no gRPC and no HTTP client.
    if name in ("serve", "serve_async"):
        import importlib

        return getattr(importlib.import_module("gyre.env.serving"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
