"""Share groups in a test: a shard with topics, heartbeats by short names, states by hand.

What a group wants initialized is noted (`wanted`); `initialize_wanted` is the share coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kraftrio.broker.coordinator.groups.share.group import ShareGroup
from kraftrio.broker.coordinator.groups.share.states import Alteration, partitions_of
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.group_records.keys import decode_key
from kraftrio.wire.messages.share_groups import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.unit.broker.coordinator.groups.consumer.consumer_context import (
    ConsumerContext,
    topic_id_of,
)

Assigned = dict[bytes, list[int]]


class ShareContext(ConsumerContext):
    """See the module."""

    @property
    def share_group(self) -> ShareGroup:
        return self.shard.share.find(self.group_id)

    # --- heartbeats ---

    def share_beat(
        self,
        member_id: str,
        epoch: int,
        topics: Iterable[str] | None = None,
        *,
        rack_id: str | None = None,
        client_id: str = "client",
    ) -> ShareGroupHeartbeatResponse:
        """Send one heartbeat. Raises KafkaError when it is refused."""
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack_id,
            subscribed_topic_names=None if topics is None else list(topics),
        )
        client_host = "/127.0.0.1"
        unchanged = self.shard.share.heartbeat_unchanged(request, client_id, client_host, self.now)
        outcome = self.shard.share.heartbeat(request, client_id, client_host, self.now)
        if unchanged is not None:
            assert (outcome.response, outcome.records) == (unchanged, []), "by the whole course"
        response = self.carry_out(outcome)
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def share_refused(self, *args: Any, **kwargs: Any) -> tuple[ErrorCode, str | None]:
        """Send a heartbeat that is refused; return code and message. It leaves no record."""
        logged = len(self.log)
        try:
            self.share_beat(*args, **kwargs)
        except KafkaError as error:
            assert len(self.log) == logged
            return error.code, error.message
        raise AssertionError("the heartbeat was not refused")

    def share_join(self, member_id: str, *topics: str) -> int:
        """Have a member join, and give it what is initialized; return its epoch."""
        epoch = self.share_beat(member_id, 0, topics or ("topic",)).member_epoch
        self.initialize_wanted()
        return self.share_beat(member_id, epoch).member_epoch

    # --- states ---

    def initialize_wanted(self) -> None:
        """Have the share coordinator initialize what is wanted."""
        wanted, self.wanted[:] = list(self.wanted), []
        for states in wanted:
            partitions = partitions_of(states)
            self.carry_out(
                self.shard.share.states.initialized(states.group_id, partitions, self.now)
            )

    def alter(self, offsets: dict[str, dict[int, int]]) -> Alteration:
        """Begin to set start offsets. Raises KafkaError when that is refused."""
        topics = [
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=one)
                    for index, one in of_topic.items()
                ],
            )
            for name, of_topic in offsets.items()
        ]
        response = self.carry_out(self.shard.share.states.alter(self.group_id, topics, self.now))
        assert isinstance(response, Alteration)
        return response

    def record_kinds(self, start: int = 0) -> list[str]:
        """What the records from one on are about, tombstones with a minus sign."""
        return [
            ("" if value is not None else "-")
            + type(decode_key(key)).__name__.removeprefix("ShareGroup").removesuffix("Key")
            for key, value in self.log[start:]
        ]


def assigned(response: ShareGroupHeartbeatResponse) -> Assigned | None:
    """What a heartbeat's response gives the member; None: it says nothing of it."""
    if response.assignment is None:
        return None
    return {one.topic_id: one.partitions for one in response.assignment.topic_partitions}


TOPIC = topic_id_of("topic")
