"""One error root. User errors (something to correct) are apart from broken invariants (something to report).

Each class is kin to the standard library's, and carries a machine-readable `code` that travels in replies and records.
"""

EXIT_USER_ERROR = 2
"""Of a process, for something that its user has to correct."""
EXIT_GAVE_UP = 3
"""Of a process that a new start would not help (GaveUp): the supervisor leaves it at that."""


class GyreError(Exception):
    """Root of everything Gyre raises on purpose."""

    code = "internal"


class ConfigError(GyreError, ValueError):
    """The configuration is wrong; the message says where and what would be right."""

    code = "config"


class InvalidInput(GyreError, ValueError):
    """Something from outside (a request, an environment's message, a record) does not fit its contract."""

    code = "invalid_input"


class NotFound(GyreError, LookupError):
    """A named thing does not exist."""

    code = "not_found"


class Conflict(GyreError):
    """What was asked does not fit the present state (a fenced attempt, a closed step)."""

    code = "conflict"


class Overloaded(GyreError):
    """A bounded queue is full; try again after `retry_after_s`."""

    code = "overloaded"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(GyreError, ConnectionError):
    """A peer or resource (bus, port, cell) cannot be reached."""

    code = "unavailable"


class InvariantBroken(GyreError, AssertionError):
    """A promise of the system does not hold: always a defect, never the user's fault."""

    code = "invariant"


class GaveUp(GyreError):
    """What was tried again as often as it may be still does not work. A process that ends with it is not started again: the next start would find
    the same."""

    code = "gave_up"
