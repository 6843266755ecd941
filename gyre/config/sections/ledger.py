"""Books and traces."""

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
    """Another OTLP gRPC collector that traces go to instead of the ledger, host:port."""
    prices: PriceConfig = PriceConfig()
    """Of `gyre bill`."""
