"""Other people's text on a terminal: shown, never carried out; `--json` says exactly what is in the books (E, hostile content)."""

import json
import time

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.cli import trace
from gyre.cli.main import gyre
from gyre.cli.screen import LINE_CHARACTERS_MAX, clean, clock, line, paragraphs
from gyre.run_folder import RunFolder

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\nfake line\u202e\u200b\x00" + "x" * 1_000_000


def test_escapes_are_written_out_and_megabyte_lines_cut():
    """ESC, BEL, CSI (also as one C1 character), carriage return, a new line, right-to-left override, zero width, NUL."""
    shown = line(HOSTILE)
    assert shown.startswith(r"\x1b]0;owned\x07\x1b[2J\x9b31m\x0d\x0afake line\u202e\u200b\x00xxx")
    assert shown.endswith("… (1,000,032 characters)") and len(shown) < LINE_CHARACTERS_MAX + 100


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8))
@settings(deadline=None)
def test_nothing_that_moves_a_cursor_is_left_at_any_depth(value):
    """Keys of mappings too: a task type is a key in many answers."""
    shown = json.dumps(clean(value), ensure_ascii=False)
    assert not any(ord(one) < 32 or 127 <= ord(one) < 160 for one in shown)


def test_an_errors_own_lines_stay_and_its_escapes_do_not():
    assert paragraphs("first\nsecond \x1b[31m") == "first\nsecond \\x1b[31m"


def test_ordinary_text_of_any_script_is_as_it_was():
    """ä, 中, Arabic and emoji are nobody's enemy."""
    assert line("Größe 中文 مرحبا 🙂") == "Größe 中文 مرحبا 🙂"


ANSWERS = {
    "audit": {"passed": False, "criteria": [{"name": "traceable", "passed": False, "figure": HOSTILE, "query": HOSTILE}]},
    "drops": {"reasons": [{"reason": HOSTILE, "samples": 1}], HOSTILE: {HOSTILE: HOSTILE}},
    "books": {HOSTILE: HOSTILE}, "explain": {"task": {"payload": {HOSTILE: [HOSTILE, {HOSTILE: HOSTILE}]}}},
    "bill": {"by": ["tenant"], "columns": ["turns"], "rows": [{"tenant": HOSTILE, "turns": 1}], "total": {"turns": 1}},
    "doctor": {"ill": ["x"], "illnesses": [{"illness": HOSTILE, "state": "ill", "figure": HOSTILE, "alarms": {HOSTILE: 1}, "remedy": HOSTILE,
                                          "evidence": [{"what": HOSTILE, "value": 1.0, "line": 1.0, "is_over": True}]}]},
    "lineage": {"kind": "step", "name": HOSTILE, "counts": {"samples": 1, "groups": 1}, "steps": [], "versions": [], "next": HOSTILE,
                "groups": [{"group_id": HOSTILE, "policy_version": None, "samples": 1}],
                "samples": [{"sample_id": HOSTILE, "step": None, "dropped": HOSTILE, "version_min": None, "version_max": None}]},
    "tiers": {"tiers": {}, "curves": {}, "arrived": {HOSTILE: {HOSTILE: 1, "b": 2}}, "starved": {}, "starvation_s": 1.0},
    "agreement": {"people": {HOSTILE: 1}, "models": [{"model": HOSTILE, "agreement": None, "samples": 1}], "full": 0.75},
    "trace": {"trace_id": HOSTILE, "sample_id": HOSTILE, "total_s": 1.0, "unaccounted_s": 0.0,
              "stages": [{"stage": HOSTILE, "count": 1, "total_s": 1.0, "start_s": 0.0, "end_s": 1.0}],
              "spans": [{"span_id": "a", "parent_id": "", "name": HOSTILE, "service": HOSTILE, "start_ns": 0, "end_ns": 10**9}]},
}  # fmt: skip


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The command with a ledger that answers what ANSWERS says."""

    def run(*arguments: str):
        for name in ("queries", "bill", "doctor", "lineage", "tiers", "agreement", "trace"):
            module = f"gyre.cli.{name}"
            monkeypatch.setattr(f"{module}.find_run", lambda _: RunFolder(tmp_path))
            monkeypatch.setattr(f"{module}.ask_ledger", lambda _folder, question, *_names, **_page: ANSWERS[question])
        return CliRunner().invoke(gyre, [*arguments])

    return run


@pytest.mark.parametrize("question", sorted(ANSWERS))
def test_every_question_shows_hostile_answers_as_text_and_prints_them_exactly_as_json(asked, question):
    names = ["x"] if question in ("explain", "lineage", "trace") else []
    shown = asked(question, *names)
    assert shown.exception is None or isinstance(shown.exception, SystemExit), shown.exception
    assert not any((ord(one) < 32 and one != "\n") or 127 <= ord(one) < 160 for one in shown.output)
    assert r"\x1b[2J" in shown.output and len(shown.output) < 40_000
    assert all(not text.startswith("fake line") for text in shown.output.splitlines())
    assert json.loads(asked(question, *names, "--json").output) == ANSWERS[question]


def test_a_doctor_that_finds_an_illness_and_an_audit_that_fails_exit_with_one(asked):
    assert [asked(name).exit_code for name in ("doctor", "audit", "books")] == [1, 1, 0]


def test_a_cycle_of_parents_is_shown_once_each():
    """Spans come from anybody's exporter: a and b are each other's parent, c hangs from nowhere, d from c."""
    spans = [
        {"span_id": name, "parent_id": parent, "name": name}
        for name, parent in (("a", "b"), ("b", "a"), ("c", "zz"), ("d", "c"), ("e", "e"))
    ]
    assert [(depth, span["span_id"]) for depth, span in trace.tree(spans)] == [
        (0, "c"),
        (1, "d"),
        (0, "a"),
        (1, "b"),
        (0, "e"),
    ]


@pytest.mark.parametrize("at_s", [1e300, -1e300, float("nan"), float("inf"), 1e17])
def test_a_moment_that_no_calendar_has_is_shown_as_it_was_written(at_s):
    assert clock(at_s) == f"{at_s:g} s"


def test_a_moment_is_shown_on_the_local_clock():
    assert clock(time.mktime((2026, 11, 30, 14, 5, 9, 0, 0, -1))) == "14:05:09"
