"""Moments and durations of a program: numbers of milliseconds, or Python's own types.

A moment is milliseconds since 1970 or a `datetime` with a time zone; where records are looked up, a
`timedelta` is a moment too: that long ago. A duration is milliseconds or a `timedelta`. A datetime
without a time zone is refused, since some take it for local time and some for UTC.

Pure: what is now comes in. Called by: the clients' public methods, and their settings.
"""

from __future__ import annotations

import math
import operator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

Moment = int | datetime
PastMoment = int | datetime | timedelta
Milliseconds = int | timedelta
Duration = float | timedelta

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_MS: Final = timedelta(milliseconds=1)
_MAX_MS: Final = 0x7FFF_FFFF_FFFF_FFFF


def moment_ms(name: str, given: Any) -> int:
    """Return a moment in milliseconds since 1970.

    Raises:
        TypeError: it is neither a whole number nor a datetime.
        ValueError: it is before 1970, too far in the future, or a datetime without a time zone.
    """
    if isinstance(given, datetime):
        if given.utcoffset() is None:
            raise ValueError(
                f"{name} must be a datetime with a time zone, such as datetime.now(timezone.utc),"
                f" not {given!r}, which has none"
            )
        milliseconds = (given - _EPOCH) // _ONE_MS
    else:
        milliseconds = _whole(
            name, given, "milliseconds since 1970 as a whole number, or a datetime"
        )
    return _in_range(name, milliseconds, given)


def past_moment_ms(name: str, given: Any, now_ms: int) -> int:
    """Return a moment in milliseconds since 1970; a timedelta is that long before now.

    Raises:
        TypeError, ValueError: as `moment_ms`; or the timedelta is negative.
    """
    if not isinstance(given, timedelta):
        return moment_ms(name, given)
    return max(now_ms - whole_milliseconds(name, given), 0)


def whole_milliseconds(name: str, given: Any) -> int:
    """Return a duration in whole milliseconds; a part of one counts as one.

    Raises:
        TypeError: it is neither a whole number nor a timedelta.
        ValueError: it is negative, or too long.
    """
    if isinstance(given, timedelta):
        milliseconds = -(-given // _ONE_MS)
    else:
        milliseconds = _whole(name, given, "milliseconds as a whole number, or a timedelta")
    return _in_range(name, milliseconds, given)


def duration_ms(name: str, given: Any) -> float:
    """Return a duration in milliseconds; infinity is one.

    Raises:
        TypeError: it is neither a number nor a timedelta.
        ValueError: it is negative, or not a number.
    """
    if isinstance(given, timedelta):
        given_ms: float = given / _ONE_MS
    elif isinstance(given, int | float) and not isinstance(given, bool):
        given_ms = given
    else:
        raise TypeError(f"{name} must be a number of milliseconds, or a timedelta, not {given!r}")
    if math.isnan(given_ms) or given_ms < 0:
        raise ValueError(f"{name} must not be negative, but is {given!r}")
    return given_ms


def timeout_or_default(name: str, given: Any, default_ms: float) -> float:
    """Return how long a call may take, in milliseconds; None: as long as the settings say.

    Raises:
        TypeError, ValueError: as `duration_ms`.
    """
    return default_ms if given is None else duration_ms(name, given)


def _whole(name: str, given: Any, wanted: str) -> int:
    try:
        number = operator.index(given)
    except TypeError:
        raise TypeError(f"{name} must be {wanted}, not {given!r}") from None
    if isinstance(given, bool):
        raise TypeError(f"{name} must be {wanted}, not {given!r}")
    return number


def _in_range(name: str, milliseconds: int, given: object) -> int:
    if milliseconds < 0:
        raise ValueError(f"{name} must not be negative, but is {given!r}")
    if milliseconds > _MAX_MS:
        raise ValueError(f"{name} must not be more than {_MAX_MS}, but is {given!r}")
    return milliseconds
