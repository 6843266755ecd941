"""async (A9): a fixed split. Training cells train from the first request on, the others never do."""

from services.scheduler.core.state import State


def moves(state: State, now_s: float) -> list[tuple[str, str]]:
    """None, ever."""
    return []


def core_stays(state: State, need: int) -> bool:
    """It has nowhere else to go."""
    return True
