"""Books and traces."""

from typing import Annotated, Literal

from msgspec import Meta

from gyre.config.sections.base import Price, Section

HostName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]+$|^[0-9A-Fa-f:.]+$", max_length=253)]
"""A name or an address, without scheme, port or brackets."""


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
    explorer: bool = True
    """Serve the trace explorer (`gyre explorer`), at its own port beside the ledger's. It asks for a key that is made in the run's folder."""
    explorer_hosts: list[HostName] = []
    """Further names, without a port, by which browsers reach the explorer: an ingress's, a machine's in DNS. It answers only to its own address, and
    to these; bound to all addresses (`network.host = "0.0.0.0"`), to each of the machine's in figures and its own name as well."""
    sinks: list[Literal["tensorboard", "wandb", "mlflow"]] = []
    """What else gets the figures of every step, each an extra of the package: files in the run's folder; W&B and MLflow
    also go where their own environment variables say."""
    agreement_full: Annotated[float, Meta(gt=0.5, le=1.0)] = 0.75
    """a_0: lower bound of a reward model's pairwise agreement with people from which on it keeps its whole weight (D8). Lower: a doubtful model is
    believed; higher: more people have to judge before one is. At 0.75 some 40 judged samples do for a model that agrees in 85 % of pairs."""
    retention_days: Annotated[float, Meta(ge=0.0)] = 0.0
    """The ledger deletes call rows of samples that were trained or dropped, and spans, that ended longer ago, a few at a time while it keeps the
    books, which stay as they are (`gyre compact` does the same once). 0: never.
    Fewer days: less disk, fewer samples whose single calls can be looked at."""
    prices: PriceConfig = PriceConfig()
    """Of `gyre bill`."""
