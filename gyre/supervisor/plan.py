"""Which processes a run has. Stages start in this order and stop in the reverse one, so the ledger hears everybody's last word."""

from dataclasses import dataclass, field

from gyre.config import Config, EnvironmentConfig, cells

ENVIRONMENT_GRACE_S = 15.0
CORE = "trainer-0"
GRACE_S = 10.0
"""Between SIGTERM and SIGKILL: a trainer may be writing a checkpoint."""


@dataclass(frozen=True)
class Process:
    """One process to be kept running."""

    name: str
    """Names its log, logs/<name>.log."""
    command: list[str]
    endpoint: str = ""
    """Whose gRPC health says that it is up; empty where it has none."""
    variables: dict[str, str] = field(default_factory=dict)
    grace_s: float = GRACE_S
    attached_file: str = ""
    """Made by an environment once it is attached; from then on it may die as often as its executions make it."""


def endpoint_names(config: Config) -> list[str]:
    """Everything that listens, in the order of consecutive ports; with what it is for (gyre.run_folder)."""
    names = ["bus", "scheduler", "rollout", "gateway", "trajproc", "ledger", "otlp"]
    names += [f"{kind}-{i}" for i in range(1, config.rollout.gateways) for kind in ("rollout", "gateway")]
    names += [f"cell-{i}" for i in cells.serving(config.scheduler)]
    names += [f"trainer-{i}" for i in cells.training(config.scheduler)]
    return names + (["explorer"] if config.ledger.explorer else [])


def stages(config: Config, run: str, python: str, rollout_address: str, environment_key: str) -> list[list[Process]]:
    """Processes by stage. `run` is the run's folder, `python` the interpreter that starts services; `rollout_address`: of every gateway, with
    commas between them."""
    serving, training = cells.serving(config.scheduler), cells.training(config.scheduler)

    def service(name: str, module: str, threads: int = 1, *arguments: str) -> Process:
        command = [python, "-m", f"services.{module}", "--run", run, *arguments]
        # A satellite's trainer is a client of the core and serves nothing itself.
        endpoint = "" if name.startswith("trainer-") and name != CORE else name
        return Process(name, command, endpoint, thread_variables(threads))

    return [
        [service("ledger", "ledger")],
        [service("scheduler", "scheduler"), service("trajproc", "trajproc")],
        [
            service("rollout", "rollout"),
            *(service(f"rollout-{i}", "rollout", 1, "--gateway", str(i)) for i in range(1, config.rollout.gateways)),
        ],
        [
            *(service(f"cell-{i}", "rollout.cell", config.rollout.threads, "--cell", str(i)) for i in serving),
            *(service(f"trainer-{i}", "trainer", config.trainer.threads, "--cell", str(i)) for i in training),
        ],
        [
            _environment(environment, index, run, python, rollout_address, environment_key)
            for environment in config.environments
            if environment.command
            for index in range(environment.processes)
        ],
    ]


def thread_variables(threads: int) -> dict[str, str]:
    """Variables that keep numerical libraries to their share of the cores, and off the network."""
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count,
        # Threads that wait for each other sleep: spinning, a warm start beside other work did 7 steps in 15 s, not 207.
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }  # fmt: skip


def _environment(
    environment: EnvironmentConfig, index: int, run: str, python: str, rollout_address: str, key: str
) -> Process:
    command = [word.replace("{python}", python) for word in environment.command]
    name = f"environment-{environment.name}-{index}"
    # Processes are spread over the gateways, and each knows the others for when its own is lost.
    addresses = rollout_address.split(",")
    first = index % len(addresses)
    addresses = addresses[first:] + addresses[:first]
    attached = f"{run}/logs/{name}.attached"
    variables = {
        "GYRE_ROLLOUT_ADDRESS": addresses[0], "GYRE_ROLLOUT_ADDRESSES": ",".join(addresses), "GYRE_ENVIRONMENT_KEY": key,
        "GYRE_ENVIRONMENT_SLOTS": str(environment.slots), "GYRE_RUN": run, "GYRE_ATTACHED_FILE": attached,
    }  # fmt: skip
    return Process(name, command, "", thread_variables(1) | variables, ENVIRONMENT_GRACE_S, attached)
