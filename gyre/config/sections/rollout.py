"""Gateway, leases, engines."""

from gyre.config.sections.base import Positive, Seconds, Section


class RolloutConfig(Section):
    """Gateway, leases, engines."""

    lease_s: Seconds = 10.0
    """An execution whose holder is silent for this long is given out again as the next attempt."""
    attempts_max: Positive = 5
    """Attempts of one execution before it ends as failed."""
    request_bytes_max: Positive = 8 * 1024 * 1024
    """Largest body of one model call; larger ones are answered 413."""
    observation_bytes_max: Positive = 64 * 1024
    """Largest tool result that an environment may show the model; the rest is cut, and said so."""
    slots: Positive = 32
    """Calls one engine decodes at once."""
    context_max: Positive = 1024
    """Tokens of the longest context (prompt and output) an engine serves."""
    threads: Positive = 1
    """CPU threads of one engine."""
    device: str = "cpu"
    """Where the embedded engine runs, in torch's words."""
