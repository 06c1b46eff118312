"""Consumer groups in a test: a shard with topics, heartbeats by short names, members that obey.

`beat` sends one heartbeat. A `Member` follows the protocol as clients do: it takes what it is
given, gives up what is taken away with its next heartbeat, and begins again when it is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kraftrio.broker.coordinator.groups.consumer.checks import check_request
from kraftrio.broker.coordinator.groups.consumer.parts import HeartbeatClient
from kraftrio.broker.coordinator.groups.consumer.state.group import ConsumerGroup
from kraftrio.kraft_meta.metadata.image import MetadataDelta
from kraftrio.kraft_meta.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from tests.unit.broker.coordinator.groups.group_context import GroupContext

Owned = dict[bytes, set[int]]


def topic_id_of(name: str) -> bytes:
    """A topic's id, made from its name."""
    return name.encode().ljust(16, b"\0")[:16]


class ConsumerContext(GroupContext):
    """See the module."""

    @property
    def consumer_group(self) -> ConsumerGroup:
        group = self.shard.groups.find(self.group_id, ConsumerGroup)
        assert group is not None
        return group

    # --- topics ---

    def add_topic(self, name: str, partition_count: int = 1, first: int = 0) -> None:
        """Make a topic, or add partitions to it."""
        records: list[Any] = [] if first else [TopicRecord(name, topic_id_of(name))]
        records += [
            PartitionRecord(topic_id_of(name), index, replicas=(1,), isr=(1,), leader=1)
            for index in range(first, partition_count)
        ]
        self._publish(records, name)

    def remove_topic(self, name: str) -> None:
        """Delete a topic."""
        self._publish([RemoveTopicRecord(topic_id_of(name))], name)

    def _publish(self, records: list[Any], name: str) -> None:
        delta = MetadataDelta(self.metadata.image)
        for record in records:
            delta.replay(record)
        self.metadata.image = delta.apply(self.metadata.image.offset + len(records), 1)
        self.shard.on_topics_changed([name], self.now)

    # --- heartbeats ---

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        topics: Iterable[str] | None = None,
        owned: Owned | None = None,
        api_version: int = 1,
        client_id: str = "client",
        may_describe: Callable[[str], bool] = lambda _topic: True,
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        """Send one heartbeat, as it would be served by the handler.

        Raises KafkaError when it is refused.
        """
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=None if topics is None else list(topics),
            topic_partitions=None if owned is None else as_owned(owned),
            **fields,
        )
        client = HeartbeatClient(client_id, "/127.0.0.1", api_version, may_describe)
        check_request(request, api_version, self.properties.group_consumer_assignors)
        response = self.shard.consumer.heartbeat_unchanged(
            request, client_id, client.client_host, self.now
        )
        if response is None:
            response = self.carry_out(self.shard.consumer.heartbeat(request, client, self.now))
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def join(
        self, member_id: str, topics: Iterable[str] | None = ("topic",), **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """Send the first heartbeat of a member."""
        fields.setdefault("rebalance_timeout_ms", 60_000)
        return self.beat(member_id, 0, topics=topics, owned={}, **fields)

    def refused(self, *args: Any, **kwargs: Any) -> tuple[ErrorCode, str | None]:
        """Send a heartbeat that is refused; return code and message."""
        logged = len(self.log)
        try:
            self.beat(*args, **kwargs)
        except KafkaError as error:
            assert len(self.log) == logged
            return error.code, error.message
        raise AssertionError("the heartbeat was not refused")


def as_owned(owned: Owned) -> list[ConsumerGroupHeartbeatTopicPartitions]:
    """What a member owns, as a request names it."""
    return [
        ConsumerGroupHeartbeatTopicPartitions(topic_id=topic, partitions=sorted(parts))
        for topic, parts in owned.items()
        if parts
    ]


def assigned(response: ConsumerGroupHeartbeatResponse) -> Owned:
    """What a heartbeat's response gives the member."""
    assert response.assignment is not None
    return {one.topic_id: set(one.partitions) for one in response.assignment.topic_partitions}


@dataclass
class Member:
    """A member that follows the protocol; see the module."""

    context: ConsumerContext
    member_id: str
    topics: tuple[str, ...] = ("topic",)
    instance_id: str | None = None
    epoch: int = 0
    owned: Owned = field(default_factory=dict)
    errors: list[ErrorCode] = field(default_factory=list)

    def beat(self) -> None:
        """Send a heartbeat, and do what the answer says."""
        fields: dict[str, Any] = {}
        if self.instance_id is not None:
            fields["instance_id"] = self.instance_id
        if self.epoch == 0:
            self.owned = {}
            fields |= {"topics": self.topics, "rebalance_timeout_ms": 60_000}
        try:
            response = self.context.beat(self.member_id, self.epoch, owned=self.owned, **fields)
        except KafkaError as error:
            self.errors.append(error.code)
            self.epoch, self.owned = 0, {}
            return
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = assigned(response)

    def leave(self, epoch: int = -1) -> None:
        """Leave the group."""
        fields: dict[str, Any] = {}
        if self.instance_id is not None:
            fields["instance_id"] = self.instance_id
        self.context.beat(self.member_id, epoch, **fields)
        self.epoch, self.owned = 0, {}

    @property
    def partitions(self) -> set[tuple[bytes, int]]:
        """What the member owns, one by one."""
        return {(topic, index) for topic, parts in self.owned.items() for index in parts}


def settle(*members: Member, rounds: int = 6) -> None:
    """Have members send heartbeats in turns until all have what they are to have."""
    for _ in range(rounds):
        for member in members:
            member.beat()
