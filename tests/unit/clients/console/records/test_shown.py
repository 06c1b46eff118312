"""Bytes as JSON, text and hexadecimal: what is recognized, what is escaped, how much is shown."""

from __future__ import annotations

import pytest

from kraftrio.clients.console.records.shown import (
    MAX_CHARACTERS,
    PREVIEW_CHARACTERS,
    Form,
    show,
)


@pytest.mark.parametrize(
    ("content", "form", "text", "became"),
    [
        (None, Form.AUTO, "null", None),
        (b"", Form.AUTO, "", Form.TEXT),
        (b'{"a":[1,2]}', Form.AUTO, '{"a": [1, 2]}', Form.JSON),
        (b'{"a":', Form.AUTO, '{"a":', Form.TEXT),
        (b"12", Form.AUTO, "12", Form.TEXT),
        (b"12", Form.JSON, "12", Form.JSON),
        (b"{}", Form.TEXT, "{}", Form.TEXT),
        (b"{}", Form.HEX, "7b 7d", Form.HEX),
        (b"\xff\x00", Form.AUTO, "ff 00", Form.HEX),
        (b"\xff\x00", Form.JSON, "ff 00", Form.HEX),
        ("grün\n\t".encode(), Form.AUTO, "grün\n\t", Form.TEXT),
        (b"\x1b[31m\x00", Form.AUTO, "\\x1b[31m\\x00", Form.TEXT),
        ("a\u202eb".encode(), Form.AUTO, "a\\u202eb", Form.TEXT),
        (b"[" * 100_000, Form.JSON, "[" * PREVIEW_CHARACTERS, Form.TEXT),
    ],
)
def test_forms(content: bytes | None, form: Form, text: str, became: Form | None) -> None:
    shown = show(content, form)
    assert (shown.text, shown.form) == (text, became)
    assert shown.size_bytes == (None if content is None else len(content))


def test_a_preview_is_cut_and_all_of_it_is_not() -> None:
    content = b"x" * (PREVIEW_CHARACTERS + 1)
    assert show(content, Form.AUTO).is_cut
    assert not show(content, Form.AUTO, pretty=True).is_cut
    assert not show(content[:-1], Form.AUTO).is_cut
    long = b'{"a": "' + b"y" * PREVIEW_CHARACTERS + b'"}'
    assert show(long, Form.AUTO).is_cut
    assert show(bytes(1000), Form.HEX).is_cut


def test_what_is_very_large_is_cut_between_characters() -> None:
    content = b"a" + "ü".encode() * MAX_CHARACTERS
    shown = show(content, Form.AUTO, pretty=True)
    assert shown.form is Form.TEXT
    assert shown.is_cut
    assert len(shown.text) <= MAX_CHARACTERS
    assert show(b"[" + b"1," * MAX_CHARACTERS + b"1]", Form.AUTO, pretty=True).form is Form.TEXT


def test_all_of_bytes_and_json_is_in_lines() -> None:
    assert show(b'{"a":1}', Form.AUTO, pretty=True).text == '{\n  "a": 1\n}'
    lines = show(b"0123456789abcdef\xff", Form.HEX, pretty=True).text.splitlines()
    assert lines[0].startswith("00000000  30 31 32")
    assert lines[0].endswith(" 0123456789abcdef")
    assert lines[1].startswith("00000010  ff")
    assert lines[1].endswith(" .")
