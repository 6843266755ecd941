"""Time of a run goes on evenly, whatever is done to the machine's clock (E)."""

import json
import time

from gyre import clock
from gyre.clock import SystemClock, clock_of_run, fix_clock


def test_a_machine_whose_clock_is_set_does_not_move_the_time_of_a_run(tmp_path, monkeypatch):
    """An hour forward, then two back: for who runs, who starts now, and the run that is begun again, it is as late as it would have been."""
    fix_clock(tmp_path)
    running, before_s = clock_of_run(tmp_path), time.time()
    true = time.time
    for jump_s in (3600.0, -7200.0):
        monkeypatch.setattr(time, "time", lambda jump_s=jump_s: true() + jump_s)
        fix_clock(tmp_path)
        for one in (running, clock_of_run(tmp_path)):
            assert 0.0 <= one.now_s() - before_s < 60.0


def test_a_clock_of_another_boot_or_machine_is_not_taken(tmp_path, monkeypatch):
    """Its seconds are counted from elsewhere. A damaged file is none; the next start makes it anew."""
    (tmp_path / "boot").write_text("another")
    monkeypatch.setattr(clock, "BOOT_FILE", tmp_path / "boot")
    fix_clock(tmp_path)
    monkeypatch.undo()
    for text in (
        (tmp_path / "clock.json").read_text(),
        "{",
        '{"boot": 1}',
        json.dumps({"boot": clock._boot(), "offset_s": "x"}),
    ):
        (tmp_path / "clock.json").write_text(text)
        assert abs(clock_of_run(tmp_path).now_s() - time.time()) < 60.0
    fix_clock(tmp_path)
    assert json.loads((tmp_path / "clock.json").read_text())["boot"] == clock._boot()


def test_the_machines_time_is_unix_time():
    assert abs(SystemClock().now_s() - time.time()) < 1.0
