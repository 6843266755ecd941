"""Records in any order → runs. A run is the tail of one record's new tokens that nobody had brought before; it is never split.

place     (run, position): a context of `position` tokens whose last token stands in `run`
branches  (run, position, token) → the run that continues with `token` where its parent run ends or goes on otherwise
"""

from collections.abc import Iterable, Sequence

from gyre.records import CallRecorded
from services.trajproc.core.roles import TRAINED_ROLES
from services.trajproc.core.tree.freeze import freeze
from services.trajproc.core.tree.problems import NOTHING_KNOWN, OF_SAMPLING, Known, Problem, problem_of
from services.trajproc.core.tree.runs import NO_RUN, Placed, Run, agreed, holder
from services.trajproc.core.tree.tree import Tree


class TreeBuilder:
    """The records of one attempt of one execution, as they arrive. Never raises, whatever a record holds."""

    def __init__(self, known: Known = NOTHING_KNOWN) -> None:
        self.set_aside: dict[str, Problem] = {}
        """Records that are not sound, those that have their place all the same among them. Who waits for its parent is not (`orphans`)."""
        self._known = known
        self._placed: dict[str, Placed] = {}
        self._waiting: dict[str, list[CallRecorded]] = {}
        self._seen: set[str] = set()
        self._runs: list[Run] = []
        self._branches: dict[tuple[int, int, int], int] = {}

    def add(self, record: CallRecorded) -> Problem | None:
        """Give a record its place, if it may have one; what is wrong with it. A call id that was seen before changes nothing."""
        if record.call_id in self._seen:
            return self.set_aside.get(record.call_id)
        self._seen.add(record.call_id)
        problem = problem_of(record, self._known)
        if problem is not None:
            self.set_aside[record.call_id] = problem
        if problem is not None and problem.reason not in OF_SAMPLING:
            pass
        elif record.parent and record.parent not in self._placed:
            self._waiting.setdefault(record.parent, []).append(record)
        else:
            self._place_with_waiting(record)
        return self.set_aside.get(record.call_id)

    @property
    def calls(self) -> list[CallRecorded]:
        """Records that have their place, in (call_index, call_id) order."""
        return [placed.record for placed in self._in_order()]

    def orphans(self) -> dict[str, Problem]:
        """Records that wait for a parent, at once or through others: once nothing more arrives, their contexts cannot be known."""
        return {
            record.call_id: Problem("orphan", f"its parent {parent} is not on record or has no place itself")
            for parent, records in self._waiting.items() for record in records
        }  # fmt: skip

    @property
    def problems(self) -> dict[str, Problem]:
        """Every record of which nothing is trained, if nothing more arrives."""
        return self.set_aside | self.orphans()

    def tree(self, class_order: Sequence[str] = TRAINED_ROLES) -> Tree:
        """The tree of the records that have their place, the same in whatever order they came. `class_order`: the roles that are trained."""
        return freeze(self._in_order(), self._runs, frozenset(class_order), self.problems)

    def _in_order(self) -> list[Placed]:
        return sorted(self._placed.values(), key=lambda placed: (placed.record.call_index, placed.record.call_id))

    def _place_with_waiting(self, record: CallRecorded) -> None:
        """The record, and whatever waited for it, in any depth."""
        todo = [record]
        while todo:
            record = todo.pop()
            parent = self._placed.get(record.parent)
            if parent is not None and record.parent_tokens > parent.total:
                self.set_aside[record.call_id] = Problem(
                    "lengths", f"it continues {record.parent_tokens} tokens of a context of {parent.total}"
                )
                continue
            self._placed[record.call_id] = self._place(record, parent)
            todo += self._waiting.pop(record.call_id, ())

    def _place(self, record: CallRecorded, parent: Placed | None) -> Placed:
        above = holder(parent, record.parent_tokens)
        placed = Placed(record, above)
        run = above.run_before(placed.cut) if above else NO_RUN
        position = placed.cut
        while position < placed.total:
            following = self._follow(run, position, int(placed.after(position)[0]))
            if following == NO_RUN:
                following = self._attach(placed, run, position)
                placed.legs.append((position, following))
                run, position = following, placed.total
                break
            if following != run or not placed.legs:
                placed.legs.append((position, following))
            run, position = following, agreed(placed, self._runs[following].placed, position)
        placed.end = (run, position)
        return placed

    def _follow(self, run: int, position: int, token: int) -> int:
        """The run that goes on with `token` after a place; NO_RUN when there is none."""
        if (
            run != NO_RUN
            and position < self._runs[run].placed.total
            and self._runs[run].placed.after(position)[0] == token
        ):
            return run
        return self._branches.get((run, position, token), NO_RUN)

    def _attach(self, placed: Placed, run: int, position: int) -> int:
        self._branches[run, position, int(placed.after(position)[0])] = len(self._runs)
        self._runs.append(Run(placed, position, run))
        return len(self._runs) - 1


def build_tree(records: Iterable[CallRecorded], class_order: Sequence[str] = TRAINED_ROLES) -> Tree:
    """Records of one attempt, in any order → their tree."""
    builder = TreeBuilder()
    for record in records:
        builder.add(record)
    return builder.tree(class_order)
