"""The scheduler's cost: `python -m benchmarks.scheduler [--json]`.

    decision_us_1k, decision_us_100k   mean microseconds of folding one fact and deciding, 1,000 cells, that many outstanding executions
    growth                             the second over the first
    recovery_s_1m                      seconds to have the state again from a million stored facts: decoded and folded
    recovery_snapshot_s                the same from a snapshot and the last `TAIL` facts

The facts are those of a cluster that runs, each group of eight submitted, sent, leased, started, ended, evaluated, taken, trained, in bursts; cells
follow every request at once. All randomness is seeded; nothing is left out of the mean, boundaries least of all. Times are of the processor: what
else runs on the machine does not count.
"""

import argparse
import gc
import json
import random
import time
from collections.abc import Iterator
from typing import Any

from gyre import records as r
from gyre.ids import group_id, sample_id
from services.scheduler.core import Settings, State, apply, decide, decode_state, encode_state

CELLS = 1_000
GROUP_SIZE = 8
TASK_TYPES = 20
TAIL = 10_000
LIMITS = r.Limits(wall_s=14_400.0, turns_max=200, context_tokens_max=65_536, output_tokens_max=4096)


class Cluster:
    """Plays everybody but the scheduler; `facts` are timed as they are folded and decided upon."""

    def __init__(self, executions: int, keep: int = 0) -> None:
        groups = executions // GROUP_SIZE
        self.state = State(Settings(
            cells=CELLS, cell_capacity=2 * executions // CELLS, groups_per_step=groups // 2, steps_per_publish=1, extra_depth_steps=1.0
        ))  # fmt: skip
        self.rng = random.Random(executions)
        self.now_s = 0.0
        self.facts = 0
        self.spent_s = 0.0
        self.log: list[bytes] = []
        self._keep = keep
        self._submitted = 0

    @property
    def mean_us(self) -> float:
        return 1e6 * self.spent_s / self.facts

    def tell(self, fact: Any) -> None:
        """Fold, decide, and fold what was decided, until nothing follows."""
        pending = [fact]
        while pending:
            if len(self.log) < self._keep:
                self.log += map(r.encode, pending)
            self.facts += len(pending)
            start_s = time.process_time()
            for one in pending:
                apply(self.state, one)
            decisions = decide(self.state, self.now_s)
            self.spent_s += time.process_time() - start_s
            pending = decisions + [
                phase for made in decisions if isinstance(made, r.RoleChanged) for phase in _phases(made)
            ]

    def begin(self) -> None:
        self.submit(3 * self.state.settings.groups_per_step)
        self.tell(r.RunStarted(steps=1_000_000, fingerprint="", at_s=0.0))

    def submit(self, groups: int) -> None:
        for _ in range(groups):
            spec = r.TaskSpec(
                task_id=f"t{self._submitted}", task_type=f"type-{self.rng.randrange(TASK_TYPES)}", environment="e", seed=1, limits=LIMITS,
                group_size=GROUP_SIZE,
            )  # fmt: skip
            self.tell(r.GroupSubmitted(group_id=group_id(self._submitted), task=spec, tier="all", at_s=self.now_s))
            self._submitted += 1

    def burst(self) -> None:
        """All that was sent runs to its end in any order; the older half is trained; as many new tasks come."""
        running = [
            (group.group_id, name, group.task.task_type)
            for group in self.state.groups.values()
            for name, execution in group.executions.items()
            if execution.attempt == 0
        ]
        self.rng.shuffle(running)
        for facts in _lives(running, self.rng):
            for fact in facts:
                self.now_s += 1e-3
                self.tell(fact)
        step, oldest = self.state.steps_done, list(self.state.groups.values())[: self.state.settings.groups_per_step]
        samples = {group.group_id: [sample_id(name, 1) for name in group.executions] for group in oldest}
        for group, names in samples.items():
            self.tell(
                r.BatchExtended(
                    step=step, group_id=group, sample_ids=names, micro_ids=[], turns=1, turns_total=1, at_s=self.now_s
                )
            )
        everything = [name for names in samples.values() for name in names]
        self.tell(r.BatchClosed(
            step=step, cause="turns", turns=1, turns_target=1, groups=list(samples), sample_ids=everything, micro_ids=[], divisor=len(everything),
            truncated_share=0.0, failed_share={}, no_gradient=False, staleness_mean=0.0, staleness_max=0, at_s=self.now_s,
        ))  # fmt: skip
        self.tell(r.StepUpdated(
            step=step, version=step + 1, burst=0, sample_ids=everything, micro_cells={}, metrics={}, opened_at_s=0.0, at_s=self.now_s
        ))  # fmt: skip
        self.submit(len(oldest))
        self.tell(r.WeightsPublished(version=step + 1, path="", checksum="", bytes=0, at_s=self.now_s))


