"""A restart from a snapshot is a restart (gyre.folds): same facts, same rows, whenever the snapshot was taken and whenever the process died."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre import ids
from gyre.errors import InvalidInput
from services.trajproc.core.fold import Processor
from services.trajproc.snapshots import encode, restore
from tests.unit.trajproc.builders import PAYLOAD, Live, config, execution, group, opened, updated
from tests.unit.trajproc.test_trajproc_restart import SETTINGS, Mortal, World, check_whole, scripts, timeless


class Saving(Mortal):
    """Takes a snapshot before every third time that it speaks."""

    saved: tuple[int, bytes] | None = None
    looked = 0

    def act(self, now_s: float) -> None:
        self.looked += 1
        if self.looked % 3 == 0:
            self.saved = len(self.stream), encode(self.processor)
        super().act(now_s)


class SavingWorld(World):
    """Goes on from the newest snapshot and the facts after it, where there is one."""

    mortal = Saving
    resumed = 0

    def _restart(self, stream: list) -> None:
        saved = self.live.saved
        super()._restart(stream if saved is None else [])
        if saved is not None:
            folded, data = saved
            self.resumed += 1
            restore(self.live.processor, data)
            self.live.stream = stream[:folded]
            for fact in stream[folded:]:
                self.live.stream.append(fact)
                self.live.processor.fold(fact)
            self.live.act(100.0)


@settings(max_examples=60, deadline=None)
@given(scripts(origins=True), SETTINGS, st.integers(4, 60), st.booleans())
def test_a_kill_at_any_message_and_a_start_from_a_snapshot_change_nothing(script, settings_, lives, is_streaming):
    """The facts and rows of a run that was never killed."""
    whole = World(script, settings_, is_streaming=is_streaming).run()
    broken = SavingWorld(script, settings_, lives, is_streaming=is_streaming).run()
    check_whole(broken, settings_)
    assert list(map(timeless, broken.facts)) == list(map(timeless, whole.facts))
    rows = {micro.micro_id: micro.rows for micro in whole.queue}
    assert all(rows[micro.micro_id] == micro.rows for micro in broken.queue)


def test_the_snapshot_is_what_is_in_flight_and_not_what_is_over():
    """A hundred groups later it is as large as after ten (with a window of the gaming watch that is full by then)."""
    live, sizes = Live(config(turns_per_step=2, age_steps_max=1000, gaming_window=4)), []
    for index in range(110):
        live.see(opened(index), *group(ids.group_id(index), [1.0, 0.0], version=0))
        live.see(updated(index))
        sizes.append(len(encode(live.processor)))
    assert max(sizes[100:]) < 1.1 * max(sizes[5:10])


def test_what_does_not_fit_is_said_and_leaves_a_processor_as_new():
    """Other parts, or bytes that are no state at all: the facts are folded from the first."""
    live = Live(config()).see(*execution(ids.group_id(0), 0, 1.0))
    other = Processor(config(), PAYLOAD)
    other.something = 1
    for data in (encode(other), b"\x80\x05rubbish"):
        new = Processor(config(), PAYLOAD)
        with pytest.raises(InvalidInput):
            restore(new, data)
        assert not new.groups
    assert restore(Processor(config(), PAYLOAD), encode(live.processor)).groups.keys() == live.processor.groups.keys()
