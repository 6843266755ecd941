"""Books and traces."""

from gyre.config.sections.base import Section


class LedgerConfig(Section):
    """Books and traces (C6–C14)."""

    database: str = ""
    """SQLAlchemy URL; empty: SQLite in the run's folder."""
    traces: bool = True
    """Record OpenTelemetry traces (every process sends OTLP to the ledger)."""
    otlp_endpoint: str = ""
    """Another OTLP gRPC collector that traces go to instead of the ledger, host:port."""
