"""What is run, what is learned from, where services listen."""

from typing import Annotated

from msgspec import Meta

from gyre.config.sections.base import Positive, Seconds, Section


class RunConfig(Section):
    """What is run."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")] = "run"
    """Names the run on the bus and in the books; letters, digits, - and _."""
    directory: str = "runs"
    """Where the run's folder is made (data, logs, keys, checkpoints), relative to the working directory."""
    seed: int = 1
    """Everything random follows from it: tasks, sampling, packing, initial weights."""
    steps: Positive = 40
    """Optimizer steps of the whole run."""


class ModelConfig(Section):
    """The policy to be trained."""

    path: str = ""
    """A Hugging Face directory (config, weights, tokenizer, chat template). Empty: it is made by `recipe`."""
    recipe: list[str] = []
    """Command that makes the model directory; `{out}` and `{seed}` are filled in, `{python}` is this interpreter."""
    demonstrations: list[str] = []
    """Command that writes demonstrations as JSON lines for the warm start (D12), `{out}`, `{seed}`, `{python}` as above; empty: no warm start."""
    warmstart_s: Seconds = 60.0
    """Upper bound of the warm start's wall clock; it normally ends earlier, by `warmstart_epochs`."""
    warmstart_epochs: Annotated[float, Meta(gt=0)] = 1.0
    """Passes over the demonstrations."""
    warmstart_lr: Annotated[float, Meta(gt=0)] = 2e-3
    """Peak learning rate of the warm start."""
    warmstart_tokens: Positive = 4096
    """Tokens of one warm-start batch."""


class NetworkConfig(Section):
    """Where services listen."""

    host: str = "127.0.0.1"
    """Address to bind. Loopback: nothing outside this machine can reach the run."""
    base_port: Annotated[int, Meta(ge=0, le=65000)] = 0
    """First of the consecutive ports the services take; 0 picks free ones, so that runs can stand side by side."""
