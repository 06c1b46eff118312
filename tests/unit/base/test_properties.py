"""Java's properties files: separators, comments, continuations and escapes."""

from __future__ import annotations

import pytest

from kraftrio.base.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a : b\nc d", {"a": "b", "c": "d"}),
        ("  # no\n! no\na=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=x,\\\n    y", {"a": "x,y"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("smile=\\ud83d\\ude00 \\u00fc", {"smile": "\U0001f600 \u00fc"}),
        ("a\\ b\\==\\u0041\\t.", {"a b=": "A\t."}),
        ("a=\nb", {"a": "", "b": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a= = b ", {"a": "= b "}),
        ("a=x\\", {"a": "x"}),
    ],
)
def test_properties_syntax(text: str, expected: dict[str, str]) -> None:
    """Separators, comments, continuations and escapes are Java's."""
    assert parse_properties(text) == expected
