"""Tables in Markdown, as plain files and as a site readable alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table; what a cell says may hold `|`."""
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def section(heading: str, *paragraphs: str) -> Iterator[str]:
    """Yield a heading of the second level with what stands below it."""
    yield ""
    yield f"## {heading}"
    for paragraph in paragraphs:
        yield ""
        yield paragraph
    yield ""


def code(text: str) -> str:
    """Return a text as code; nothing stays nothing."""
    return f"`{text}`" if text else ""
