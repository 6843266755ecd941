"""Configuration: one TOML file, typed, every field documented; the resolved form is stored with the run and has a fingerprint."""

from gyre.config.load import field_docs, fingerprint, load, load_resolved, store
from gyre.config.sections import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    EvaluatorConfig,
    LedgerConfig,
    ModelConfig,
    NetworkConfig,
    RoleRule,
    RolloutConfig,
    RunConfig,
    SchedulerConfig,
    TaskConfig,
    TierConfig,
    TrainerConfig,
    TrajprocConfig,
)

__all__ = [
    "Config",
    "EnvironmentConfig",
    "EvaluationConfig",
    "EvaluatorConfig",
    "LedgerConfig",
    "ModelConfig",
    "NetworkConfig",
    "RoleRule",
    "RolloutConfig",
    "RunConfig",
    "SchedulerConfig",
    "TaskConfig",
    "TierConfig",
    "TrainerConfig",
    "TrajprocConfig",
    "field_docs",
    "fingerprint",
    "load",
    "load_resolved",
    "store",
]
