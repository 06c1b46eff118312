"""Changes of settings that are refused, of every kind of resource, and with which words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.conformance.cases.raw_client import RawClient

TOPIC, BROKER, CLIENT_METRICS = 2, 4, 16
SET, APPEND, SUBTRACT = 0, 2, 3
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
CONFIG, REQUEST = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST


def judged(
    client: RawClient, kind: int, name: str, key: str, operation: int, value: str | None
) -> tuple[ErrorCode, str]:
    """What is said of a change that is only tried out."""
    config = IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
    resource = IncrementalAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    (answer,) = client.call(request, 1).responses
    return ErrorCode(answer.error_code), answer.error_message or ""


EMPTY = "Configuration '{0}' values must not be empty."
LISTS = [
    (TOPIC, "cleanup.policy", SET, "delete,", CONFIG, EMPTY),
    (TOPIC, "cleanup.policy", SET, ",", CONFIG, EMPTY),
    (TOPIC, "cleanup.policy", SET, "delete, ,compact", CONFIG, EMPTY),
    (TOPIC, "cleanup.policy", SET, "delete,delete", NONE, ""),
    (TOPIC, "cleanup.policy", APPEND, "", CONFIG, EMPTY),
    (TOPIC, "cleanup.policy", APPEND, "compact,", NONE, ""),
    (TOPIC, "cleanup.policy", APPEND, ",", NONE, ""),
    (TOPIC, "cleanup.policy", SUBTRACT, "", NONE, ""),
    (BROKER, "log.cleanup.policy", SET, "delete,,compact", REQUEST, EMPTY),
    (BROKER, "log.cleanup.policy", SET, "delete,delete", NONE, ""),
    (BROKER, "log.cleanup.policy", APPEND, "compact,", NONE, ""),
    (BROKER, "log.cleanup.policy", APPEND, "", REQUEST, EMPTY),
    (BROKER, "cordoned.log.dirs", SET, ",", REQUEST, EMPTY),
    (BROKER, "ssl.cipher.suites", SET, "a,", REQUEST, EMPTY),
    (CLIENT_METRICS, "metrics", SET, "a,,b", CONFIG, EMPTY),
    (CLIENT_METRICS, "metrics", SET, "a,a", NONE, ""),
    (CLIENT_METRICS, "match", SET, "client_id=a,", CONFIG, EMPTY),
    (BROKER, "log.retention.ms", APPEND, "1", CONFIG, "value append is not allowed for config key"),
    (BROKER, "log.retention.ms", SUBTRACT, "1", CONFIG, "value subtract is not allowed for config"),
    (CLIENT_METRICS, "metrics", APPEND, "a", CONFIG, "Can't APPEND to key {0}"),
    (CLIENT_METRICS, "metrics", SUBTRACT, "a", CONFIG, "Can't SUBTRACT to key {0}"),
    (CLIENT_METRICS, "match", SET, "client_id=", CONFIG, "Illegal client matching pattern"),
    (CLIENT_METRICS, "match", SET, "client_id=a=b", CONFIG, "Illegal client matching pattern"),
    (TOPIC, "retention.ms", SET, None, REQUEST, "Null value not supported for : {0}"),
]


@pytest.mark.parametrize(
    ("kind", "key", "operation", "value", "code", "words"), LISTS, ids=lambda one: str(one)
)
def test_lists(
    client: RawClient,
    new_topic: Callable[..., str],
    kind: int,
    key: str,
    operation: int,
    value: str | None,
    code: ErrorCode,
    words: str,
) -> None:
    """Empty items are refused, what is named again is ignored, and only lists are edited."""
    name = {TOPIC: "", BROKER: "1", CLIENT_METRICS: "nobody"}[kind] or new_topic()
    found, message = judged(client, kind, name, key, operation, value)
    assert found is code, message
    assert words.format(key) in message


def test_a_value_is_judged_before_its_topic(client: RawClient) -> None:
    """Of a topic that is not there a wrong value is told first."""
    name = "no-such-topic"
    assert judged(client, TOPIC, name, "retention.ms", SET, "1")[0] is UNKNOWN
    assert judged(client, TOPIC, name, "retention.ms", SET, "soon")[0] is CONFIG
    assert judged(client, TOPIC, name, "no.such.config", SET, "1")[0] is CONFIG


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("num.io.threads", "17", "value should not be greater than double the current value 8"),
        ("num.io.threads", "3", "value should be at least half the current value 8"),
        ("num.replica.fetchers", "3", "Dynamic thread count update validation failed"),
        ("log.cleaner.threads", "3", "Log cleaner threads cannot be increased to more than double"),
        ("log.cleaner.dedupe.buffer.size", "1048576", "at least 1MB per cleaner thread"),
        ("max.connection.creation.rate", "0", "Invalid max.connection.creation.rate 0"),
        ("max.connections", "0", "Invalid max.connections 0"),
        ("max.connections.per.ip", "0", "max.connections.per.ip can be set to zero only if"),
    ],
)
@pytest.mark.parametrize("name", ["1", ""])
def test_limits_of_a_running_broker(
    client: RawClient, name: str, key: str, value: str, words: str
) -> None:
    """Pools double or halve at a time, and some limits may be zero in a file alone."""
    found, message = judged(client, BROKER, name, key, SET, value)
    assert found is REQUEST
    assert words in message


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("/no/such/directory", "Missing entries : /no/such/directory"),
        ("*,/no/such/directory", "When cordoned.log.dirs is set to *"),
    ],
)
def test_directories_that_cannot_be_cordoned(client: RawClient, value: str, words: str) -> None:
    """Because this broker has no such."""
    found, message = judged(client, BROKER, "1", "cordoned.log.dirs", SET, value)
    assert found is REQUEST
    assert words in message
    assert judged(client, BROKER, "1", "cordoned.log.dirs", SET, "*") == (NONE, "")
