"""Tables and JSON lines: what fits, what does not, and what could move a cursor."""

from __future__ import annotations

import io
import json

import click
import pytest

from kraftrio.clients.cli.output import Column, Output, joined, number, size_text

COLUMNS = (Column("topic"), number("size_bytes", "size"), Column("isr", show=joined))
ROWS = [
    {"topic": "orders", "size_bytes": 12, "isr": (1, 2), "more": "yes"},
    {"topic": "a", "size_bytes": 1234567, "isr": ()},
]


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def printed(monkeypatch: pytest.MonkeyPatch, width: int | None, *, as_json: bool = False) -> str:
    """Print the rows on a terminal of some width, or into a pipe."""
    stream = io.StringIO() if width is None else Terminal()
    if width is not None:
        monkeypatch.setenv("COLUMNS", str(width))
    Output(as_json=as_json, stream=stream).rows(COLUMNS, ROWS)
    return click.unstyle(stream.getvalue())


TABLE = "TOPIC      SIZE  ISR\norders       12  1,2\na       1234567  -\n"


def test_table_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(monkeypatch, None) == TABLE


def test_table_on_a_wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(monkeypatch, 80) == TABLE
    assert printed(monkeypatch, 20) == TABLE


def test_blocks_on_a_terminal_that_is_too_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(monkeypatch, 19) == (
        "topic: orders\nsize:  12\nisr:   1,2\n\ntopic: a\nsize:  1234567\nisr:   -\n"
    )


def test_json_has_all_fields_and_plain_values(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, None, as_json=True).splitlines()
    assert json.loads(lines[0]) == {
        "topic": "orders",
        "size_bytes": 12,
        "isr": [1, 2],
        "more": "yes",
    }
    assert len(lines) == 2


def test_wide_characters_take_two_columns() -> None:
    stream = io.StringIO()
    rows = [{"a": "日本", "b": "x"}, {"a": "abcd", "b": "y"}]
    Output(stream=stream).rows((Column("a"), Column("b")), rows)
    assert stream.getvalue() == "A     B\n日本  x\nabcd  y\n"


def test_nothing_moves_the_cursor() -> None:
    stream = io.StringIO()
    Output(stream=stream).rows((Column("a"),), [{"a": "x\x1b[2Jy\r\n"}])
    assert stream.getvalue() == "A\nx\\x1b[2Jy\\r\\n\n"


def test_no_rows_print_nothing() -> None:
    stream = io.StringIO()
    Output(stream=stream).rows(COLUMNS, [])
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (2_000_000, "2.0 MB"), (10**16, "10000.0 TB")],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text
