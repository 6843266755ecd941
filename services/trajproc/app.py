"""The shell: fold the facts, catch up, then say what was decided, one intent at a time.

Nothing is said before the whole past is folded. Each record is folded as soon as it is durable, which confirms its intent; when it comes round
again on the stream it changes nothing. A kill at any point leaves intents that the next start finds again.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path

from gyre import folds
from gyre.api.trajproc.v1 import trajproc_pb2_grpc
from gyre.bus import BlobStore, Bus
from gyre.clock import Clock
from gyre.errors import InvariantBroken
from gyre.records import AlarmRaised, BatchClosed, BatchExtended, SampleReady, StepUpdated
from gyre.service import Context, until_stopped
from services.trajproc import demonstrations, spans
from services.trajproc.bus import ROWS_BYTES_MAX, Facts, publish
from services.trajproc.core.fold import Processor
from services.trajproc.core.messages import sample_of_group
from services.trajproc.core.state import Sample
from services.trajproc.elite_files import EliteFiles
from services.trajproc.evaluators.asking import open_asking
from services.trajproc.keeping import Keeping
from services.trajproc.rpc import SERVICE, TrajprocServicer
from services.trajproc.snapshots import encode, open_snapshots, restore
from services.trajproc.view import answer

log = logging.getLogger(__name__)

TICK_S = 0.5
"""How often the wait policy is looked at."""


class App:
    """One processor on one bus."""

    def __init__(
        self, processor: Processor, bus: Bus, blobs: BlobStore, clock: Clock, look: Callable[[], None] = lambda: None,
        keep: Callable[[Sample], None] = lambda _: None, elites: EliteFiles | None = None, sequence: int = 0,
    ) -> None:  # fmt: skip
        """`look` is called whenever facts were folded and the past is over: there may be something to ask evaluators. `keep` is given each
        sample as it is said. `sequence`: the newest fact in `processor`."""
        self.processor = processor
        self.sequence = sequence
        self._bus = bus
        self._blobs = blobs
        self._clock = clock
        self._look = look
        self._keep = keep
        self._elites = elites
        self._acting = asyncio.Lock()
        self._given_up: set[str] = set()
        """Calls of which it was said that their records will not come, and whose fact has not come round yet."""
        self.has_caught_up = asyncio.Event()

    async def follow(self) -> None:
        async for fact, sequence, is_present in Facts(self._bus, self.sequence).follow():
            async with self._acting:
                if fact is not None:
                    self.processor.fold(fact)
                    self.sequence = sequence
                if is_present:
                    if isinstance(fact, StepUpdated) and self.processor.is_over(fact.step):
                        self._blobs.clear()
                    self.has_caught_up.set()
                    await self._act()
                    self._look()

    async def tick(self) -> None:
        await self.has_caught_up.wait()
        while True:
            await asyncio.sleep(TICK_S)
            async with self._acting:
                self.processor.tick(self._clock.now_s())
                await self._act()
                await self._give_up_records()

    async def _give_up_records(self) -> None:
        """Say it once; it counts when it comes on the stream."""
        found = {fact.call_id: fact for fact in self.processor.overdue_records(self._clock.now_s())}
        for call_id in found.keys() - self._given_up:
            log.warning("the record of %s is missing: %s", call_id, found[call_id].detail)
            await self._bus.publish(found[call_id])
        self._given_up = set(found)

    async def _act(self) -> None:
        """Say every intent; folding its last record takes it off the list."""
        while self.processor.intents:
            self._save_elites()  # a batch takes what is in its file
            intent, about = next(iter(self.processor.intents.items()))
            records = self.processor.records(intent, self._clock.now_s())
            while True:
                began_s = self._clock.now_s()
                record = next(records, None)
                if record is None:
                    break
                if isinstance(record, SampleReady):
                    spans.built(about, record, began_s, self._clock.now_s())
                    self._keep(about.samples[record.sample_id])
                elif isinstance(record, BatchExtended):
                    spans.taken(about, record, self._clock.now_s())
                await publish(self._bus, self._blobs, record)
                self.processor.fold(record)
                _note(record)
            if intent in self.processor.intents:
                raise InvariantBroken(f"everything was said of {intent}, and it is still to be said")
        self._save_elites()

    def _save_elites(self) -> None:
        """Rows that the elite store has come to hold go to their files; what it holds no longer is deleted."""
        if self._elites is None or not self.processor.unsaved:
            return
        for key, (group, verdict) in self.processor.unsaved.items():
            if key not in self._elites:
                sample = sample_of_group(group, verdict, self.processor.config, self._clock.now_s())
                self._elites.save(key, sample.rows)
        self.processor.unsaved.clear()
        self._elites.keep_only(one.key for one in self.processor.elites)


def _note(record: object) -> None:
    if isinstance(record, BatchClosed):
        log.info(
            "step %d closed by %s: %d groups, %d executions, %d/%d turns, staleness %.2f (max %d)%s",
            record.step, record.cause, len(record.groups), len(record.sample_ids), record.turns, record.turns_target,
            record.staleness_mean, record.staleness_max, ", no gradient" if record.no_gradient else "",
        )  # fmt: skip
    elif isinstance(record, AlarmRaised):
        log.warning("alarm %s: %s", record.kind, record.message)


def vocabulary_of(model: Path) -> int:
    """Size of a model directory's vocabulary; 0 where it does not say."""
    try:
        found = json.loads((model / "config.json").read_text())
        size = (found.get("text_config") or found).get("vocab_size", 0)
        return max(0, int(size))
    except (OSError, ValueError, TypeError, AttributeError):
        return 0


async def run(context: Context) -> None:
    """Turns ended executions into training batches."""
    if asked := getattr(context.arguments, "print", ""):
        print(answer(context.folder, asked, context.arguments.name))
        return
    if files := getattr(context.arguments, "demonstrations", None):
        print(demonstrations.write(context.folder, *files))
        return
    bus = await context.bus("trajproc")
    config = context.config
    vocabulary = vocabulary_of(context.folder.model) or vocabulary_of(Path(config.model.path))
    processor = Processor(config.trajproc, ROWS_BYTES_MAX, config.scheduler.streaming, config.evaluators, vocabulary)
    stream, last_sequence = await bus.facts_stream()
    snapshots = open_snapshots(context.folder.snapshots, stream, context.fingerprint)
    _, sequence = snapshots.newest(lambda data: restore(processor, data), last_sequence) or (processor, 0)
    if sequence:
        log.info("from a snapshot at fact %d: %d groups in flight", sequence, len(processor.groups))
    asking = open_asking(processor, context.folder, config, bus.publish, context.clock)
    keeping = Keeping(context.folder.trees)
    keep = keeping.keep if config.trajproc.keep_trees else lambda _: None
    elites = EliteFiles(context.folder.elite) if config.trajproc.elite_share else None
    processor.elite_rows = elites.rows if elites else processor.elite_rows
    app = App(processor, bus, BlobStore(context.folder.blobs), context.clock, asking.look, keep, elites, sequence)
    server = context.rpc_server("trajproc")
    server.add(trajproc_pb2_grpc.add_TrajprocServiceServicer_to_server, TrajprocServicer(processor, keeping), SERVICE)
    await server.start()
    try:
        await until_stopped(
            context, app.follow(), app.tick(), asking.run(), keeping.run(),
            folds.keep(snapshots, lambda: app.sequence, lambda: encode(processor), config.trajproc.snapshot_facts, context.clock),
        )  # fmt: skip
        if app.sequence > sequence:
            snapshots.write(snapshots.pack(encode(processor), app.sequence), app.sequence)
    finally:
        await server.stop()
        await bus.close()
