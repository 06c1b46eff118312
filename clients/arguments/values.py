"""One value of a program's: text, whole numbers, bytes, headers, the value of a setting of Kafka's.

Whatever is encoded later, in the background, is checked first: one value that cannot be sent must
not take others with it, which were accepted before. A wrong type is a TypeError; what is out of
range, or no text that UTF-8 can hold, a ValueError. The sentence names the argument, and says what
was given and what is wanted.

Pure. Called by: the clients' public methods, and their settings.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from kraftrio.clients.arguments.times import whole_milliseconds

MAX_INT16: Final = 0x7FFF
MAX_INT32: Final = 0x7FFF_FFFF
MAX_INT64: Final = 0x7FFF_FFFF_FFFF_FFFF
_MAX_STRING_BYTES: Final = 32_767  # of a string in a request

Buffer = bytes | bytearray | memoryview
Headers = tuple[tuple[str, bytes | None], ...]
HeadersLike = Mapping[str, Buffer | None] | Iterable[tuple[str, Buffer | None]]
ConfigValue = str | int | float | bool | timedelta | Sequence[str]
"""A setting of a topic, broker or group, as programs have it."""

T = TypeVar("T")


def text(name: str, given: object, *, most_bytes: int | None = _MAX_STRING_BYTES) -> str:
    """Return a string that can be sent.

    Raises:
        TypeError: it is not a string.
        ValueError: it cannot be UTF-8, or is longer than that.
    """
    if not isinstance(given, str):
        raise TypeError(f"{name} must be a string, not {given!r}")
    try:
        size_bytes = len(given.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be text that UTF-8 can hold, not {given!r}") from None
    if most_bytes is not None and size_bytes > most_bytes:
        raise ValueError(f"{name} must have at most {most_bytes} bytes, not {size_bytes}")
    return given


def whole_number(name: str, given: Any, least: int = 0, most: int = MAX_INT64) -> int:
    """Return a whole number within a range, as Python's own type.

    Raises:
        TypeError: it is not a whole number; floats and bools do not count as one.
        ValueError: it is out of range.
    """
    try:
        number = operator.index(given)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {given!r}") from None
    if isinstance(given, bool):
        raise TypeError(f"{name} must be a whole number, not {given!r}")
    if number < least:
        than = "negative" if least == 0 else f"less than {least}"
        raise ValueError(f"{name} must not be {than}, but is {number}")
    if number > most:
        raise ValueError(f"{name} must not be more than {most}, but is {number}")
    return number


def content(name: str, given: Any) -> bytes | None:
    """Return bytes, or None, of what may be any kind of buffer.

    Raises:
        TypeError: it is neither.
    """
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise TypeError(
        f"{name} must be bytes or None, not {type(given).__name__}: encode it, or give the client a"
        " serializer"
    )


def headers(given: HeadersLike) -> Headers:
    """Return a record's headers, given as a dict or, where a name comes twice, as pairs.

    Raises:
        TypeError, ValueError: they are neither.
    """
    pairs = given.items() if isinstance(given, Mapping) else given
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise TypeError(f"headers must be a dict, or pairs of a name and bytes, not {given!r}")
    checked = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"a header must be a pair of a name and bytes or None, not {pair!r}")
        name, value = text("the name of a header", pair[0], most_bytes=None), pair[1]
        if isinstance(value, str):
            raise TypeError(f"header {name!r} must be bytes or None, not the string {value!r}")
        checked.append((name, content(f"header {name!r}", value)))
    return tuple(checked)


def config_value(name: str, given: Any) -> str | None:
    """Return the value of a setting of a topic, broker or group as Kafka writes it.

    True is "true", a list is joined by commas, a timedelta is milliseconds; None stays None.

    Raises:
        TypeError, ValueError: no setting can have that value.
    """
    if given is None or isinstance(given, str):
        return None if given is None else text(name, given)
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, timedelta):
        return str(whole_milliseconds(name, given))
    if isinstance(given, int | float):
        return str(given)
    if isinstance(given, list | tuple | set | frozenset) and not hasattr(given, "_fields"):
        parts = sorted(given) if isinstance(given, set | frozenset) else given
        return ",".join(text(f"each part of {name}", part) for part in parts)
    raise TypeError(
        f"{name} must be a string, a number, True or False, a timedelta or a list of strings,"
        f" not {given!r}"
    )


def check_function(name: str, given: object) -> None:
    """Check a function of the program's own.

    Raises:
        TypeError: it is neither None nor can it be called.
    """
    if given is not None and not callable(given):
        raise TypeError(f"{name} must be a function or None, not {given!r}")
