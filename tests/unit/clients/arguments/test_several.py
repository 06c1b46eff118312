"""One or several: what is given alone is that one, everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from kraftrio.clients.arguments import several
from kraftrio.wire.primitives import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ab", ["ab"]),
        (["a", "b"], ["a", "b"]),
        ({"a": 1}, ["a"]),
        ((), []),
        (iter("ab"), ["a", "b"]),
    ],
)
def test_one_or_several_topics(given: Any, expected: list[str]) -> None:
    """A string is one topic, not its letters."""
    assert several.topics("topics", given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (T0, [T0]),
        (("t", 0), [T0]),
        ([T0, ("t", 1)], [T0, T1]),
        ((T0, T1), [T0, T1]),
        ({T1: 5}, [T1]),
    ],
)
def test_one_or_several_partitions(given: Any, expected: list[TopicPartition]) -> None:
    """A partition is one, not its topic and its number; so is a pair."""
    found = several.topic_partitions("partitions", given)
    assert found == expected
    assert {type(each) for each in found} == {TopicPartition}


def test_arguments_that_are_each_one_or_several() -> None:
    assert several.all_partitions("partitions", (T0, [T1])) == [T0, T1]
    assert several.all_partitions("partitions", ()) == []


def test_brokers() -> None:
    assert several.broker_ids(1) == [1]
    assert several.broker_ids([1, 2]) == [1, 2]
    with pytest.raises(ValueError, match="the id of a broker must not be negative, but is -1"):
        several.broker_ids([-1])


@pytest.mark.parametrize(
    ("call", "given", "sentence"),
    [
        (several.topics, b"ab", "x must be one string, or a list of such, not b'ab'"),
        (several.topics, T0, "x must be one string, or a list of such, not TopicPartition("),
        (several.topics, None, "x must be one string, or a list of such, not None"),
        (several.topics, [5], "a topic must be a string, not 5"),
        (several.topic_partitions, "t", "x must be one TopicPartition, or a list of such, not 't'"),
        (several.topic_partitions, ["t"], "a partition must be TopicPartition(topic, number), not"),
        (several.topic_partitions, [("t", "0")], "a partition must be a whole number, not '0'"),
        (several.by_item, [T0], "x must be a dict, not [TopicPartition("),
    ],
)
def test_what_is_neither(call: Callable[[str, Any], object], given: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=re.escape(sentence)):
        call("x", given)


def test_what_is_subscribed_to() -> None:
    """A pattern, a topic, or topics."""
    pattern = re.compile("a.*")
    assert several.pattern_or_topics(pattern) == (pattern, frozenset())
    assert several.pattern_or_topics("ab") == (None, {"ab"})
    assert several.pattern_or_topics(["a", "b"]) == (None, {"a", "b"})
