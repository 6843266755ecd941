"""Hidden tests of Python's unittest, over what an agent left: how they are started, and what is believed of what they say.

Believed is one line, which begins with a secret of this run and comes from the judge (judge.py). An exit code says nothing: the agent's code runs in
that process and may end it with 0. Tests and code share an interpreter, so code that goes looking for the secret can still find it. A test that must
stand up to that starts what was left as a program (`subprocess`) and looks at what comes out.
"""

import json
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gyre.env.harness import tree
from gyre.env.harness.sandbox import Bounds, Exit, Sandbox

JUDGE = Path(__file__).with_name("judge.py")


class Tests(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge saw. One that was not heard of has seen nothing pass."""

    exit: Exit = Exit(how="lost")
    """Of the process that ran them."""
    passed: int = 0
    failed: int = 0
    """Also what could not be loaded, what skipped itself, and what was changed that judges."""
    excused: int = 0
    """By a mark that stands on the test: to be skipped, or expected to fail."""
    failures: list[str] = []
    """The first of them, in words."""

    @property
    def all_passed(self) -> bool:
        """At least one, and none failed."""
        return self.exit.how == "exited" and self.passed > 0 and self.failed == 0


async def run_tests(
    sandbox: Sandbox, hidden: Path | Mapping[str, str], pattern: str, variables: Mapping[str, str], bounds: Bounds
) -> Tests:
    """The tests `hidden` (a folder, or path → text) whose files match `pattern`, over `sandbox.work`. Raises NotStarted."""
    folder, spec, secret = sandbox.home / "hidden", sandbox.home / "spec", secrets.token_urlsafe(24)
    folder.mkdir()
    tree.overlay(hidden, folder)
    spec.touch(mode=0o600)
    spec.write_text(
        json.dumps({"secret": secret, "hidden": str(folder), "work": str(sandbox.work), "pattern": pattern})
    )
    ended = await sandbox.run([sys.executable, "-I", "-S", str(JUDGE), str(spec)], variables, bounds)
    return heard(ended, secret)


def heard(ended: Exit, secret: str) -> Tests:
    """What the line with the secret says; nothing passed where there is none."""
    for line in reversed(ended.tail.splitlines()):
        key, _, said = line.partition(" ")
        if secrets.compare_digest(key.encode(errors="replace"), secret.encode()):
            ended = msgspec.structs.replace(ended, tail=ended.tail.replace(secret, "judge:"))
            try:
                return msgspec.structs.replace(msgspec.json.decode(said, type=Tests), exit=ended)
            except msgspec.DecodeError:  # the code that was judged broke it
                break
    return Tests(exit=ended)
