"""Moments and durations: milliseconds, or Python's own types."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kraftrio.clients.arguments.times import (
    duration_ms,
    moment_ms,
    past_moment_ms,
    timeout_or_default,
    whole_milliseconds,
)

NOW_MS = 1_700_000_000_000


def test_moments() -> None:
    """A datetime is exact to the millisecond in any time zone."""
    moment = datetime(2023, 11, 14, 22, 13, 20, 123_999, tzinfo=UTC)
    assert moment_ms("t", moment) == NOW_MS + 123
    assert moment_ms("t", moment.astimezone(timezone(timedelta(hours=5)))) == NOW_MS + 123
    assert moment_ms("t", NOW_MS) == NOW_MS


def test_moments_in_the_past() -> None:
    """A timedelta is that long ago; before 1970 there is nothing."""
    assert past_moment_ms("t", timedelta(hours=1), NOW_MS) == NOW_MS - 3_600_000
    assert past_moment_ms("t", timedelta(days=99_999), NOW_MS) == 0
    assert past_moment_ms("t", 5, NOW_MS) == 5


def test_durations() -> None:
    """Settings take whole milliseconds, a part of one counting as one; timeouts take any."""
    assert whole_milliseconds("d", timedelta(microseconds=1)) == 1
    assert whole_milliseconds("d", timedelta(seconds=1.5)) == whole_milliseconds("d", 1500) == 1500
    assert duration_ms("d", timedelta(microseconds=500)) == duration_ms("d", 0.5) == 0.5
    assert duration_ms("d", math.inf) == math.inf
    assert timeout_or_default("d", None, 7) == 7
    assert timeout_or_default("d", timedelta(0), 7) == 0


@pytest.mark.parametrize(
    ("call", "given", "kind", "sentence"),
    [
        (moment_ms, 1.7e12, TypeError, "x must be milliseconds since 1970 as a whole number, or a"),
        (moment_ms, "now", TypeError, "or a datetime, not 'now'"),
        (moment_ms, True, TypeError, "or a datetime, not True"),
        (moment_ms, timedelta(1), TypeError, "or a datetime, not datetime.timedelta"),
        (moment_ms, -1, ValueError, "x must not be negative, but is -1"),
        (moment_ms, 2**63, ValueError, "x must not be more than"),
        (moment_ms, datetime(2024, 1, 1), ValueError, "x must be a datetime with a time zone"),
        (moment_ms, datetime(1969, 1, 1, tzinfo=UTC), ValueError, "x must not be negative"),
        (
            whole_milliseconds,
            1.5,
            TypeError,
            "x must be milliseconds as a whole number",
        ),
        (whole_milliseconds, timedelta(-1), ValueError, "x must not be negative"),
        (
            duration_ms,
            "5",
            TypeError,
            "x must be a number of milliseconds, or a",
        ),
        (duration_ms, True, TypeError, "x must be a number of milliseconds"),
        (duration_ms, -1, ValueError, "x must not be negative, but is -1"),
        (duration_ms, math.nan, ValueError, "x must not be negative, but is nan"),
    ],
)
def test_what_is_no_time(
    call: Callable[[str, Any], object], given: Any, kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=re.escape(sentence)):
        call("x", given)
