"""Every setting there is, one file a service. Each field's docstring gives meaning, unit, why this default, and what the extremes do."""

from gyre.config.sections.base import Section
from gyre.config.sections.dryrun import EmulationConfig, VariantConfig
from gyre.config.sections.evaluators import EvaluatorConfig
from gyre.config.sections.ledger import LedgerConfig, PriceConfig
from gyre.config.sections.rollout import RoleRule, RolloutConfig
from gyre.config.sections.run import ModelConfig, NetworkConfig, RunConfig
from gyre.config.sections.scheduler import SchedulerConfig, TierConfig
from gyre.config.sections.tasks import EnvironmentConfig, EvaluationConfig, TaskConfig
from gyre.config.sections.trainer import TrainerConfig
from gyre.config.sections.trajproc import TrajprocConfig
from gyre.config.sections.vllm import VllmConfig

__all__ = [
    "Config",
    "EmulationConfig",
    "EnvironmentConfig",
    "EvaluationConfig",
    "EvaluatorConfig",
    "LedgerConfig",
    "ModelConfig",
    "NetworkConfig",
    "PriceConfig",
    "RoleRule",
    "RolloutConfig",
    "RunConfig",
    "SchedulerConfig",
    "Section",
    "TaskConfig",
    "TierConfig",
    "TrainerConfig",
    "TrajprocConfig",
    "VariantConfig",
    "VllmConfig",
]


class Config(Section):
    """A whole run."""

    run: RunConfig = RunConfig()
    """What is run."""
    model: ModelConfig = ModelConfig()
    """The policy to be trained."""
    network: NetworkConfig = NetworkConfig()
    """Where services listen."""
    scheduler: SchedulerConfig = SchedulerConfig()
    """Dispatch and cells."""
    rollout: RolloutConfig = RolloutConfig()
    """Gateway and engines."""
    trajproc: TrajprocConfig = TrajprocConfig()
    """Trajectories and batches."""
    trainer: TrainerConfig = TrainerConfig()
    """Optimizer."""
    ledger: LedgerConfig = LedgerConfig()
    """Books and traces."""
    tasks: TaskConfig = TaskConfig()
    """Where tasks come from, and their limits."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Held-out success."""
    environments: list[EnvironmentConfig] = []
    """Environment processes started with the run."""
    evaluators: list[EvaluatorConfig] = []
    """Judges of ended executions beside the environment (D4)."""
    emulation: EmulationConfig = EmulationConfig()
    """What `gyre dry-run` pretends."""
