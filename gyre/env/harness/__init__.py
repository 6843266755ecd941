"""Harnesses as they come, as environments: started in a sandbox, pointed at the model, watched, ended, judged by what they leave.

| file | what |
|---|---|
| environment.py | `HarnessEnvironment`, to be subclassed |
| settings.py | the same by a TOML file: `python -m gyre.env.harness mine.toml` |
| programs.py, programs.toml | how each harness is started and pointed at its model |
| relay.py | carries its calls to the gateway, whatever happens to that |
| sandbox.py, warden/ | folders, variables, bounds; an end that leaves nothing behind |
| podman.py, hook.py, door.py | the same in a container; what podman runs while it makes one; the way to the relay |
| tree.py | copies of what it left, hidden tests over them |
| testing.py, judge/ | hidden unittest tests, in another process than what they test: what is believed of what they say |
"""

from gyre.env.harness.environment import HarnessEnvironment
from gyre.env.harness.podman import Podman
from gyre.env.harness.programs import Program
from gyre.env.harness.sandbox import Bounds, Exit, NotStarted, Running, Sandbox, Subprocess
from gyre.env.harness.testing import Tests

__all__ = [
    "Bounds",
    "Exit",
    "HarnessEnvironment",
    "NotStarted",
    "Podman",
    "Program",
    "Running",
    "Sandbox",
    "Subprocess",
    "Tests",
]
