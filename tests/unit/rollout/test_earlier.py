"""What is remembered of earlier inputs: each message once, and no more than is said (B1)."""

import random

import pytest

from services.rollout.core import earlier as module
from services.rollout.core.earlier import Earlier, Input
from services.rollout.core.normal import Message, merged


def user(text: str) -> Message:
    return Message("user", text)


def grown(earlier: Earlier, name: str, previous: str, new: list[Message], size: int = 10) -> list[Message]:
    """The input of a call that goes on from `previous`, as it was kept."""
    messages = merged(new, earlier.messages(previous) if previous else [])
    earlier.keep(name, Input(messages, previous, size))
    return list(messages)


@pytest.mark.parametrize("seed", range(20))
def test_every_input_is_the_one_that_was_kept(seed):
    """Of trees of conversations, in which assistants' words merge with those before them."""
    draw, earlier, inputs = random.Random(seed), Earlier(), dict[str, list[Message]]()
    for number in range(60):
        previous = draw.choice(["", *inputs])
        new = [draw.choice([user(f"u{number}"), Message("assistant", f"a{number}")]) for _ in range(draw.randrange(4))]
        inputs[f"c{number}"] = grown(earlier, f"c{number}", previous, new)
    assert all(earlier.messages(name) == messages for name, messages in inputs.items())
    assert earlier.messages("c60") is None


def test_a_conversation_is_kept_once_however_many_go_on_from_it():
    earlier = Earlier()
    grown(earlier, "c0", "", [user(str(n)) for n in range(100)])
    for number in range(1, 50):
        grown(earlier, f"c{number}", f"c{number - 1}", [Message("assistant", "r"), user("more")])
    assert sum(len(kept.own) for kept in earlier._kept.values()) == 100 + 2 * 49


def test_what_was_used_longest_ago_is_forgotten_first_and_never_what_another_stands_on(monkeypatch):
    monkeypatch.setattr(module, "BYTES_MAX", 100)
    earlier = Earlier()
    grown(earlier, "root", "", [user("r")], 40)
    grown(earlier, "a", "root", [user("a")], 20)
    grown(earlier, "b", "root", [user("b")], 20)
    assert earlier.messages("a") == [user("r"), user("a")]  # and so b is the one of longest ago
    grown(earlier, "c", "a", [user("c")], 30)
    assert [earlier.messages(name) is not None for name in ("root", "a", "b", "c")] == [True, True, False, True]
    grown(earlier, "other", "", [user("o")], 1000)
    assert [earlier.messages(name) is not None for name in ("root", "a", "c", "other")] == [False, False, False, True]
    assert earlier._size == 1000


def test_one_long_conversation_is_kept_whole(monkeypatch):
    """Its context bounds it."""
    monkeypatch.setattr(module, "BYTES_MAX", 100)
    earlier, before = Earlier(), ""
    for number in range(20):
        grown(earlier, f"c{number}", before, [user(str(number))], 30)
        before = f"c{number}"
    assert [message.content for message in earlier.messages("c19")] == [str(number) for number in range(20)]


def test_a_retry_changes_nothing_and_what_goes_on_from_what_is_forgotten_is_not_kept():
    earlier = Earlier()
    grown(earlier, "a", "", [user("a")])
    earlier.keep("a", Input([user("b")], "", 5))
    earlier.keep("c", Input([user("a"), user("c")], "gone", 5))
    assert earlier.messages("a") == [user("a")] and earlier.messages("c") is None and earlier._size == 10
