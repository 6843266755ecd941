"""An execution's snapshot as the beginning of other executions (C2, C3).

    fork(state, "g000012-e3") ──▶ what a task's payload holds as `starts_from` ──▶ after `reset` its workspace is that tree
    python -m gyre.env.forking STATE EXECUTION     prints it

The execution may run, be lost, or be over for less than a collection of the store; it goes on unchanged. Those that begin there are new executions of
a task of their own: they have the files, and neither messages nor a harness's notes. What they began from is on record as their
`dependency_snapshot`.
"""

import argparse
import re
import sys
from pathlib import Path

import msgspec

from gyre.env.snapshots import Store
from gyre.errors import EXIT_USER_ERROR, GyreError, InvalidInput, NotFound

PAYLOAD = "starts_from"
"""The field of a task's payload."""
TRAIL = ".trail"
"""Ending of the reference to a sandbox's snapshots, and of the record beside them (gyre.env.trail)."""
WORK = "work"
"""Of a sandbox's tree the folder that the agent was given to work in."""


class Start(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an execution begins."""

    snapshot: str
    """Digest."""
    folder: str = ""
    """The part of the tree that is wanted; empty: all of it."""
    of: str = ""
    """The execution that it was taken of."""

    @property
    def origin(self) -> str:
        """As it is on record."""
        return f"fork:{self.of} snapshot:{self.snapshot}"


def fork(state: Path | str, execution: str) -> dict[str, str]:
    """The newest snapshot of `execution` in the folder `state`, for `Task.payload["starts_from"]`. It is kept for a week after it was last forked or
    begun from, whatever becomes of the execution. Blocks. Raises NotFound where there is none."""
    if not (root := Path(state) / "snapshots").is_dir():
        raise NotFound(f"{state} is no folder of an environment's state: there are no snapshots in it")
    store = Store(root)
    attempts = [name for name in store.references() if re.fullmatch(re.escape(execution) + r"-a\d+", name)]
    for reference in (execution + TRAIL, execution, *attempts):
        if kept := store.referred(reference):
            store.keep(kept[0])
            folder = WORK if reference.endswith(TRAIL) else ""
            return msgspec.to_builtins(Start(snapshot=kept[0], folder=folder, of=execution))
    raise NotFound(f"{state} has no snapshot of {execution}")


def start_of(payload: dict) -> Start | None:
    """What a task says of its beginning. Raises InvalidInput."""
    if PAYLOAD not in payload:
        return None
    try:
        return msgspec.convert(payload[PAYLOAD], Start)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"payload.{PAYLOAD} must be what gyre.env.fork returned: {error}") from error


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gyre.env.forking", description=__doc__.splitlines()[0])
    parser.add_argument("state", help="folder that the environment was served with")
    parser.add_argument("execution", help="such as g000012-e3")
    options = parser.parse_args()
    try:
        print(msgspec.json.encode({PAYLOAD: fork(options.state, options.execution)}).decode())
    except GyreError as error:
        print(error, file=sys.stderr)
        return EXIT_USER_ERROR
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
