"""What people and scripts type after `gyre`: names that look like options, that are no text, numbers that are too large."""

import pytest

from tests.integration.ledger.command import gyre


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain", "--", "--help"], "no sample --help in run"),
        (["explain", "--", "--export=/proc/none"], "no sample --export=/proc/none in run"),
        (["trace", "--", "--help"], "no spans for --help"),
        (["tree", "--", "--help"], "no trees are kept"),
        (["bill", "--by=--help"], "no bill by --help"),
        (["export", "out", "--what=--help"], "no data --help"),
        (["explain", "g\udcff"], "is not UTF-8 text"),
        (["lineage", "v0", "--after=\udcff"], "is not UTF-8 text"),
        (["tree", "g\udcff"], "is not UTF-8 text"),
        (["explorer", "--tenant", "\udcff"], "is not UTF-8 text"),
        (["export", "out\udcff"], "is not UTF-8 text"),
        (["executions", "void", "g\udcff-e1"], "is not UTF-8 text"),
        (["what-if", "--set", "scheduler.order=\udcff"], "is not UTF-8 text"),
        (["what-if", "--set", "scheduler.order=1", "--seeds", "3000000000"], "not in the range"),
        (["lineage", "0", "--limit", "3000000000"], "not in the range"),
        (["tiers", "--points", "3000000000"], "not in the range"),
        (["lineage", "9" * 20], "no group 99999999999999999999 with samples"),
        (["lineage", "v" + "9" * 5000], "no group v999"),
    ],
)
def test_it_is_a_name_or_an_error_in_words(run, words, said):
    """E: exit code 2, no traceback, nothing of Python's own."""
    at = words.index("--") if "--" in words else len(words)
    assert said in gyre(*words[:at], "--run", run.root, *words[at:], code=2)


def test_a_name_is_an_option_of_nobody(run, tmp_path):
    """`gyre explain -- --export=DIR` once exported."""
    gyre("explain", "--run", run.root, "--", f"--export={tmp_path / 'out'}", code=2)
    assert not (tmp_path / "out").exists()
