"""What the author of a custom environment implements.

    task ──▶ reset() ──▶ messages ──▶ [model] ──▶ tool call ──▶ step() ──▶ observation ─┐
                                        ▲                                               │
                                        └───────────────────────────────────────────────┘
    submit, turn limit or wall clock ──▶ score() ──▶ close()

One instance serves one attempt of one execution and is thrown away after `close`. `serve` (gyre.env.serve) attaches a
factory of such instances to the rollout service as a gRPC client and drives each of them: it calls the model
through the gateway, hands the model's tool calls to `step`, enforces the limits and scores what is left when time is up (B4).
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from gyre.env.outside import Way


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do, as it was submitted to the scheduler."""

    task_id: str
    task_type: str
    """Groups tasks for quotas, estimates and bills, e.g. `repair.operator`."""
    seed: int
    """Everything random in the environment follows from it."""
    payload: dict[str, Any] = {}
    """What the environment needs to know, JSON values only."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call as the model made it, its arguments already parsed from JSON."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool call led to."""

    content: str | list[dict[str, Any]]
    """Shown to the model as the tool's reply; longer than the configured bound is cut, and said so in the text. Or a list of MCP content blocks."""
    done: bool = False
    """The task is over by the agent's own act (for example `submit`)."""
    error: bool = False
    """The call was refused (unknown tool, bad arguments); still a turn, never an environment failure."""
    truncated: bool = False
    """The world's own limit is reached, as Gymnasium's `truncated`: the execution ends as timed_out(turns) and is scored on what is there."""
    reward: float = 0.0
    """As Gymnasium's; summed up in `Environment.reward_sum` for `score` to read, and not trained on by itself."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation of what the execution left behind (B4, D5)."""

    outcome: float
    """In [0, 1]; 1 is success. Verified from system state, never from what the agent says."""
    milestones: dict[str, bool] = {}
    """Name → verified. Names are those of `Environment.milestones`."""
    valid: bool = True
    """False: the evaluation itself could not be carried out; it is retried and never becomes a zero."""
    evidence: dict[str, Any] = {}
    """What was looked at: exit codes, counts, digests. JSON values, stored with the sample."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Three of the reproducibility four (C11); the fourth, the seed, is the task's own."""

    image_digest: str
    tool_versions: dict[str, str] = {}
    dependency_snapshot: str = ""
    """Digest of outside responses that the execution depended on; empty where there are none."""
    is_replay: bool = False
    """This world goes on from a snapshot of an earlier attempt's, and is not a new one (C3)."""


class Rollback(Exception):
    """Raised by `step`: what is around the world broke (a lost session, a full disk), so go back to the last snapshot and on from there."""


class Environment(ABC):
    """Implement this (methods may be plain or `async`; plain ones run in a worker thread)."""

    name: str
    """How tasks name this environment."""
    milestones: dict[str, float] = {}
    """Milestone → weight; each pays once, the weights' sum is at most the configured share of the reward (D5)."""
    workspace: Path | str | None = None
    """The folder that holds the world's state, set by `reset` at the latest; optional. Gyre keeps snapshots of it (C4), taken between turns, spaced
    by what a turn and a snapshot of this task type cost. The folder around it must be ours to write to, and not the agent's."""

    outside: frozenset[str] = frozenset()
    """Tools that reach beyond `workspace` and `snapshot` (a search, a mail): where the world went back they are answered from the record, and not
    called a second time."""
    score_s: float = 60.0
    """A `score` that takes longer has hung, and its execution has failed. What it runs of the agent's must be cut off before."""
    reward_sum: float = 0.0
    """Of the rewards that `step` returned so far, in this instance."""
    calls_max: int | None = None
    """Calls to `outside` tools that an execution may make; further ones are refused in words. None: any number."""

    way_out: "Way | None" = None
    """Where calls to the outside go through the tool gateway (gyre.env.outside): set before `reset`, where `serve` was given one. Its
    `variables()` are for the sandbox's processes."""

    shares_loop: bool = False
    """Its `async` methods run in the event loop of the whole process, and not in one of the execution's own: for thousands of executions at once
    whose methods block nothing. One that blocks all the same stops every execution of its process."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @abstractmethod
    def tools(self) -> list[dict[str, Any]]:
        """The tools in OpenAI's function format, or as MCP describes them (`name`, `description`, `inputSchema`)."""

    @abstractmethod
    def reset(self) -> list[dict[str, Any]]:
        """Build the world and return the first messages (OpenAI chat format)."""

    @abstractmethod
    def step(self, call: ToolCall) -> StepResult:
        """Carry out one tool call. Gymnasium's five-tuple (observation, reward, terminated, truncated, info) and an MCP result
        `{"content": [blocks], "isError": bool}` are taken as well (gyre.env.shapes)."""

    @abstractmethod
    def score(self) -> Score:
        """Judge the present state. May be called at any time, also after a time-out, and more than once."""

    def verified(self) -> set[str]:
        """Milestones that the present state shows to be reached, names of `milestones`; optional.

        Where it is written it is asked after `reset` and after each turn, so it must be cheap and change nothing; the turn at which each milestone
        was first verified divides the execution into segments that are credited by themselves (D3). It may see less than `score` does.
        """
        return set()

    def compact(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The history as the model shall see it from its next call on; optional, asked before each call but the first where it is written.

        For what a harness does when contexts grow: older observations shortened or left out. The next call then hangs from the place where the two
        histories part, and the execution is a tree of contexts. `messages` may be changed in place.
        """
        return messages

    def snapshot(self) -> bytes:
        """What `restore` needs besides `workspace`, asked when a snapshot is taken; optional. At most STATE_BYTES_MAX (gyre.env.keeping)."""
        return b""

    def restore(self, state: bytes) -> None:
        """`workspace` is as it was at a snapshot; put the rest back, too. `state` is what `snapshot` said then. Called on this instance after a step
        raised `Rollback`, or on a new one after its `reset`."""

    def evidence(self) -> Evidence:
        """What this world was made of; called once after `reset`."""
        return Evidence(image_digest="", tool_versions={})

    def close(self) -> None:
        """Free everything. Called exactly once, also after errors."""
