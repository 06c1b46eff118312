"""Makes HTML of templates. Whatever is filled in is escaped: no filter goes around that.

Called by: `console`, and the pages.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kraftrio.clients.cli.times import duration_text, moment_text

FOLDER: Final = Path(__file__).parent

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
NOTHING: Final = "–"


@cache
def make_environment() -> Environment:
    """Return where the templates are, with the filters that they use; all are compiled then."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": count_text,
        "size": size_text,
        "rate": rate_text,
        "moment": lambda at_ms: moment_text(at_ms) or NOTHING,
        "clock": clock_text,
        "duration": lambda value: NOTHING if value is None else duration_text(value),
        "ids": lambda ids: ", ".join(map(str, ids)) or NOTHING,
        "dash": lambda value: NOTHING if value is None or value == "" else value,
    }
    for name in environment.list_templates():
        environment.get_template(name)  # compiled here and now, not while an event loop waits
    return environment


def count_text(value: float | None) -> str:
    """Return a whole number with its thousands separated."""
    return NOTHING if value is None else f"{value:,.0f}"


def size_text(size_bytes: float | None) -> str:
    """Return a size in its largest fitting unit."""
    if size_bytes is None:
        return NOTHING
    index = 0
    while size_bytes >= 1024 and index < len(_UNITS) - 1:
        size_bytes /= 1024
        index += 1
    digits = 1 if index and size_bytes < 100 else 0
    return f"{size_bytes:.{digits}f} {_UNITS[index]}"


def rate_text(value: float | None) -> str:
    """Return a rate, per second."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}/s" if value >= 10 or value == 0 else f"{value:.1f}/s"


def clock_text(at_ms: int | None) -> str:
    """Return the time of day of a moment, in UTC."""
    text = moment_text(at_ms)
    return NOTHING if text is None else text[11:19]
