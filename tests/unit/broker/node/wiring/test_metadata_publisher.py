"""The order in which the parts of a broker see a new image, and what each is called for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from immutables import Map

from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.node.wiring.metadata_publisher import MetadataPublisher, Quotas
from kraftrio.broker.replica.quota import Direction
from kraftrio.kraft_meta.metadata.image import BROKER, TOPIC, MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftrio.kraft_meta.metadata.security_records import ClientQuotaRecord
from kraftrio.wire.topic_names import CONSUMER_OFFSETS

_ID = b"\x01" * 16
_RATE = "leader.replication.throttled.rate"


class Part:
    """A part of a broker that notes its calls in a list that all share."""

    def __init__(self, name: str, calls: list[tuple[Any, ...]]) -> None:
        self._name = name
        self._calls = calls

    def __getattr__(self, method: str) -> Callable[..., None]:
        def note(*arguments: Any) -> None:
            shown = [one for one in arguments if not isinstance(one, MetadataDelta | MetadataImage)]
            plain = [dict(one) if isinstance(one, Mapping) else one for one in shown]
            self._calls.append((self._name, method, *plain))

        return note


class Quota(Part):
    """A bound on what leaders send."""

    direction = Direction.LEADER


class Broker:
    """Broker 1 with parts that note their calls, and the image that was published last."""

    def __init__(self) -> None:
        config = BrokerConfig.load(None, {"node.id": "1"}, {}, host_name=lambda: "h")
        self.calls: list[tuple[Any, ...]] = []
        self.metadata = MetadataCache()

        def part(name: str) -> Any:
            return Part(name, self.calls)

        self.publisher = MetadataPublisher(
            1,
            self.metadata,
            DynamicConfig(config, lambda _warning: None),
            part("replicas"),
            {CONSUMER_OFFSETS: part("groups")},
            [part("fetchers")],
            Quotas([cast(Any, Quota("quota", self.calls))], [part("clients")]),
            lambda _delta, image: self.calls.append(("applied", image.offset)),
        )

    def publish(self, *records: MetadataRecord) -> list[tuple[Any, ...]]:
        """Publish what these records make; return the calls to the parts in their order."""
        self.calls.clear()
        delta = MetadataDelta(self.metadata.image)
        for record in records:
            delta.replay(record)
        self.publisher.publish(delta, delta.apply(self.metadata.image.offset + len(records), 1))
        return list(self.calls)


def _offsets_topic(leader: int) -> tuple[MetadataRecord, ...]:
    return (
        TopicRecord(CONSUMER_OFFSETS, _ID),
        PartitionRecord(_ID, 0, replicas=(1, 2), isr=(1, 2), leader=leader, leader_epoch=5),
    )


def test_settings_come_before_replicas_and_these_before_fetchers_and_coordinators() -> None:
    broker = Broker()
    calls = broker.publish(
        RegisterBrokerRecord(2, b"2" * 16, 7, ()),
        *_offsets_topic(leader=1),
        ConfigRecord(BROKER, "1", _RATE, "9"),
        ConfigRecord(TOPIC, CONSUMER_OFFSETS, "leader.replication.throttled.replicas", "*"),
    )
    throttled = {"leader.replication.throttled.replicas": "*"}
    assert calls == [
        ("quota", "set_rate", 9),
        ("replicas", "update_configs", None),
        ("quota", "set_topic", CONSUMER_OFFSETS, throttled),
        ("replicas", "update_configs", [CONSUMER_OFFSETS]),
        ("replicas", "apply_delta"),
        ("fetchers", "metadata_changed"),
        ("groups", "elect", 0, 5),
        ("groups", "on_topics_changed", [CONSUMER_OFFSETS]),
        ("applied", broker.publisher.applied_offset),
    ]
    assert broker.publisher.applied_offset == broker.metadata.image.offset


def test_clients_are_held_to_other_quotas_only_when_these_change() -> None:
    broker = Broker()
    entity = (("user", "a"),)
    calls = broker.publish(ClientQuotaRecord(entity, "producer_byte_rate", 9.0))
    assert calls[0] == ("clients", "change", {entity: Map(producer_byte_rate=9.0)})
    calls = broker.publish(ConfigRecord(BROKER, "1", _RATE, "9"))
    assert not any(call[0] == "clients" for call in calls)


def test_coordinators_follow_the_leaders_of_their_topic() -> None:
    """They are elected in each new leader epoch here, and resign when another broker leads."""
    broker = Broker()

    def led_by(leader: int) -> list[tuple[Any, ...]]:
        calls = broker.publish(PartitionChangeRecord(_ID, 0, leader=leader))
        return [call[1:] for call in calls if call[0] == "groups"]

    assert ("groups", "elect", 0, 5) not in broker.publish(*_offsets_topic(leader=2))
    assert led_by(1) == [("elect", 0, 6)]
    assert led_by(1) == [("elect", 0, 7)]
    assert led_by(2) == [("resign", 0)]
    assert led_by(2) == []
    calls = broker.publish(PartitionChangeRecord(_ID, 0, isr=(1,)))
    assert [call[0] for call in calls] == ["replicas", "applied"]


def test_a_deleted_topic_ends_its_coordinators_and_all_others_are_notified() -> None:
    broker = Broker()
    broker.publish(*_offsets_topic(leader=1))
    assert [call for call in broker.publish(RemoveTopicRecord(_ID)) if call[0] == "groups"] == [
        ("groups", "resign", 0),
        ("groups", "on_topics_deleted", {CONSUMER_OFFSETS: _ID}),
        ("groups", "on_topics_changed", [CONSUMER_OFFSETS]),
    ]


def test_coordinators_are_notified_of_topics_with_other_partitions_or_replicas() -> None:
    """Leaders and ISRs change far more often, and assignors do not look at them."""
    broker = Broker()
    topic_id = b"\x02" * 16

    def changed(*records: MetadataRecord) -> list[Any]:
        calls = broker.publish(*records)
        return [call[2] for call in calls if call[1] == "on_topics_changed"]

    created = PartitionRecord(topic_id, 0, replicas=(1, 2), isr=(1, 2), leader=1)
    assert changed(TopicRecord("t", topic_id), created) == [["t"]]
    assert changed(PartitionChangeRecord(topic_id, 0, leader=2)) == []
    assert changed(PartitionChangeRecord(topic_id, 0, isr=(2,))) == []
    assert changed(PartitionChangeRecord(topic_id, 0, replicas=(2, 3))) == [["t"]]
    added = PartitionRecord(topic_id, 1, replicas=(1, 2), isr=(1, 2), leader=1)
    assert changed(added) == [["t"]]
    assert changed(RemoveTopicRecord(topic_id)) == [["t"]]


def test_what_concerns_no_part_is_applied_all_the_same() -> None:
    """Waiters for an offset must not wait for ever."""
    broker = Broker()
    broker.publish(RegisterBrokerRecord(2, b"2" * 16, 7, ()))
    calls = broker.publish(BrokerRegistrationChangeRecord(2, 7, fenced=False))
    assert calls[-1] == ("applied", broker.metadata.image.offset)
