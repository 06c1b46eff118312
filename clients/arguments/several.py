"""One or several: what is wanted several times may be given alone, everywhere.

A string is several strings to Python, and a `TopicPartition` is a string and a number; here each
counts as the one that it is, so that `delete_topics("ab")` deletes the topic "ab". The types say
so, too: where `Topics` or `Partitions` are wanted, type checkers take one or several.

Pure. Called by: the clients' public methods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from kraftrio.clients.arguments.values import MAX_INT32, text, whole_number
from kraftrio.wire.primitives import TopicPartition

Texts = str | Iterable[str]
Partitions = TopicPartition | Iterable[TopicPartition]

_PLAIN_NAMES: Final[Mapping[type, str]] = {str: "string", int: "whole number"}

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")


def several(name: str, given: Any, kind: type[T] | tuple[type[T], ...]) -> list[T]:
    """Return a list of what is given alone, or several times; what they are is not looked at.

    Args:
        kind: what one of them is.

    Raises:
        TypeError: it is neither, as what can be cut into letters or bytes is not.
    """
    if isinstance(given, kind):
        return [given]
    is_one_of_another_kind = isinstance(given, tuple) and hasattr(given, "_fields")
    if (
        is_one_of_another_kind
        or isinstance(given, str | bytes | bytearray | memoryview)
        or not isinstance(given, Iterable)
    ):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        one = " or ".join(f"one {_PLAIN_NAMES.get(each, each.__name__)}" for each in kinds)
        raise TypeError(f"{name} must be {one}, or a list of such, not {given!r}")
    return list(given)


def by_item(name: str, given: Mapping[K, V]) -> Mapping[K, V]:
    """Return what says something of each of several items.

    Raises:
        TypeError: it is not a dict.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must be a dict, not {given!r}")
    return given


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


def topic_partitions(name: str, given: Partitions) -> list[TopicPartition]:
    """Return several partitions.

    Raises:
        TypeError, ValueError: as `several` and `topic_partition`.
    """
    is_pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
    found = [given] if is_pair else several(name, given, TopicPartition)
    return [topic_partition(each) for each in found]


def all_partitions(name: str, given: Iterable[Partitions]) -> list[TopicPartition]:
    """Return the partitions of a call with any number of arguments, each one or several of them.

    Raises:
        TypeError, ValueError: as `topic_partitions`.
    """
    return [found for each in given for found in topic_partitions(name, each)]


def texts(name: str, given: Texts, what: str) -> list[str]:
    """Return several strings.

    Args:
        what: one of them, with its article.

    Raises:
        TypeError, ValueError: as `several` and `text`.
    """
    return [text(what, each) for each in several(name, given, str)]


def topics(name: str, given: Texts) -> list[str]:
    """Return several names of topics.

    Raises:
        TypeError, ValueError: as `texts`.
    """
    return texts(name, given, "a topic")


def pattern_or_topics(
    given: re.Pattern[str] | Texts,
) -> tuple[re.Pattern[str] | None, frozenset[str]]:
    """Return what is subscribed to: a pattern, or topics.

    Raises:
        TypeError, ValueError: as `topics`.
    """
    if isinstance(given, re.Pattern):
        text("a pattern of topics", given.pattern, most_bytes=None)
        return given, frozenset()
    return None, frozenset(topics("topics", given))


def broker_ids(given: int | Iterable[int]) -> list[int]:
    """Return the ids of several brokers.

    Raises:
        TypeError, ValueError: as `several` and `whole_number`.
    """
    ids = several("brokers", given, int)
    return [whole_number("the id of a broker", each, 0, MAX_INT32) for each in ids]
