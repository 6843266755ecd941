"""Evaluators: judge executions that have ended, beside what the environment verified (docs/evaluators.md).

    from gyre.evaluation import Execution, serve

    def evaluate(execution: Execution) -> float: ...

    serve(evaluate, address="127.0.0.1:9100")

The other end, which asks and books the answers, is the trajectory processor.
"""

from gyre.evaluation.evaluator import Evaluator, Execution, Finding, Path, ToolCall, checked
from gyre.evaluation.serving import serve, serve_async

__all__ = ["Evaluator", "Execution", "Finding", "Path", "ToolCall", "checked", "serve", "serve_async"]
