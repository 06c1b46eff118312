"""What programs hand to the clients, checked where they hand it over.

Rules:
1. Whatever is encoded later, beside the program, is checked first: one value that cannot be sent
   must not take others with it, which were accepted before. A wrong type is a TypeError; what is
   out of range, or no text that UTF-8 can hold, a ValueError. The sentence names the argument.
2. Where several are wanted, one alone is refused: a string is several strings for Python, and a
   `TopicPartition` is a string and a number, so that `delete_topics("ab")` would delete a and b.

Pure. Called by: the clients' public methods, and their settings.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from kraftrio.wire.primitives import TopicPartition

MAX_INT16: Final = 0x7FFF
MAX_INT32: Final = 0x7FFF_FFFF
MAX_INT64: Final = 0x7FFF_FFFF_FFFF_FFFF
_MAX_STRING_BYTES: Final = 32_767  # of a string in a request

T = TypeVar("T")


def several(name: str, given: Iterable[T]) -> list[T]:
    """Return the items of an argument that is to be several of something.

    Raises:
        TypeError: it is one alone, or nothing that can be iterated over.
    """
    is_record = isinstance(given, tuple) and hasattr(given, "_fields")  # a NamedTuple
    if is_record or isinstance(given, str | bytes | bytearray | memoryview):
        raise TypeError(f"{name} must be several, such as a list, not {given!r} alone")
    if not isinstance(given, Iterable):
        raise TypeError(f"{name} must be several, such as a list, not {given!r}")
    return list(given)


def text(name: str, given: object, *, most_bytes: int | None = _MAX_STRING_BYTES) -> str:
    """Return a string that can be sent.

    Raises:
        TypeError: it is no string.
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
        TypeError: it is no whole number: a float is none, and True is none.
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
    raise TypeError(f"{name} must be bytes or None, not {type(given).__name__}")


def topic_partition(given: Any) -> TopicPartition:
    """Return a partition, given as such or as a pair of a topic and a number.

    Raises:
        TypeError: it is neither.
        ValueError: no partition can have that name or number.
    """
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"a partition must be TopicPartition(topic, number), not {given!r}")
    topic, partition = given
    return TopicPartition(
        text("a topic", topic), whole_number("a partition", partition, 0, MAX_INT32)
    )


def topic_partitions(name: str, given: Iterable[Any]) -> list[TopicPartition]:
    """Return several partitions.

    Raises:
        TypeError, ValueError: as `several` and `topic_partition`.
    """
    return [topic_partition(each) for each in several(name, given)]


def topics(name: str, given: Iterable[Any]) -> list[str]:
    """Return several names of topics.

    Raises:
        TypeError, ValueError: as `several` and `text`.
    """
    return [text("a topic", each) for each in several(name, given)]


def pattern_or_topics(
    given: str | re.Pattern[str] | Iterable[Any],
) -> tuple[re.Pattern[str] | None, frozenset[str]]:
    """Return what is subscribed to: a pattern, or topics (one alone is fine there).

    Raises:
        TypeError, ValueError: as `topics`.
    """
    if isinstance(given, re.Pattern):
        text("a pattern of topics", given.pattern, most_bytes=None)
        return given, frozenset()
    if isinstance(given, str):
        given = [given]
    return None, frozenset(topics("topics", given))


def broker_ids(given: Iterable[Any]) -> list[int]:
    """Return the ids of several brokers.

    Raises:
        TypeError, ValueError: as `several` and `whole_number`.
    """
    ids = several("brokers", given)
    return [whole_number("the id of a broker", each, 0, MAX_INT32) for each in ids]
