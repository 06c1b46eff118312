"""Keys, values and headers made readable: JSON, text, or bytes in hexadecimal, and never too much.

Owns `Form`, `Shown` and `show`. What could steer a terminal or reorder a line is shown as an
escape. Escaping for HTML is the templates' part.

Pure. Called by: the pages of records.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Final

PREVIEW_CHARACTERS: Final = 400
MAX_CHARACTERS: Final = 1 << 20

_BYTES_PER_ROW: Final = 16


class Form(Enum):
    """How bytes are to be shown."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class Shown:
    """Bytes as text.

    Attributes:
        form: which it became; None: it is null.
        size_bytes: of what is shown; None: it is null.
        is_cut: there is more than `text` shows.
    """

    text: str
    form: Form | None
    size_bytes: int | None
    is_cut: bool = False


def show(content: bytes | None, form: Form, *, pretty: bool = False) -> Shown:
    """Return bytes as text.

    Args:
        form: what it is not (no JSON, no text) is shown as the next of JSON, text, hexadecimal.
        pretty: all of it in lines, instead of one line to be recognized by.
    """
    if content is None:
        return Shown("null", None, None)
    limit = MAX_CHARACTERS if pretty else PREVIEW_CHARACTERS
    # No more is looked at than can be shown, but JSON has to be whole.
    part = content if len(content) <= MAX_CHARACTERS else content[:MAX_CHARACTERS]
    found: tuple[str, Form] | None = None
    if form is Form.JSON or (form is Form.AUTO and content[:1] in (b"{", b"[")):
        found = _as_json(content, pretty=pretty)
    if found is None and form is not Form.HEX:
        found = _as_text(part)
    if found is None:
        found = _as_hex(part[:limit], pretty=pretty)
    text, became = found
    is_cut = len(text) > limit or (became is not Form.JSON and len(part[:limit]) < len(content))
    return Shown(text[:limit], became, len(content), is_cut)


def _as_json(content: bytes, *, pretty: bool) -> tuple[str, Form] | None:
    if len(content) > MAX_CHARACTERS:
        return None
    try:
        value = json.loads(content)
        text = json.dumps(value, indent=2 if pretty else None, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    return _printable(text), Form.JSON


def _as_text(content: bytes) -> tuple[str, Form] | None:
    try:
        return _printable(content.decode()), Form.TEXT
    except UnicodeDecodeError as error:
        if len(content) == MAX_CHARACTERS and error.start >= len(content) - 3:
            return _printable(content[: error.start].decode()), Form.TEXT  # cut in a character
        return None


def _as_hex(content: bytes, *, pretty: bool) -> tuple[str, Form]:
    if not pretty:
        return content.hex(" "), Form.HEX
    rows = []
    for start in range(0, len(content), _BYTES_PER_ROW):
        row = content[start : start + _BYTES_PER_ROW]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{start:08x}  {row.hex(' '):<{3 * _BYTES_PER_ROW}} {letters}")
    return "\n".join(rows), Form.HEX


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else _escape(letter) for letter in text
    )


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
