"""Verifiers' sums at a Gyre run: `python -m examples.verifiers_env.environment --address HOST:PORT --key KEY`, where verifiers is installed."""

from gyre.env import serve
from gyre.env.verifiers import VerifiersEnvironment


class Sums(VerifiersEnvironment):
    name, env_id = "sums", "examples.verifiers_env.sums:load_environment"


tasks = Sums.tasks

if __name__ == "__main__":
    Sums.load()
    serve(Sums, name=Sums.name)
