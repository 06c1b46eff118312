"""Moments and durations as people type and read them.

A moment is "5m ago", "now", a date with or without a time (UTC unless it says otherwise), or
milliseconds since 1970. A duration is a number with a unit, or several: "90s", "1h30m", "2d".

Pure: the present time comes in. Called by: the commands.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

_UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_DIGITS_OF_MILLISECONDS = 12


def parse_duration_ms(text: str) -> int:
    """Return a duration in milliseconds.

    Raises:
        ValueError: the text is not a duration.
    """
    compact = text.strip().lower()
    parts = _PART.findall(compact)
    if not parts or _PART.sub("", compact).strip():
        raise ValueError(f"{text!r} is not a duration such as 500ms, 90s, 5m, 1h30m or 7d")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))


def parse_moment_ms(text: str, now_ms: int) -> int:
    """Return a moment in milliseconds since 1970.

    Raises:
        ValueError: the text is not a moment.
    """
    compact = text.strip()
    if compact.lower() == "now":
        return now_ms
    if compact.lower().endswith("ago"):
        return now_ms - parse_duration_ms(compact[: -len("ago")])
    if compact.isascii() and compact.isdigit() and len(compact) >= _DIGITS_OF_MILLISECONDS:
        return int(compact)
    try:
        moment = datetime.fromisoformat(compact)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a moment such as '5m ago', 2026-11-29, 2026-11-29T04:30:00Z or"
            " milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def moment_text(timestamp_ms: int | None) -> str | None:
    """Return a moment as people read it, in UTC; None for none (or -1)."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def duration_text(duration_ms: float) -> str:
    """Return a duration in its largest fitting unit, such as 1.5 s or 3.2 h."""
    if duration_ms < 1_000:
        return f"{duration_ms:.0f} ms"
    for unit, size_ms in reversed(_UNITS_MS.items()):
        if duration_ms >= size_ms and unit != "w":
            return f"{duration_ms / size_ms:.3g} {unit}"
    return f"{duration_ms:.0f} ms"
