"""An environment whose agent is a program that somebody else wrote: a harness, as it comes.

    reset: prepare() fills the working folder, answers the prompt
    drive: relay ⇄ harness in its sandbox, watched ──▶ ending
    score: evaluate() judges what it left

| what ends it | ending | reason |
|---|---|---|
| it exits, whatever its code | completed | stopped, or `exited` where the code is not 0 |
| it exits after it was refused a call because its budget was used up, or its context full | timed_out | turns, calls, tokens; context |
| wall clock, told that its batch waits no longer | timed_out | wall, truncated |
| a bound was exceeded | timed_out | cpu, memory, processes, output, disk |
| no call, no output and no work for `stall_s` | timed_out | stalled |
| it cannot be started, or exits before a single call of it was answered | failed | environment_error |
| its warden was killed, so that nothing bounded it | failed | environment_error |
"""

import asyncio
import contextlib
import hashlib
import inspect
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gyre.env.driving import Access, SelfDriven
from gyre.env.ends import Limits, Over
from gyre.env.environment import Evidence, Score, Task
from gyre.env.harness import tree
from gyre.env.harness.programs import Program, fill, shipped, write_files
from gyre.env.harness.relay import REQUEST_BYTES_MAX, Relay
from gyre.env.harness.sandbox import Bounds, Exit, NotStarted, Running, Sandbox, Subprocess
from gyre.env.harness.testing import Tests, run_tests
from gyre.env.wall import WallClock
from gyre.errors import InvalidInput
from gyre.keyed_url import with_key
from gyre.tasks import whole

POLL_S = 0.25
IDLE_CPU_SHARE = 0.05
"""Of one core. What works less, says nothing and asks nothing is idle: event loops that wait use about a hundredth."""
DETAIL_CHARS = 1500
SCORE_SPARE_S = 120.0
"""What `evaluate` may take beside a check that runs into its bound: for the copy, and for the end of what was run."""
SPENT = re.compile(
    r"(turns|calls|tokens)_exceeded|this execution has (?:made|sampled|begun) its [0-9]+ (turns|calls|tokens)"
)
"""The gateway's refusal of a call whose execution's budget is used up: codes, and its words in dialects that have no codes."""
CONTEXT_FULL = re.compile(r"context_length_exceeded|prompt is too long|request_too_large")


