"""An OpenEnv server's world: `OPENENV_URL=http://127.0.0.1:8000 python -m examples.openenv_env.environment --address HOST:PORT --key KEY`."""

import os

from gyre.env import serve
from gyre.env.openenv import OpenEnvEnvironment


class Guessing(OpenEnvEnvironment):
    name = "openenv-guessing"
    url = os.environ.get("OPENENV_URL", "http://127.0.0.1:8000")
    prompt = "Guess my number with act."


tasks = Guessing.tasks

if __name__ == "__main__":
    serve(Guessing, name=Guessing.name)
