"""Hidden tests of Python's unittest, over what an agent left: how they are started, and what is believed of what they say.

The tests run in the judge (judge/), which never imports what the agent left: there `import calc` gives a stand-in, whose functions run in another
process and answer with plain values. What needs more than that (objects of the agent's classes, its exceptions) is written as functions of modules
below `beside/`: they are put over what was left, run there, and say plainly what they saw; what is to be expected stands in the tests.

Believed is one line, which begins with a secret of this run and comes from the judge. An exit code says nothing.
"""

import json
import secrets
from collections.abc import Mapping
from importlib.util import decode_source
from pathlib import Path

import msgspec

from gyre.env.harness import tree
from gyre.env.harness.sandbox import Bounds, Exit, Sandbox
from gyre.env.harness.warden import walk

JUDGE = Path(__file__).with_name("judge")
BESIDE = "beside"


class Tests(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge saw. One that was not heard of has seen nothing pass."""

    exit: Exit = Exit(how="lost")
    """Of the process that ran them."""
    passed: int = 0
    failed: int = 0
    """Also what could not be loaded, and what skipped itself."""
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
    if (beside := folder / BESIDE).is_dir():
        tree.overlay(beside, sandbox.work)
        walk.remove(beside)
    said = {"secret": secret, "hidden": str(folder), "sources": _taken(folder), "pattern": pattern}
    spec.touch(mode=0o600)
    spec.write_text(json.dumps(said))
    ended = await sandbox.run([sandbox.python, "-I", "-S", str(JUDGE), str(spec)], variables, bounds)
    return heard(ended, secret)


def _taken(folder: Path) -> dict[str, str]:
    """Path → text of the modules in `folder`, which are taken away: what the agent left could read there what it is to answer."""
    sources = {}
    for place in sorted(folder.rglob("*.py")):
        sources[place.relative_to(folder).as_posix()] = decode_source(place.read_bytes())
        place.unlink()
    return sources


def heard(ended: Exit, secret: str) -> Tests:
    """What the line with the secret says; nothing passed where there is none."""
    for line in reversed(ended.tail.splitlines()):
        key, _, said = line.partition(" ")
        if secrets.compare_digest(key.encode(errors="replace"), secret.encode()):
            ended = msgspec.structs.replace(ended, tail=ended.tail.replace(secret, "judge:"))
            try:
                return msgspec.structs.replace(msgspec.json.decode(said, type=Tests), exit=ended)
            except msgspec.DecodeError:
                break
    return Tests(exit=ended)
