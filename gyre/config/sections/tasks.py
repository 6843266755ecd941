"""Environments, tasks, held-out evaluation."""

from typing import Annotated

from msgspec import Meta

from gyre.config.sections.base import NotNegative, Positive, Seconds, Section


class EnvironmentConfig(Section):
    """A process that serves a custom environment, started and stopped with the run."""

    name: str = "environment"
    """Name under which it attaches and by which tasks ask for it."""
    command: list[str] = []
    """Command; `{python}` is this interpreter. It finds the rollout service through GYRE_ROLLOUT_ADDRESS and GYRE_ENVIRONMENT_KEY."""
    slots: Positive = 64
    """Executions one process runs at once."""
    processes: Positive = 1
    """How many such processes."""
    harness: str = ""
    """The harness its executions run, whose rules then tell the roles of their calls; empty: rollout.harness, else recognised by each call."""


class TaskConfig(Section):
    """Where tasks come from, and the limits of their executions."""

    source: str = ""
    """`package.module:function`, called as function(split, count, seed) with split `train` or `heldout`; yields gyre.env.Task."""
    environment: str = "environment"
    """Environment that runs them."""
    wall_s: Seconds = 60.0
    """Wall clock of one execution; at its end the work left behind is scored (B4)."""
    turns_max: Positive = 10
    """Model calls of one execution."""
    context_tokens_max: Positive = 1024
    """Longest context of one execution."""
    output_tokens_max: Positive = 64
    """Sampled tokens of one call."""
    tokens_max: NotNegative = 0
    """Sampled tokens of all calls of one execution together; 0: as many as its turns allow."""
    calls_max: NotNegative = 0
    """Model calls that one execution may begin, abandoned and repeated ones too; 0: any number. A bound for harnesses that give up and ask again."""
    concurrency_max: NotNegative = 0
    """Model calls of one execution at once; more are answered 429 and asked again. 0: 32."""
    temperature: Annotated[float, Meta(ge=1e-4, le=1e4)] = 1.0
    """Sampling temperature. 0 is not possible: nothing would be drawn that training could learn from."""
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Nucleus sampling; 1 keeps the whole distribution, which is what the loss assumes."""


class EvaluationConfig(Section):
    """Success on held-out tasks, before and after."""

    tasks: NotNegative = 120
    """Held-out tasks of one evaluation; 0 leaves evaluations out. The standard error at success s is √(s(1−s)/tasks)."""
