"""Decisions → the messages that say them. What is on record already is left out, so saying a decision again repeats nothing."""

from collections.abc import Iterator

import msgspec

from gyre import ids
from gyre import records as r
from gyre.config import TrajprocConfig
from services.trajproc.core.build import build_sample, dropped
from services.trajproc.core.pack import pack_samples
from services.trajproc.core.state import Batch, Group, Sample, Verdict


def sample_of_group(group: Group, verdict: Verdict, config: TrajprocConfig, now_s: float) -> Sample:
    """The built sample, made once."""
    if verdict.sample_id not in group.samples:
        group.samples[verdict.sample_id] = build_sample(group, verdict, config, now_s)
    return group.samples[verdict.sample_id]


def set_aside(group: Group, now_s: float) -> Iterator[r.CallSetAside]:
    """What is left out of the group's trees; each is said before any sample of the group is."""
    for fact in list(group.set_aside.values()):
        yield msgspec.structs.replace(fact, at_s=now_s)


def tell(group: Group, config: TrajprocConfig, now_s: float) -> Iterator[r.SampleReady | r.SampleDropped]:
    """A complete group: each member is ready, or dropped with its reason."""
    for verdict in [verdict for verdict in group.verdicts or [] if not verdict.fate]:
        if verdict.drop:
            yield dropped(verdict.ended, verdict.sample_id, verdict.drop, now_s, detail=verdict.detail)
        else:
            yield sample_of_group(group, verdict, config, now_s).ready


def drop_aged(group: Group, now_s: float) -> Iterator[r.SampleDropped]:
    """A group that the batch of `group.dropped_step` found too old."""
    step = group.dropped_step
    for verdict in group.undropped:
        yield dropped(verdict.ended, verdict.sample_id, "age", now_s, step, step - group.policy_version)


def take(
    group: Group, batch: Batch, config: TrajprocConfig, payload_bytes_max: int, now_s: float, sends_now: bool
) -> Iterator[r.SampleDropped | r.MicroStep | r.BatchExtended]:
    """Drops first, then the micro-steps if they are sent now, then the fact that lists them."""
    taken = batch.taken[group.group_id]
    for verdict in group.undropped:
        if verdict.sample_id in taken.dropped:
            reason, age_steps = taken.dropped[verdict.sample_id], batch.step - group.policy_version
            yield dropped(verdict.ended, verdict.sample_id, reason, now_s, batch.step, age_steps)
    micros = micro_steps(group, batch, config, payload_bytes_max, now_s)
    if sends_now:
        yield from micros
    untrained = [verdict for verdict in group.trainable if taken.dropped.get(verdict.sample_id) == "no_gradient"]
    ready = [sample_of_group(group, verdict, config, now_s).ready for verdict in untrained]
    yield r.BatchExtended(
        step=batch.step,
        group_id=group.group_id,
        sample_ids=taken.sample_ids,
        micro_ids=[micro.micro_id for micro in micros],
        turns=taken.turns,
        turns_total=batch.turns_through(group.group_id),
        at_s=now_s,
        untrained_targets=sum(fact.targets_chosen for fact in ready),
        untrained_sequences=sum(fact.sequences_chosen for fact in ready),
    )


def micro_steps(
    group: Group, batch: Batch, config: TrajprocConfig, payload_bytes_max: int, now_s: float
) -> list[r.MicroStep]:
    """The kept samples, packed; the same pieces under the same names whenever they are asked for."""
    left_out = batch.taken[group.group_id].dropped
    kept = [verdict for verdict in group.trainable if verdict.sample_id not in left_out]
    samples = [rows for verdict in kept if (rows := sample_of_group(group, verdict, config, now_s).rows)]
    return [
        r.MicroStep(
            micro_id=ids.micro_id(batch.step, group.group_id, piece),
            step=batch.step,
            group_id=group.group_id,
            rows=chosen,
            tokens=sum(row.length for row in chosen),
            at_s=now_s,
        )
        for piece, chosen in enumerate(pack_samples(samples, config.micro_tokens, payload_bytes_max))
    ]
