"""DeleteTopics: by name, by id, and what is named more than once."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.kraft_meta.metadata.image import TOPIC
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import DeleteTopicsRequest, DeleteTopicState
from kraftrio.wire.primitives import ZERO_UUID
from tests.unit.kraft_meta.controller.context import ControllerContext, three_brokers


def delete(context: ControllerContext, *states: DeleteTopicState) -> list[Any]:
    response = context.send(DeleteTopicsRequest(topics=list(states)), api_version=6)
    return list(response.responses)


def test_topics_are_deleted_by_name_and_by_id() -> None:
    """Answers carry name and id; the configuration goes with the topic."""
    context = three_brokers()
    a, b = context.create("a", retention_ms="5"), context.create("b")
    results = delete(context, DeleteTopicState(name="a"), DeleteTopicState(topic_id=b))
    assert [(r.name, r.topic_id, r.error_code) for r in results] == [("a", a, 0), ("b", b, 0)]
    assert not context.image.topics_by_name
    assert not context.image.topics_by_id
    assert not context.image.config(TOPIC, "a")


def test_old_requests_delete_by_names() -> None:
    """Versions 1 to 5 carry a list of names."""
    context = three_brokers()
    context.create("a")
    response = context.send(DeleteTopicsRequest(topic_names=["a", "b"]), api_version=3)
    assert [(r.name, r.error_code) for r in response.responses] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    (_, unknown) = response.responses
    assert unknown.error_message == "This server does not host this topic-partition."


def test_refused_deletions() -> None:
    """Unknown names and ids, neither, both: each has its entry, also when it comes again."""
    context = three_brokers()
    a = context.create("a")
    results = delete(
        context,
        DeleteTopicState(name="x"),
        DeleteTopicState(topic_id=b"x" * 16),
        DeleteTopicState(),
        DeleteTopicState(),
        DeleteTopicState(name="a", topic_id=a),
        DeleteTopicState(name="a", topic_id=a),
    )
    assert [r.error_code for r in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert context.image.topic("a") is not None


@pytest.mark.parametrize(
    ("api_version", "code"),
    [(1, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_deletion_can_be_disabled(api_version: int, code: ErrorCode) -> None:
    """delete.topic.enable=false: 73, or 42 for clients that do not know it."""
    context = three_brokers(delete_topic_enable=False)
    context.create("a")
    response = context.send(DeleteTopicsRequest(topic_names=["a"]), api_version=api_version)
    assert response.responses[0].error_code == code
    assert context.image.topic("a") is not None


def test_a_deleted_name_is_free_again() -> None:
    """The new topic has another id."""
    context = three_brokers()
    first = context.create("a")
    delete(context, DeleteTopicState(name="a"))
    assert context.create("a") != first


# What `#` stands before is given by id; `?` is not there.
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["a", "a"], [("a", "", "Duplicate topic name.")]),
        (["#a", "#a"], [("", "a", "Duplicate topic id.")]),
        (["a", "#a"], [("a", "a", "already supplied")]),
        (["#a", "a", "b"], [("a", "a", "already supplied"), ("b", "b", "")]),
        (["b", "a", "b", "a"], [("b", "", "Duplicate topic name."), ("a", "", "Duplicate topic")]),
        (["?", "?"], [("?", "", "Duplicate topic name.")]),
        (["#?", "#?"], [("", "?", "Duplicate topic id.")]),
        # twice by name is one mistake, and the id alone is left
        (["#a", "a", "a"], [("a", "a", ""), ("a", "", "Duplicate topic name.")]),
        (["#a", "#a", "a"], [("", "a", "Duplicate topic id."), ("a", "a", "")]),
    ],
)
def test_what_is_named_twice_has_one_entry(
    asked: list[str], expected: list[tuple[str, str, str]]
) -> None:
    """As Apache Kafka 4.3 answers; only what is named once is deleted."""
    context = three_brokers()
    ids = {"?": b"?" * 16, "": ZERO_UUID} | {name: context.create(name) for name in "ab"}
    states = [
        DeleteTopicState(name=None, topic_id=ids[one[1:]])
        if one.startswith("#")
        else DeleteTopicState(name=one)
        for one in asked
    ]
    results = delete(context, *states)
    assert [(one.name or "", one.topic_id) for one in results] == [
        (name, ids[topic_id]) for name, topic_id, _ in expected
    ]
    deleted = set()
    for result, (name, _, text) in zip(results, expected, strict=True):
        if text:
            assert result.error_code == ErrorCode.INVALID_REQUEST
            assert text in result.error_message
        else:
            assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
            deleted.add(name)
    assert set(context.image.topics_by_name) == {"a", "b"} - deleted


def test_names_of_old_requests_that_come_twice() -> None:
    context = three_brokers()
    context.create("a")
    response = context.send(DeleteTopicsRequest(topic_names=["a", "a"]), api_version=4)
    assert [(one.name, one.error_code) for one in response.responses] == [
        ("a", ErrorCode.INVALID_REQUEST)
    ]
    assert context.image.topic("a") is not None
