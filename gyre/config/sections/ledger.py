"""Books and traces."""

from typing import Literal

from gyre.config.sections.base import Price, Section


class PriceConfig(Section):
    """What `gyre bill` charges, in whatever currency; all 0 (the default): a bill without money (C12)."""

    per_occupancy_hour: Price = 0.0
    """An hour of an environment's instance, from start to end."""
    per_million_tokens: Price = 0.0
    """A million sampled tokens: serving the model."""
    per_external_call: Price = 0.0
    """A tool call carried out by the gateway or the environment."""
    per_gpu_hour: Price = 0.0
    """An hour of one training cell's computing, without its waiting."""


class LedgerConfig(Section):
    """Books and traces (C6–C14)."""

    database: str = ""
    """SQLAlchemy URL; empty: SQLite in the run's folder."""
    traces: bool = True
    """Record OpenTelemetry traces (every process sends OTLP to the ledger)."""
    otlp_endpoint: str = ""
    """An OTLP gRPC collector that gets the traces and metrics too, host:port."""
    metrics: str = ""
    """Where Prometheus may ask for metrics, host:port (path /metrics); empty: nowhere. Numbers only, and no key is asked for."""
    sinks: list[Literal["tensorboard", "wandb", "mlflow"]] = []
    """What else gets the figures of every step, each an extra of the package: files in the run's folder; W&B and MLflow
    also go where their own environment variables say."""
    prices: PriceConfig = PriceConfig()
    """Of `gyre bill`."""
