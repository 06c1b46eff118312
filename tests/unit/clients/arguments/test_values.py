"""One value: what can be sent is taken, and the sentence about what cannot names it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from kraftrio.clients.arguments.values import (
    config_value,
    content,
    headers,
    text,
    whole_number,
)

NO_TEXT = "\ud800"


class Number:
    """An integer that is none of Python's, as numpy's are."""

    def __index__(self) -> int:
        return 7


def test_whole_numbers() -> None:
    """Floats and truth are no numbers; the limits are those of the protocol's integers."""
    assert whole_number("n", Number()) == 7
    assert type(whole_number("n", Number())) is int
    assert whole_number("n", 2**63 - 1) == 2**63 - 1
    for given in (1.0, 1e12, "1", b"1", None, True):
        with pytest.raises(TypeError, match=re.escape(f"n must be a whole number, not {given!r}")):
            whole_number("n", given)
    with pytest.raises(ValueError, match="n must not be negative, but is -1"):
        whole_number("n", -1)
    with pytest.raises(ValueError, match="n must not be more than"):
        whole_number("n", 2**63)


def test_texts() -> None:
    """A string that UTF-8 cannot hold is none that can be sent."""
    assert text("s", "é" * 16_383) == "é" * 16_383
    with pytest.raises(TypeError, match="s must be a string, not b't'"):
        text("s", b"t")
    with pytest.raises(ValueError, match="UTF-8"):
        text("s", NO_TEXT)
    with pytest.raises(ValueError, match="at most 32767 bytes, not 32768"):
        text("s", "é" * 16_384)


def test_contents() -> None:
    """Any buffer is bytes; the error for a string says what to do."""
    assert content("v", memoryview(b"ab")) == content("v", bytearray(b"ab")) == b"ab"
    assert content("v", None) is None
    with pytest.raises(TypeError, match="v must be bytes or None, not str: encode it, or give"):
        content("v", "text")


def test_headers() -> None:
    """A dict or pairs."""
    assert headers({"a": b"1", "b": None}) == (("a", b"1"), ("b", None))
    assert headers([("a", b"1"), ("a", bytearray(b"2"))]) == (("a", b"1"), ("a", b"2"))
    assert headers({}) == headers(()) == ()
    wrong: list[tuple[Any, str]] = [
        ("a", "headers must be a dict, or pairs of a name and bytes, not 'a'"),
        (5, "headers must be a dict, or pairs of a name and bytes, not 5"),
        ([("a",)], "a header must be a pair of a name and bytes or None, not ('a',)"),
        ({"a": "1"}, "header 'a' must be bytes or None, not the string '1'"),
        ({"a": 1}, "header 'a' must be bytes or None, not int"),
        ({b"a": b"1"}, "the name of a header must be a string, not b'a'"),
    ]
    for given, sentence in wrong:
        with pytest.raises(TypeError, match=re.escape(sentence)):
            headers(given)


def test_values_of_settings() -> None:
    """Any plain type is written as Kafka writes it."""
    written: list[tuple[Any, str | None]] = [
        ("compact", "compact"),
        (1000, "1000"),
        (0.5, "0.5"),
        (True, "true"),
        (False, "false"),
        (["compact", "delete"], "compact,delete"),
        ({"b", "a"}, "a,b"),
        ((), ""),
        (timedelta(days=7), "604800000"),
        (None, None),
    ]
    for given, expected in written:
        assert config_value("s", given) == expected
    for given in ({"a": 1}, object(), b"compact", [1]):
        with pytest.raises(TypeError, match="s must be a string"):
            config_value("s", given)
