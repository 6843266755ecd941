"""vLLM as the engine of rollout cells."""

import difflib

from gyre.config.sections.base import Positive, Seconds, Section, Share

DTYPES = ("float32", "bfloat16", "float16")
TRANSFERS = ("file", "gloo")
RELEASES = ("keep", "stop")


class VllmConfig(Section):
    """vLLM, where `rollout.engine` is `vllm`: a server of its own environment beside each cell, which alone can reach it."""

    python: str = "build/vllm/bin/python"
    """Interpreter of the environment that vLLM is installed in (`make setup-vllm` makes this one, for CPUs); a path without a slash is
    looked up in PATH. vLLM wants a torch of its own, so never the trainer's environment."""
    dtype: str = "float32"
    """Type of weights and computation: float32, bfloat16 or float16. Only with float32 on both sides are the sampler's
    log-probabilities the trainer's."""
    kv_cache_gib: Positive = 1
    """On a CPU: GiB for keys and values."""
    gpu_memory_share: Share = 0.85
    """On a GPU: share of its memory that vLLM takes."""
    is_eager: bool = True
    """No graphs, no compilation: starts in half a minute instead of minutes. On a GPU False decodes faster."""
    stream_tokens: Positive = 4
    """Tokens that vLLM gathers before it sends them on. 1: each at once, at the price of one message a token; larger: fewer messages, and
    up to that many tokens of a call are sampled again after its process died."""
    transfer: str = "file"
    """How new weights come to vLLM: `file` (its worker reads what the trainer published) or `gloo` (the cell reads and broadcasts it)."""
    on_release: str = "keep"
    """When the cell trains: `keep` the process, idle, with its memory (a role change back costs one weight update); `stop` it, which gives
    the memory to the trainer and costs a start."""
    start_s: Seconds = 600.0
    """A process that does not answer after this long is killed and started again. Half a minute is usual, several on a loaded machine."""
    update_s: Seconds = 120.0
    """Each step of a weight update; an engine silent for longer is killed."""
    stall_s: Seconds = 600.0
    """An engine that has calls and samples no token of any of them for so long hangs: it is killed, and its calls go on elsewhere. More than the
    longest prompt takes to be computed."""
    arguments: list[str] = []
    """More of vLLM's own command line, such as ["--tensor-parallel-size", "1"]; after Gyre's, so that it prevails."""
    variables: dict[str, str] = {}
    """More environment variables of its processes."""

    def __post_init__(self) -> None:
        for field, known in (("dtype", DTYPES), ("transfer", TRANSFERS), ("on_release", RELEASES)):
            word = getattr(self, field)
            if word not in known:
                near = difflib.get_close_matches(word, known, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"
                raise ValueError(f"`{field}` is `{word}`; {hint}")
