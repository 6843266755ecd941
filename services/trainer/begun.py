"""Micro-steps of which processes die: what no error can say, because the kernel ended whoever computed it (out of memory, most of all).

begun/<micro-step>    written before it is computed, taken away when it is: how many processes have begun it and not come back

Deliveries are no measure of that: a micro-step is delivered again, and passed on, for as long as another living cell has its gradient.
"""

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

DEATHS_MAX = 4
"""Then its samples are set aside. Fewer than the deaths in a minute of which the supervisor takes a run for failed (`gyre.supervisor.restarts`, 5),
and more than accidents explain: a process that is killed takes the one micro-step with it that it was computing."""


class Begun:
    """Shared by the cells of a run, which never compute the same micro-step at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def deaths(self, micro_id: str) -> int:
        """Processes that died while they computed it, as far as it is not done yet."""
        with contextlib.suppress(OSError, ValueError):
            return int((self._folder / micro_id).read_text())
        return 0

    @contextlib.contextmanager
    def computing(self, micro_id: str) -> Iterator[None]:
        """Around the computation. An error ends the process, so it counts as its death does; being called off does not."""
        mark = self._folder / micro_id
        mark.write_text(str(self.deaths(micro_id) + 1))
        try:
            yield
        except Exception:
            raise
        except BaseException:
            mark.unlink(missing_ok=True)
            raise
        mark.unlink(missing_ok=True)

    def forget(self, micro_ids: Collection[str]) -> None:
        """Their step is done."""
        wanted = set(micro_ids)
        for mark in self._folder.iterdir():
            if mark.name in wanted:
                mark.unlink(missing_ok=True)