class HarnessEnvironment(SelfDriven):
    """Subclass it: `name`, `harness` (or `program`), `prepare` and `evaluate`."""

    harness: str = ""
    """Which one it is: what its calls' roles are told by (docs/harnesses.md), and its row of programs.toml where `program` is not given."""
    program: Program | None = None
    bounds: Bounds = Bounds()
    check_bounds: Bounds = Bounds(wall_s=60.0, cpu_s=60.0, memory_bytes=2 * 2**30, output_bytes=2**20)
    """Of one `check`. What the agent left may never end by itself. To be judged after the whole wall clock, too, it must be cut off within the
    gateway's grace, a fifth of that."""
    stall_s: float = 600.0
    is_relayed: bool = True
    """Its calls go through a relay, which tells it a key of its own and hides the gateway's deaths. Without one it is given the gateway's address and
    the attempt's key; a stall is then not noticed, and neither is that it never asked."""
    request_bytes_max: int = REQUEST_BYTES_MAX
    """Of one call through the relay: the run's `rollout.request_bytes_max`, where that is not the default."""
    path: str = ""
    """Folders where programs are looked for, here and by the harness; the environment process's own where empty."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        if self.program is None and self.harness not in (known := shipped()):
            raise InvalidInput(
                f"harness {self.harness!r} has no row; known: {', '.join(known)}; others need a `program`"
            )
        self._program = self.program or known[self.harness]
        self._prompt = ""
        self.sandbox = self.make_sandbox()
        self._path = self.path or self.sandbox.path
        self.exit: Exit | None = None
        """How the harness ended."""
        self.refusals: list[str] = []
        """What the gateway refused it for good."""
        self.left_out = tree.LeftOut()
        """Of what it left: what could not be judged, by kind (gyre.env.harness.tree)."""
        self._is_settled = False

    # What an author writes

    def prepare(self, workspace: Path) -> str:
        """Fill the working folder, in which nothing is yet; the prompt."""
        raise NotImplementedError("prepare(workspace) must fill the folder and return the prompt")

    def evaluate(self, workspace: Path, ended: Exit) -> Score:
        """Judge what is in the working folder, never what the harness says. May be `async`, and use `tests` or `check`."""
        raise NotImplementedError("evaluate(workspace, ended) must return a Score")

    def make_sandbox(self) -> Sandbox:
        return Subprocess()

    async def check(self, command: Sequence[str], hidden: Path | Mapping[str, str] | None = None) -> Exit:
        """Run `command` (`{python}`: this interpreter) in a copy of the working folder with `hidden` put over it: a folder, or path → text.
        Its exit code is that of code which the agent wrote, where it runs any: `tests` is safer. Raises NotStarted."""
        async with self._copy() as sandbox:
            if hidden is not None:
                await asyncio.to_thread(tree.overlay, hidden, sandbox.work)
            words = [fill(word, {"python": sandbox.python, "work": str(sandbox.work)}) for word in command]
            variables = self._variables(sandbox) | {
                "PYTHONSAFEPATH": "1"
            }  # no module of the agent's for one of Python's
            return await sandbox.run(words, variables, self.check_bounds)

    async def tests(self, hidden: Path | Mapping[str, str], pattern: str = "test*.py") -> Tests:
        """Run Python's unittest tests `hidden` (a folder, or path → text) over a copy of the working folder; what they import from there runs apart.
        What the agent left decides neither what runs nor what passed (testing.py). Raises NotStarted."""
        async with self._copy() as sandbox:
            return await run_tests(sandbox, hidden, pattern, self._variables(sandbox), self.check_bounds)

    @contextlib.asynccontextmanager
    async def _copy(self) -> AsyncIterator[Sandbox]:
        """Of what was left, in a sandbox of its own."""
        sandbox = await asyncio.to_thread(self.make_sandbox)
        try:
            await self._settle()
            self.left_out |= await asyncio.to_thread(tree.copy, self.sandbox.work, sandbox.work)
            yield sandbox
        finally:
            await asyncio.to_thread(sandbox.close)

    # Environment

    @property
    def score_s(self) -> float:
        return self.check_bounds.wall_s + SCORE_SPARE_S

    @property
    def can_go_on(self) -> bool:
        """It must be seen when it waits for its model: the relay sees that."""
        return bool(self._program.goes_on) and self.is_relayed and self.sandbox.tree is not None

    @property
    def tree(self) -> Path:
        return self.sandbox.tree

    @property
    def place(self) -> str:
        return self.sandbox.place

    def move(self, place: str) -> None:
        self.sandbox.move(place)

    def reset(self) -> list[dict[str, Any]]:
        self.sandbox.found(self._program.command[0], self._path)
        self.workspace = self.sandbox.work
        self._prompt = self.prepare(self.sandbox.work)
        if not isinstance(self._prompt, str) or not self._prompt:
            raise InvalidInput(f"prepare() must return the prompt, not {self._prompt!r}")
        return [{"role": "user", "content": self._prompt}]

    async def score(self) -> Score:
        if self.exit is None:
            return Score(outcome=0.0, valid=False, evidence={"error": "the harness has not ended"})
        await self._settle()
        if inspect.iscoroutinefunction(self.evaluate):
            score = await self.evaluate(self.sandbox.work, self.exit)
        else:
            score = await asyncio.to_thread(self.evaluate, self.sandbox.work, self.exit)
            score = await score if inspect.isawaitable(score) else score  # a decorated one's
        if not isinstance(score, Score):
            return score
        kept = {"snapshots": self.trail.said()} if self.trail is not None else {}
        how = kept | {
            "how": self.exit.how,
            "code": self.exit.code,
            "cpu_s": self.exit.cpu_s,
            "memory_bytes_max": self.exit.memory_bytes_max,
        }
        return msgspec.structs.replace(
            score,
            evidence={
                "harness": how | {"refusals": self.refusals[-3:], "left_out": dict(self.left_out)},
                **score.evidence,
            },
        )

    async def _settle(self) -> None:
        """Once it has ended."""
        if self.exit is not None and not self._is_settled:
            self.left_out |= await asyncio.to_thread(tree.settle, self.sandbox.work)
            self._is_settled = True

    def evidence(self) -> Evidence:
        where = self.sandbox.found(self._program.command[0], self._path)
        what, version = self.sandbox.identity(where, self._path)
        digest = hashlib.sha256(msgspec.json.encode([self._program, what], order="sorted")).hexdigest()
        return Evidence(image_digest=f"sha256:{digest}", tool_versions={self.harness or Path(where).name: version})

    def close(self) -> None:
        self.sandbox.close()

    async def drive(self, access: Access, limits: Limits, wall: WallClock) -> Over:
        async with contextlib.AsyncExitStack() as stack:
            relay = Relay(access, self.harness, self.request_bytes_max, self.trail) if self.is_relayed else None
            if relay:
                await stack.enter_async_context(relay)
            if self.trail is not None:
                self.trail.follow(lambda: limits.wall_s - wall.left_s(), self._made_outside, limits.turns_max)
                stack.push_async_callback(lambda: whole(self.trail.rest()))
            key = relay.key if relay else access.api_key
            try:
                running = await self._start(access, limits, relay, key)
                try:
                    why = await self._watch(running, relay, wall)
                finally:
                    ended = await whole(running.stop())
                    # Programs say where they could not connect.
                    self.exit = msgspec.structs.replace(ended, tail=ended.tail.replace(key, "…"))
            except NotStarted as error:
                return Over("failed", "environment_error", str(error))
        self.refusals = relay.refusals if relay else []
        if wall.cut.is_set():  # it may have been quicker than we were
            why = wall.reason
        return self._over(why, relay is None or relay.answered > 0)

    async def _start(self, access: Access, limits: Limits, relay: Relay | None, key: str) -> Running:
        api = f"{relay.base}/v1" if relay else access.api_base().rstrip("/")
        base = api.removesuffix("/v1")
        values = {
            "api": api, "base": base, "key": key, "api_with_key": with_key(api, key), "base_with_key": with_key(base, key), "model": access.model,
            "prompt": self._prompt, "work": str(self.sandbox.work), "home": str(self.sandbox.home),
            "context": str(limits.context_tokens_max or 100_000), "output": str(access.output_tokens_max or 4_096),
        }  # fmt: skip
        await asyncio.to_thread(write_files, self._program, values)
        is_going_on = self.trail is not None and self.trail.is_replay
        words = self._program.goes_on if is_going_on else self._program.command
        command = [fill(word, values) for word in words]
        command[0] = self.sandbox.found(command[0], self._path)
        own = {name: fill(text, values) for name, text in self._program.environment.items()}
        reached = [api] if self.way_out is None else [api, self.way_out.proxy_url]
        variables = self._variables(self.sandbox) | self._outside(api) | own
        return await self.sandbox.start(command, variables, self.bounds, reached=reached)

    def _variables(self, sandbox: Sandbox) -> dict[str, str]:
        """All that a command gets to know of the environment process's variables is the path."""
        return ({"PATH": self._path} if self._path else {}) | {
            "HOME": str(sandbox.home), "TMPDIR": str(sandbox.home), "LANG": "C.UTF-8", "TERM": "xterm",
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip

    def _made_outside(self) -> int:
        return self.way_out.gate.made if self.way_out is not None else 0

    def _outside(self, api: str) -> dict[str, str]:
        """Where the tool gateway is, if there is one; the model is asked past it."""
        if self.way_out is None:
            return {}
        return self.way_out.variables(direct=f"localhost,127.0.0.1,::1,{urlsplit(api).hostname}")

    async def _watch(self, running: Running, relay: Relay | None, wall: WallClock) -> str:
        """Until it has ended by itself (empty), or why it is to be ended."""
        ending = asyncio.ensure_future(running.wait())
        idle = _Idle(time.monotonic())
        try:
            while not ending.done():
                await asyncio.wait([ending], timeout=max(0.0, min(POLL_S, wall.left_s())))
                if ending.done():
                    break
                if wall.left_s() <= 0:
                    return wall.reason
                if self.trail is not None and self.trail.is_spent:
                    return "turns"
                if relay is not None and idle.for_s(running.usage, relay, time.monotonic()) > self.stall_s:
                    return "stalled"
            ending.result()
            return ""
        finally:
            ending.cancel()

    def _over(self, why: str, has_asked: bool) -> Over:
        ended, refused = self.exit, " ".join(self.refusals)
        detail = (
            f"{self._program.command[0]}: exit code {ended.code}; {ended.tail[-DETAIL_CHARS:]}" if ended.code else ""
        )
        if ended.how == "lost":
            return Over("failed", "environment_error", "the warden that bounds it was killed")
        if why:
            return Over("timed_out", why)
        if ended.how != "exited":
            return Over("timed_out", ended.how, detail)
        if not has_asked:
            return Over("failed", "environment_error", detail or "it ended without a single call to the model")
        if (spent := SPENT.search(refused)) is not None:
            return Over("timed_out", spent[1] or spent[2])
        if ended.code and CONTEXT_FULL.search(refused):
            return Over("timed_out", "context", detail)
        return Over("completed", "exited" if ended.code else "stopped", detail)


class _Idle:
    """Since when nothing has moved."""

    def __init__(self, now_s: float) -> None:
        self._since_s, self._output, self._cpu_s, self._looked_s = now_s, 0.0, 0.0, now_s

    def for_s(self, usage: dict[str, float], relay: Relay, now_s: float) -> float:
        output, cpu_s = usage.get("output_bytes", 0), usage.get("cpu_s", 0.0)
        is_working = cpu_s - self._cpu_s > IDLE_CPU_SHARE * (now_s - self._looked_s)
        if cpu_s != self._cpu_s or now_s - self._looked_s > 10 * POLL_S:
            self._cpu_s, self._looked_s = cpu_s, now_s
        if relay.open or relay.is_holding or output != self._output or is_working:
            self._since_s, self._output = now_s, output
        return now_s - max(self._since_s, relay.touched_s)
