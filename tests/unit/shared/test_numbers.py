"""What other programs write as numbers, and what only Python would take for one."""

from decimal import Decimal

import pytest

from gyre.ids import split_sample_id
from gyre.numbers import is_count, real, whole

NO_NUMBER = [
    "",
    " ",
    "1_0",
    "\u0663",
    "\uff11",
    "nan",
    "inf",
    "-Infinity",
    "0x10",
    "1e",
    ".",
    "1.2.3",
    "--1",
    "1" * 500,
]


@pytest.mark.parametrize(
    ("said", "value"), [("1", 1.0), ("-1.5e3", -1500.0), (" .5", 0.5), ("3.", 3.0), (7, 7.0), (Decimal("0.1"), 0.1)]
)
def test_decimal_numbers_are_read(said, value):
    assert real(said) == value


@pytest.mark.parametrize("said", NO_NUMBER)
def test_what_is_no_decimal_number_is_refused(said):
    for read in (real, whole):
        with pytest.raises(ValueError, match="decimal number"):
            read(said)
    assert not is_count(said)


@pytest.mark.parametrize("said", [True, None, [1], b"1"])
def test_what_is_neither_number_nor_text_is_refused(said):
    with pytest.raises(TypeError):
        real(said)


@pytest.mark.parametrize("tail", ["\u00b2", "\u0663", "1_0", "", "-1", "9" * 19])
def test_names_end_in_ascii_digits_that_64_bits_hold(tail):
    with pytest.raises(ValueError, match="no"):
        split_sample_id(f"g000000-e0-a{tail}")
    assert split_sample_id("g000000-e0-a12") == ("g000000-e0", 12) and whole("-3") == -3
