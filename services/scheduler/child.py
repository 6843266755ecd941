"""A computation in a process of its own: at low priority, gone at its limit or with its parent.

`lines_of` is the parent's side; the module that it runs calls `begin` first. Nothing of ours runs between fork and exec: a fork of a process with
other threads in it (gRPC's) is not safe for Python code.
"""

import asyncio
import contextlib
import os
import signal
import sys

from gyre.errors import Unavailable
from gyre.supervisor.child import die_with_parent

NICE = 10
"""The services of the run go first."""
LINE_BYTES_MAX = 2**20
PARENT = "GYRE_PARENT"
"""Variable that tells a child its parent's process id."""


async def lines_of(module: str, job: bytes, limit_s: float) -> list[bytes]:
    """What `python -m module` has printed for `job` on its standard input when it ends, or when its time is up.

    Raises Unavailable with its last words.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        start_new_session=True, limit=LINE_BYTES_MAX, env=os.environ | {PARENT: str(os.getpid())},
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    lines = []
    try:
        async with asyncio.timeout(limit_s):
            child.stdin.write(job)
            child.stdin.close()
            async for line in child.stdout:
                lines.append(line)
            if await child.wait() != 0:
                words = (await child.stderr.read()).decode(errors="replace").strip().splitlines()
                raise Unavailable(f"{module} ended with {child.returncode}: {(words or ['it said nothing'])[-1]}")
    except TimeoutError:
        pass
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGKILL)
            await child.wait()
    return lines


def begin() -> None:
    """The child's first act."""
    os.nice(NICE)
    die_with_parent()
    if os.getppid() != int(os.environ.get(PARENT, os.getppid())):  # it was gone before this could be said
        raise SystemExit(1)
