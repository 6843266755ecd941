"""Gymnasium's frozen lake: `python -m examples.gymnasium_env.environment --address HOST:PORT --key KEY`."""

from gyre.env import serve
from gyre.env.gymnasium import GymnasiumEnvironment


class FrozenLake(GymnasiumEnvironment):
    name, env_id = "frozen-lake", "FrozenLake-v1"
    options = {"is_slippery": False, "render_mode": "ansi"}
    prompt = "Walk from S to G over the frozen lake F; never step into a hole H."
    actions = ("left", "down", "right", "up")


tasks = FrozenLake.tasks

if __name__ == "__main__":
    serve(FrozenLake, name=FrozenLake.name)
