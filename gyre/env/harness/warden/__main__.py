"""One command and all that it starts, under bounds, as a script of its own: only the standard library, nothing of Gyre.

    stdin    one line of JSON (command, directory, environment, bounds, grace_s, user, mark, folders, root), then `stop` to end it;
             its end does too, and root goes
    stdout   a line of JSON each second (what is used), the last one says how it ended

What it starts may leave its session and its parent; as the subreaper of them all this process still finds each (Linux), and nobody is left when it
has no child left. So nothing is left when it ends, whatever ended it, the death of whoever started it included. Should somebody kill it, whoever
started it finds the rest by their mark (processes.py).
"""

import contextlib
import ctypes
import json
import os
import signal
import sys

import contained
import walk
import watching

PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36
NAME = b"gyre-warden"
"""What `ps` shows: an agent that ends its own server by `pkill python` does not mean this."""

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    _libc.prctl(PR_SET_NAME, NAME)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the command would inherit
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return
        line += byte
    spec = json.loads(line)
    kind = watching.Warden if spec.get("container") is None else contained.Contained
    warden = kind(spec)
    said = warden.run()
    if warden.is_orphan:
        walk.remove(spec["root"])
    with contextlib.suppress(OSError):
        print(json.dumps(said), flush=True)
    sys.stdout = None


if __name__ == "__main__":
    main()
