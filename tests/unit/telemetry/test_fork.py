"""A process that forks (a library's pool of workers, in an environment): its child neither hangs nor says anything in its name (E)."""

import os
import signal
import threading
from collections.abc import Callable

import pytest

from gyre import telemetry
from gyre.telemetry.outbox import Outbox
from gyre.telemetry.spans import outboxes
from tests.kept_spans import kept_spans

PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


def in_child(work: Callable[[], str]) -> str:
    """What `work` says in a forked process; empty where it hangs or fails."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(20)
        try:
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


@pytest.fixture
def held():
    """An outbox that another thread is just putting a span into."""
    outbox, is_held, go = Outbox(lambda batch: 0), threading.Event(), threading.Event()

    def hold() -> None:
        with outbox._changed:
            is_held.set()
            go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    outboxes.append(outbox)
    yield outbox
    outboxes.remove(outbox)
    go.set()
    thread.join()
    outbox.close()


def test_a_child_passes_its_parents_context_on_and_waits_for_nothing(held):
    """The thread that held the lock is not there, nor is the one that sends; the end of a span begun before is its parent's to tell."""
    begun = telemetry.begin_span("work", PARENT)

    def work() -> str:
        begun.end()
        said = telemetry.emit_span("x", 0.0, 1.0, PARENT)
        telemetry.shutdown()
        return f"{said} {telemetry.dropped_spans()}"

    assert in_child(work) == f"{PARENT} 0"
    assert outboxes == [held]


def test_children_that_set_up_anew_give_other_ids():
    def work() -> str:
        with kept_spans():
            return telemetry.emit_span("x", 0.0, 1.0)

    with kept_spans() as kept:
        said = [in_child(work), in_child(work), work()]
    assert len({one.split("-")[1] for one in said}) == len({one.split("-")[2] for one in said}) == 3
    assert kept.named("x"), "the parent's outboxes are as they were"
