"""Moments and durations: what people type, and what is no such thing."""

from __future__ import annotations

import pytest

from kraftrio.clients.cli.times import (
    duration_text,
    moment_text,
    parse_duration_ms,
    parse_moment_ms,
)

NOW_MS = 1_796_000_000_000
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("2d", 2 * DAY_MS),
        ("1.5h", 5_400_000),
        ("1w", 7 * DAY_MS),
    ],
)
def test_durations(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "5", "m", "5 minutes", "5m and more", "-5m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("now", NOW_MS),
        ("5m ago", NOW_MS - 300_000),
        ("1d12h ago", NOW_MS - DAY_MS * 3 // 2),
        ("1970-01-02", DAY_MS),
        ("1970-01-01T01:00:00Z", 3_600_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01 00:00:01.5", 1_500),
        ("1796000000000", NOW_MS),
    ],
)
def test_moments(text: str, moment_ms: int) -> None:
    """A moment without a time zone is UTC."""
    assert parse_moment_ms(text, NOW_MS) == moment_ms


@pytest.mark.parametrize("text", ["", "soon", "5 ago", "2026-13-01", "12345"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (moment|duration) such as"):
        parse_moment_ms(text, NOW_MS)


def test_moments_as_text() -> None:
    assert moment_text(DAY_MS + 7) == "1970-01-02T00:00:00.007Z"
    assert moment_text(-1) is None
    assert moment_text(None) is None
    assert moment_text(1 << 62) == str(1 << 62)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0.4, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (90_000, "1.5 m"), (3 * DAY_MS, "3 d")],
)
def test_durations_as_text(duration_ms: float, text: str) -> None:
    assert duration_text(duration_ms) == text
