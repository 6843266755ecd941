"""The processes of an emulated run: those of a real one, but the cells' and their trainers' are one process each that only waits."""

from gyre.cli.dryrun.environment import NAME
from gyre.config import Config, EnvironmentConfig
from gyre.config.cells import serving
from gyre.supervisor.plan import CORE, Process, stages

ENVIRONMENT = EnvironmentConfig(name=NAME, command=["{python}", "-m", "gyre.cli.dryrun.environment"])


def emulated_stages(
    config: Config, run: str, python: str, rollout_address: str, environment_key: str
) -> list[list[Process]]:
    """As `gyre.supervisor.plan.stages`."""
    real = stages(config, run, python, rollout_address, environment_key)
    cells = real[-2]
    first = {f"cell-{serving(config.scheduler)[0]}": "rollout.cell.emulated", CORE: "trainer.emulated"}
    real[-2] = [
        Process(process.name, [python, "-m", f"services.{first[process.name]}", "--run", run], process.endpoint,
                process.variables, process.grace_s)
        for process in cells if process.name in first
    ]  # fmt: skip
    return real