def _phases(request: r.RoleChanged) -> Iterator[r.RoleChanged]:
    for phase in r.CELL_PHASES[request.target][1:]:
        yield r.RoleChanged(
            cell=request.cell,
            change=request.change,
            target=request.target,
            phase=phase,
            at_s=request.at_s,
            burst=request.burst,
        )


def _lives(running: list[tuple[str, str, str]], rng: random.Random) -> Iterator[list[Any]]:
    """The facts of each execution, leases and starts first."""
    for group, name, _ in running:
        yield [
            r.ExecutionLeased(execution_id=name, group_id=group, attempt=1, holder="gateway", at_s=0.0),
            r.ExecutionStarted(
                execution_id=name, group_id=group, attempt=1, environment="e", image_digest="", seed=1, tool_versions={}, dependency_snapshot="",
                at_s=0.0,
            ),
        ]  # fmt: skip
    for group, name, task_type in running:
        yield [
            r.ExecutionEnded(
                execution_id=name, group_id=group, attempt=1, task_type=task_type, tenant="default", purpose="train", ending="completed",
                reason="submitted", occupancy_s=rng.lognormvariate(8.0, 0.6), tokens_sampled=1000, at_s=0.0,
            ),
            r.SampleReady(
                sample_id=sample_id(name, 1), execution_id=name, group_id=group, attempt=1, task_type=task_type, tenant="default", reward=1.0,
                rewards={}, success=True, truncated=False, advantage=0.0, turns=1, tokens_tree=1, tokens_flat=1, targets_chosen=1,
                targets_sampled=1, paths=1, policy_version=0, version_min=0, version_mean=0.0, version_max=0, at_s=0.0,
            ),
        ]  # fmt: skip


def decision_us(executions: int, facts: int) -> float:
    """Mean cost of one fact with so many executions outstanding, over at least `facts` of them in whole bursts."""
    cluster = Cluster(executions)
    cluster.begin()
    cluster.burst()
    cluster.facts, cluster.spent_s = 0, 0.0
    while cluster.facts < facts:
        cluster.burst()
    return cluster.mean_us


def recovery(facts: int, executions: int) -> tuple[float, float]:
    """Seconds to the state after `facts` facts: (from all of them, from a snapshot and the last TAIL)."""
    cluster = Cluster(executions, keep=facts)
    cluster.begin()
    while len(cluster.log) < facts:
        cluster.burst()
    log, settings = cluster.log[:facts], cluster.state.settings
    del cluster
    gc.collect()
    gc.freeze()  # what holds a million facts is the bus

    start_s = time.process_time()
    state = State(settings)
    for data in log[:-TAIL]:
        apply(state, r.decode_fact(data))
    before_s = time.process_time() - start_s
    snapshot = encode_state(state)
    start_s = time.process_time()
    for data in log[-TAIL:]:
        apply(state, r.decode_fact(data))
    whole_s = before_s + time.process_time() - start_s

    start_s = time.process_time()
    again = decode_state(snapshot)
    for data in log[-TAIL:]:
        apply(again, r.decode_fact(data))
    from_snapshot_s = time.process_time() - start_s
    assert again == state
    return whole_s, from_snapshot_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one object instead of lines")
    options = parser.parse_args()
    small, large = decision_us(1_000, 100_000), decision_us(100_000, 400_000)
    whole_s, from_snapshot_s = recovery(1_000_000, 100_000)
    found = {
        "decision_us_1k": round(small, 2), "decision_us_100k": round(large, 2), "growth": round(large / small, 3),
        "recovery_s_1m": round(whole_s, 2), "recovery_snapshot_s": round(from_snapshot_s, 2),
    }  # fmt: skip
    print(json.dumps(found) if options.json else "\n".join(f"{name:20} {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
