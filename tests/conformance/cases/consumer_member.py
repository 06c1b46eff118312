"""A member of a consumer group (KIP-848) that sends exactly what a test has it send."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.conformance.cases.raw_client import RawClient

LEAVES, LEAVES_AS_STATIC = -1, -2
_DEADLINE_S = 20.0
_PAUSE_S = 0.05

Partitions = dict[bytes, list[int]]


@dataclass
class ConsumerMember:
    """What one consumer sends to its coordinator, and what that answered last."""

    client: RawClient
    group: str
    topics: list[str]
    instance: str | None = None
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    assigned: Partitions = field(default_factory=dict)

    def heartbeat(self, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat, and adopt what its answer says; fields are the request's."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch
        )
        for name, value in fields.items():
            setattr(request, name, value)
        response = self.client.call(request, version)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = {
                    one.topic_id: sorted(one.partitions)
                    for one in response.assignment.topic_partitions
                }
        return response

    def join(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """The first heartbeat, with all that is known of the member; fields override."""
        self.epoch = 0
        known = {
            "instance_id": self.instance,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": self.topics,
            "topic_partitions": [],
        }
        return self.heartbeat(**{**known, **fields})

    def confirm(self) -> ConsumerGroupHeartbeatResponse:
        """Send what it owns: all that it was assigned last."""
        owned = [
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in self.assigned.items()
        ]
        return self.heartbeat(topic_partitions=owned)

    @property
    def count(self) -> int:
        """How many partitions it has."""
        return sum(map(len, self.assigned.values()))

    def leave(self, epoch: int = LEAVES) -> ConsumerGroupHeartbeatResponse:
        return self.heartbeat(member_epoch=epoch, instance_id=self.instance)

    def commit_code(
        self, topic: str, epoch: int | None = None, offset: int = 1, version: int = 9
    ) -> ErrorCode:
        """Commit an offset of partition 0; return the answer."""
        request = OffsetCommitRequest(
            group_id=self.group,
            member_id=self.member_id,
            generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        response = self.client.call(request, version)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def fetch_code(self, topic: str, epoch: int | None = None) -> ErrorCode:
        """Fetch the offset of partition 0; return the group's part of the answer."""
        group = OffsetFetchRequestGroup(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
        )
        response = self.client.call(OffsetFetchRequest(groups=[group]), 9)
        return ErrorCode(response.groups[0].error_code)


def settle(*members: ConsumerMember, partitions: int) -> None:
    """Heartbeat in turns until all partitions are assigned and all have the same epoch."""
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        for member in members:
            response = member.confirm()
            assert response.error_code == ErrorCode.NONE, response
        epochs = {member.epoch for member in members}
        if len(epochs) == 1 and sum(member.count for member in members) == partitions:
            return
        assert time.monotonic() < deadline, [(one.epoch, one.assigned) for one in members]
        time.sleep(_PAUSE_S)
