"""Settings of groups: which values are allowed, how others are refused, and what is shown."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.conformance.cases.raw_client import RawClient

GROUP_RESOURCE = 32
SET, DELETE = 0, 1
GROUP_SOURCE, DEFAULT_SOURCE = 8, 5


def alter(
    client: RawClient, group: str, name: str, value: str | None
) -> tuple[ErrorCode, str | None]:
    """Set one setting, to its default if None; return the answer."""
    config = IncrementalAlterableConfig(
        name=name, config_operation=DELETE if value is None else SET, value=value
    )
    resource = IncrementalAlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=[config]
    )
    (answer,) = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return ErrorCode(answer.error_code), answer.error_message


def described(client: RawClient, group: str) -> dict[str, DescribeConfigsResourceResult]:
    """All that is shown of a group."""
    resource = DescribeConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (found,) = client.call(request, 4).results
    return {one.name: one for one in found.configs}


_RESET = (
    "Invalid value {0} for configuration share.auto.offset.reset: Invalid value `{0}` for"
    " configuration share.auto.offset.reset. The value must be either 'earliest', 'latest' or of"
    " the format 'by_duration:<PnDTnHnMn.nS>'."
)
_BETWEEN = "{0} must be {1} than or equal to group.{2}"
REFUSED = [
    ("foo", "1", "Unknown group config name: foo"),
    (
        "consumer.heartbeat.interval.ms",
        "1",
        _BETWEEN.format(
            "consumer.heartbeat.interval.ms", "greater", "consumer.min.heartbeat.interval.ms"
        ),
    ),
    (
        "consumer.session.timeout.ms",
        "70000",
        _BETWEEN.format("consumer.session.timeout.ms", "less", "consumer.max.session.timeout.ms"),
    ),
    (
        "share.delivery.count.limit",
        "11",
        _BETWEEN.format("share.delivery.count.limit", "less", "share.max.delivery.count.limit"),
    ),
    (
        "streams.num.standby.replicas",
        "3",
        _BETWEEN.format("streams.num.standby.replicas", "less", "streams.max.standby.replicas"),
    ),
    (
        "streams.assignment.interval.ms",
        "20000",
        _BETWEEN.format(
            "streams.assignment.interval.ms", "less", "streams.max.assignment.interval.ms"
        ),
    ),
    (
        "share.record.lock.duration.ms",
        "999",
        "Invalid value 999 for configuration share.record.lock.duration.ms: Value must be at least"
        " 1000",
    ),
    (
        "consumer.session.timeout.ms",
        "99999999999",
        "Invalid value 99999999999 for configuration consumer.session.timeout.ms: Not a number of"
        " type INT",
    ),
    (
        "share.isolation.level",
        "none",
        "Invalid value none for configuration share.isolation.level: String must be one of:"
        " read_committed, read_uncommitted",
    ),
    (
        "share.renew.acknowledge.enable",
        "maybe",
        "Invalid value maybe for configuration share.renew.acknowledge.enable: Expected value to be"
        " either true or false",
    ),
    *(
        ("share.auto.offset.reset", value, _RESET.format(value))
        for value in ("sometimes", "EARLIEST", "by_duration:-PT1H", "by_duration:1h")
    ),
]


@pytest.mark.parametrize(("name", "value", "sentence"), REFUSED)
def test_refused(
    client: RawClient, unique_group: Callable[[], str], name: str, value: str, sentence: str
) -> None:
    """With Kafka's code and sentence; nothing is changed."""
    group = unique_group()
    assert alter(client, group, name, value) == (ErrorCode.INVALID_CONFIG, sentence)
    assert {one.config_source for one in described(client, group).values()} == {DEFAULT_SOURCE}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.session.timeout.ms", "50000"),
        ("share.isolation.level", "read_committed"),
        ("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S"),
        ("share.auto.offset.reset", "by_duration:pt1h"),
        ("streams.num.standby.replicas", "2"),
    ],
)
def test_allowed(client: RawClient, unique_group: Callable[[], str], name: str, value: str) -> None:
    """It is shown as the group's own, before the broker's; once unset, the broker's is back."""
    group = unique_group()
    assert alter(client, group, name, value)[0] == ErrorCode.NONE
    deadline = time.monotonic() + 15
    while described(client, group)[name].config_source != GROUP_SOURCE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    shown = described(client, group)[name]
    assert (shown.value, shown.read_only, shown.is_sensitive) == (value, False, False)
    own, *others = [(one.name, one.value, one.source) for one in shown.synonyms]
    assert own == (name, value, GROUP_SOURCE)
    broker_name = name if name.startswith(("share.iso", "share.auto")) else f"group.{name}"
    assert [(one[0], one[2]) for one in others] == [(broker_name, DEFAULT_SOURCE)]
    assert alter(client, group, name, None)[0] == ErrorCode.NONE
    while described(client, group)[name].config_source != DEFAULT_SOURCE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
