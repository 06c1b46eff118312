"""Settings for groups that contradict each other are refused at the start."""

from __future__ import annotations

import pytest

from kraftrio.broker.config.config import BrokerConfig, PropertyError


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"group.consumer.min.session.timeout.ms": "50000"},
            "group.consumer.min.session.timeout.ms is 50000: it must not be above"
            " group.consumer.session.timeout.ms, which is 45000",
        ),
        (
            {"group.share.heartbeat.interval.ms": "20000"},
            "group.share.heartbeat.interval.ms is 20000: it must not be above"
            " group.share.max.heartbeat.interval.ms",
        ),
        (
            {
                "group.streams.heartbeat.interval.ms": "5000",
                "group.streams.min.session.timeout.ms": "5000",
                "group.streams.session.timeout.ms": "5000",
            },
            "group.streams.heartbeat.interval.ms is 5000: it must be below"
            " group.streams.session.timeout.ms, which is 5000",
        ),
        (
            {"group.consumer.min.assignment.interval.ms": "2000"},
            "group.consumer.min.assignment.interval.ms is 2000: it must not be above"
            " group.consumer.assignment.interval.ms",
        ),
        (
            {"group.share.min.delivery.count.limit": "5", "group.share.delivery.count.limit": "4"},
            "group.share.min.delivery.count.limit is 5: it must not be above",
        ),
        (
            {"group.share.record.lock.duration.ms": "70000"},
            "group.share.record.lock.duration.ms is 70000: it must not be above",
        ),
        (
            {"group.share.partition.max.record.locks": "5000"},
            "group.share.partition.max.record.locks is 5000: it must not be above",
        ),
        (
            {"group.share.max.share.sessions": "100"},
            "group.share.max.size is 200: it must not be above group.share.max.share.sessions",
        ),
        (
            {"group.streams.num.standby.replicas": "3"},
            "group.streams.num.standby.replicas is 3: it must not be above"
            " group.streams.max.standby.replicas, which is 2",
        ),
        (
            {"group.consumer.assignors": "uniform,com.acme.Assignor"},
            "group.consumer.assignors is uniform,com.acme.Assignor: it must be one or more of"
            " uniform, range, once; Java classes cannot be run",
        ),
        ({"group.consumer.assignors": ""}, "it must be one or more of uniform, range"),
    ],
)
def test_refused(settings: dict[str, str], sentence: str) -> None:
    """With a sentence that names both settings."""
    with pytest.raises(PropertyError) as error:
        BrokerConfig(settings)
    assert sentence in str(error.value)


@pytest.mark.parametrize("assignors", ["range", "range,uniform"])
def test_assignors_in_any_order(assignors: str) -> None:
    """The first is the default of groups."""
    config = BrokerConfig({"group.consumer.assignors": assignors})
    assert config.group_consumer_assignors == assignors.split(",")
