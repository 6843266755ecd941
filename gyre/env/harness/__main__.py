"""`python -m gyre.env.harness FILE.toml [--address HOST:PORT --key KEY --slots N]`: serve the environment that the file describes."""

import sys
from pathlib import Path

from gyre.env.harness.settings import load
from gyre.env.serving import serve
from gyre.errors import EXIT_USER_ERROR, GyreError


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        raise SystemExit(EXIT_USER_ERROR)
    try:
        environment = load(Path(sys.argv[1]))
    except GyreError as error:
        print(error, file=sys.stderr)
        raise SystemExit(EXIT_USER_ERROR) from error
    serve(environment, environment.name, slots=1)


if __name__ == "__main__":
    main()
