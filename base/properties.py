"""Java's properties files: the text of one becomes a mapping of names to values.

The rules are those of java.util.Properties: `#` and `!` comments, `=`, `:` or blanks between name
and value, a backslash at the end of a line continues it, escapes `\\t \\n \\r \\f \\uXXXX`. Pure.
Used for `server.properties`, and for the files of Java clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANKS = " \t\f"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return _NAMED.get(escaped, escaped)

    plain = _ESCAPE.sub(replace, text)
    if _SURROGATE.search(plain) is not None:
        # Two escapes of Java's are one character beyond the first 65,536.
        plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return plain


def _logical_lines(text: str) -> Iterator[str]:
    pending: str | None = None
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_BLANKS)
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = line if pending is None else pending + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
        else:
            pending = None
            yield line
    if pending is not None:
        yield pending


def _split(line: str) -> tuple[str, str]:
    index = 0
    while index < len(line) and line[index] not in "=:" + _BLANKS:
        index += 2 if line[index] == "\\" else 1
    key, rest = line[:index], line[index:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescape(key), _unescape(rest)


def parse_properties(text: str) -> dict[str, str]:
    """Parse a properties file; the last of several values for a name counts."""
    return dict(_split(line) for line in _logical_lines(text))
