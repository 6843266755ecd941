"""The training side as a fluid: ready groups are node-seconds of work, which the cells that train now share. Steps are serial."""

import heapq
from collections import Counter
from collections.abc import Callable

from gyre import records as r
from services.scheduler.simulator.cells import Group
from services.scheduler.simulator.clock import Events
from services.scheduler.simulator.measures import Measures

NO_CAP_STEPS = 1 << 60


class Training:
    """Batches of `groups_per_step` ready groups, oldest dispatch version first; μ updates and then a publish, as the burst says.

    Under a cap of age a group in its last admissible step is always taken, and its batch is held open for it, as trajproc does (C8).
    """

    def __init__(
        self, events: Events, measures: Measures, groups_per_step: int, is_streaming: bool, publish_s: float, age_steps_max: int = 0
    ) -> None:  # fmt: skip
        self.facts: list = []
        self.step = 0
        """Updates done."""
        self.publish_at_step = 0
        """Version that ends the burst."""
        self.nodes = 0
        """Nodes that train now."""
        self.may_open: Callable[[], bool] = lambda: True
        """Whether the core is there for a further step."""
        self.may_come: Callable[[], bool] = lambda: True
        """Whether the burst's boundary still has something to send."""
        self.ready: list[tuple[int, float, int, Group]] = []
        self.untaken: Counter[int] = Counter()
        """Dispatch version → groups in no batch yet."""
        self._events, self._measures = events, measures
        self._wanted, self._is_streaming, self._publish_s = groups_per_step, is_streaming, publish_s
        self._age_steps_max, self._is_capped = age_steps_max or NO_CAP_STEPS, age_steps_max > 0
        self._is_open = self._is_whole = self._is_publishing = False
        self._batch: list[Group] = []
        self._left_s = 0.0
        """Node-seconds of work on the groups taken."""
        self._at_s = 0.0
        self._event = -1
        self._order = 0

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def has_work(self) -> bool:
        """A group is ready, or one that was taken is not worked off."""
        return bool(self.ready) or self._left_s > 0.0

    def collect(self, groups: list[Group]) -> None:
        """Ready groups, to be taken oldest version first."""
        for group in groups:
            self._order += 1
            heapq.heappush(self.ready, (group.version, group.ready_at_s, self._order, group))
        groups.clear()

    def set_nodes(self, nodes: int) -> None:
        if nodes != self.nodes:
            self.advance()
            self.nodes = nodes
            self._schedule()

    def advance(self) -> None:
        """Bring the work done up to now."""
        now_s = self._events.now_s
        if self.nodes and now_s > self._at_s:
            done = min(self._left_s, self.nodes * (now_s - self._at_s))
            if self._left_s - done < 1e-6:
                done = self._left_s
            self._left_s -= done
            self._measures.trained(self.nodes, now_s - self._at_s, done, self._is_open)
        self._at_s = now_s

    def react(self) -> None:
        """Open the next step and take ready groups as far as both are possible now."""
        if self._is_publishing or not self.nodes:
            return
        is_last = self._is_capped and self._is_exhausted()
        can_take = bool(self.ready) and (self._is_streaming or bool(self._batch) or len(self.ready) >= self._wanted)
        if not self._is_open:
            if not (can_take or is_last) or not self.may_open():
                return
            self._is_open = True
            now_s = self._events.now_s
            self.facts.append(r.StepOpened(step=self.step, burst=0, at_s=now_s))
        if (can_take or is_last) and not self._is_whole:
            last_chance = self.step - self._age_steps_max
            self.advance()
            while self.ready and (len(self._batch) < self._wanted or self.ready[0][0] == last_chance):
                self._take(heapq.heappop(self.ready)[3])
            if len(self._batch) >= self._wanted and not self.untaken[last_chance]:
                self._close("turns")
            elif is_last and not self.ready:
                self._close("exhausted")
            self._schedule()

    def _is_exhausted(self) -> bool:
        """Nothing is left but what is ready: a batch that took more than planned has left too little for the burst's last ones."""
        return self.untaken.total() == len(self.ready) and self.step < self.publish_at_step and not self.may_come()

    def _take(self, group: Group) -> None:
        self._batch.append(group)
        self.untaken[group.version] -= 1
        self._left_s += group.cost_s
        self._measures.took(group, self.step)
        self.facts.append(r.BatchExtended(
            step=self.step, group_id=group.group_id, sample_ids=group.samples, micro_ids=[], turns=1, turns_total=len(self._batch),
            at_s=self._events.now_s,
        ))  # fmt: skip

    def _close(self, cause: str) -> None:
        self._is_whole = True
        self.facts.append(r.BatchClosed(
            step=self.step, cause=cause, turns=len(self._batch), turns_target=self._wanted, groups=[group.group_id for group in self._batch],
            sample_ids=self._samples(), micro_ids=[], divisor=1, truncated_share=0.0, failed_share={}, no_gradient=False, staleness_mean=0.0,
            staleness_max=0, at_s=self._events.now_s,
        ))  # fmt: skip

    def _samples(self) -> list[str]:
        return [sample for group in self._batch for sample in group.samples]

    def _schedule(self) -> None:
        """The batch's work ends at the present rate; only a complete batch can be updated."""
        if self._is_whole and self.nodes:
            self._event = self._events.at(self._events.now_s + self._left_s / self.nodes, self._worked)
        else:
            self._event = -1

    def _worked(self, _: None, event: int) -> None:
        if event != self._event:
            return
        self.advance()
        self._left_s = 0.0
        now_s = self._events.now_s
        step, self.step = self.step, self.step + 1
        self._is_open = self._is_whole = False
        self._event = -1
        self.facts.append(r.StepUpdated(
            step=step, version=self.step, burst=0, sample_ids=self._samples(), micro_cells={}, metrics={}, opened_at_s=now_s, at_s=now_s
        ))  # fmt: skip
        self._batch = []
        self.untaken += Counter()  # versions without any go
        self._measures.updated(self.step, now_s)
        if self.step == self.publish_at_step:
            self._is_publishing = True
            self._events.at(now_s + self._publish_s, self._published)

    def _published(self, _: None, event: int) -> None:
        self._is_publishing = False
        now_s = self._events.now_s
        self.facts.append(r.WeightsPublished(version=self.step, path="", checksum="", bytes=0, at_s=now_s))
        self._measures.published(self.step, now_s)
