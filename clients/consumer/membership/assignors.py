"""Assignors: how the leader of a classic group shares out partitions among the members.

Owns `Assignor`, what Kafka's Java clients call ConsumerPartitionAssignor, and the four that they
ship: range, roundrobin, sticky and cooperative-sticky. Rules:
1. For the same members and topics the results are those of the Java clients, member by member and
   partition by partition, so that a change of the leader's language moves nothing. Where Java's
   result follows the order of its hash tables, `hash_order` gives that order.
2. What an assignor writes into subscriptions (user data) is byte for byte as the Java clients'.
3. Racks of members are carried, but not looked at: no member of ours has a rack.

Called by: the group membership, and by by programs with an assignor of their own, as an example.
KIP-429 (cooperative rebalancing), KIP-54 (sticky), KIP-792 (generations in subscriptions).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kraftrio.clients.consumer.membership.sticky_assignment import (
    assign_alike,
    assign_unlike,
    moved_partitions,
)
from kraftrio.clients.group_offsets import NO_GENERATION
from kraftrio.wire.codec.message import INT32, array, decode, encode, int32, message, string
from kraftrio.wire.codec.message import struct as wire_struct
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.messages.group_records.classic import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kraftrio.wire.primitives import Buffer, TopicPartition, indexes_by_topic

Assignments = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member sends the leader.

    Attributes:
        generation_id: the member's last generation; -1 when it has none or its client is too old
            to say.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    group_instance_id: str | None = None

    def encode(self, version: int = 3) -> bytes:
        """Return the bytes for JoinGroup, as ConsumerProtocol of that version writes them."""
        owned: list[SubscriptionTopicPartition] = []
        for topic, partition in sorted(self.owned_partitions):
            if not owned or owned[-1].topic != topic:
                owned.append(SubscriptionTopicPartition(topic=topic, partitions=[]))
            owned[-1].partitions.append(partition)
        return encode_subscription(
            ConsumerProtocolSubscription(
                topics=sorted(self.topics),
                user_data=self.user_data,
                owned_partitions=owned,
                generation_id=self.generation_id,
                rack_id=self.rack_id,
            ),
            version,
        )

    @classmethod
    def decode(cls, metadata: Buffer, group_instance_id: str | None = None) -> MemberSubscription:
        """Read a member's subscription.

        Raises:
            RemoteProtocolError: the bytes are no subscription.
        """
        read = decode_subscription(metadata)
        return cls(
            topics=tuple(read.topics),
            user_data=read.user_data,
            owned_partitions=tuple(
                TopicPartition(owned.topic, partition)
                for owned in read.owned_partitions
                for partition in owned.partitions
            ),
            generation_id=max(NO_GENERATION, read.generation_id),
            rack_id=read.rack_id or None,
            group_instance_id=group_instance_id,
        )


class Assignor(Protocol):
    """How partitions are shared out; one object serves one member for its life."""

    name: str
    supports_cooperative: bool  # whether members may keep what they own while they rejoin

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """Return what the member's subscription says to this assignor."""

    def on_assignment(self, partitions: Sequence[TopicPartition], generation_id: int) -> None:
        """Take note of what the member was assigned."""

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignments:
        """Share out the partitions of the topics that exist; called on the leader only."""


class RangeAssignor:
    """Each topic apart: contiguous ranges for the members in their order."""

    name = "range"
    supports_cooperative = False

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return None

    def on_assignment(self, partitions: Sequence[TopicPartition], generation_id: int) -> None:
        """Nothing is remembered."""

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignments:
        assigned: Assignments = {member: [] for member in members}
        order = _ordered_members(members)
        for topic, count in _existing_topics(partition_counts, members).items():
            takers = [member for member in order if topic in members[member].topics]
            share, extra = divmod(count, len(takers))
            start = 0
            for index, member in enumerate(takers):
                end = start + share + (index < extra)
                assigned[member] += [TopicPartition(topic, each) for each in range(start, end)]
                start = end
        return assigned


class RoundRobinAssignor:
    """All partitions in order, one for each member in turn."""

    name = "roundrobin"
    supports_cooperative = False

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return None

    def on_assignment(self, partitions: Sequence[TopicPartition], generation_id: int) -> None:
        """Nothing is remembered."""

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignments:
        assigned: Assignments = {member: [] for member in members}
        order = _ordered_members(members)
        subscribed = {member: frozenset(members[member].topics) for member in order}
        turn = 0
        for topic in sorted({topic for topics in subscribed.values() for topic in topics}):
            for partition in range(partition_counts.get(topic, 0)):
                while topic not in subscribed[order[turn]]:
                    turn = (turn + 1) % len(order)
                assigned[order[turn]].append(TopicPartition(topic, partition))
                turn = (turn + 1) % len(order)
        return assigned


@wire_struct
class _StickyTopic:
    topic: str = string()
    partitions: list[int] = array(INT32)


@message("0-1", flexible="none")
class _StickyUserData:
    """What sticky members send: version 0, which nothing marks as such, has no generation."""

    previous_assignment: list[_StickyTopic] = array(_StickyTopic)
    generation: int = int32("1+", default=NO_GENERATION, ignorable=True)


class StickyAssignor:
    """As even as possible, and as little moved as possible; members give up all to rejoin."""

    name = "sticky"
    supports_cooperative = False

    def __init__(self) -> None:
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation_id = NO_GENERATION

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        if self._partitions is None:
            return None
        # The Java clients group the partitions in a hash table too; it grows one step late.
        grouped = indexes_by_topic(self._partitions)
        counted = len(indexes_by_topic(self._partitions[:-1]))
        order = hash_order(grouped, counted)
        reported = [_StickyTopic(topic=topic, partitions=grouped[topic]) for topic in order]
        return encode(
            _StickyUserData(previous_assignment=reported, generation=self._generation_id), 1
        )

    def on_assignment(self, partitions: Sequence[TopicPartition], generation_id: int) -> None:
        self._partitions = tuple(partitions)
        self._generation_id = generation_id

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignments:
        return _assign_sticky(partition_counts, members, _sticky_claims)[0]


class CooperativeStickyAssignor:
    """As sticky; a partition that moves is first given up, and assigned in the next rebalance."""

    name = "cooperative-sticky"
    supports_cooperative = True

    def __init__(self) -> None:
        self._generation_id = NO_GENERATION

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return _INT32.pack(self._generation_id)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation_id: int) -> None:
        self._generation_id = generation_id

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignments:
        assigned, moved = _assign_sticky(partition_counts, members, _cooperative_claims)
        if moved is None:
            owned = {member: each.owned_partitions for member, each in members.items()}
            moved = moved_partitions(assigned, owned)
        for partition, member in moved.items():
            assigned[member].remove(partition)
        return assigned


ASSIGNORS: dict[str, type[Any]] = {
    cls.name: cls
    for cls in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
"""The assignors of the Java clients by their protocol names."""


# What members own by their own account: (partitions, generation; None when they send none)

_Claims = tuple[Sequence[TopicPartition], int | None]


def _sticky_claims(subscription: MemberSubscription) -> _Claims:
    data = subscription.user_data
    if not data:
        return (), None
    for version in (1, 0):
        try:
            read, _ = decode(_StickyUserData, version, data)
        except RemoteProtocolError:
            continue
        partitions = [
            TopicPartition(reported.topic, partition)
            for reported in read.previous_assignment
            for partition in reported.partitions
        ]
        return partitions, read.generation if version else None
    return (), NO_GENERATION


def _cooperative_claims(subscription: MemberSubscription) -> _Claims:
    owned = subscription.owned_partitions
    if subscription.generation_id >= 0:
        return owned, subscription.generation_id
    data = subscription.user_data
    if data is None:
        return owned, None
    if len(data) < _INT32.size:
        return owned, NO_GENERATION
    return owned, _INT32.unpack_from(data)[0]


def _assign_sticky(
    partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription], claims: Any
) -> tuple[Assignments, dict[TopicPartition, str] | None]:
    """Share out; also return what moves from member to member, where that is known already."""
    ordered = {member: members[member] for member in hash_order(members)}
    claimed = {member: claims(subscription) for member, subscription in ordered.items()}
    topics = {member: each.topics for member, each in ordered.items()}
    reported = {member: each.generation_id for member, each in ordered.items()}
    counts = _existing_topics(partition_counts, members)
    if len({frozenset(each) for each in topics.values()}) <= 1:
        return assign_alike(counts, claimed, reported)
    return assign_unlike(counts, topics, claimed, reported), None


# Orders


def hash_order(names: Iterable[str], counted: int | None = None) -> list[str]:
    """Return distinct names in the order of a Java HashMap that they were put into one by one.

    Args:
        counted: how many of them the table has grown for; without it all.
    """
    distinct = list(dict.fromkeys(names))
    buckets = 16
    while (len(distinct) if counted is None else counted) > buckets * 3 // 4:
        buckets *= 2

    def bucket(name: str) -> int:
        code = java_hash(name)
        return (code ^ code >> 16) & (buckets - 1)

    return sorted(distinct, key=bucket)


def java_hash(text: str) -> int:
    """Return String.hashCode() of Java, as an unsigned number of 32 bits."""
    code = 0
    if text.isascii():
        for unit in text.encode():
            code = (31 * code + unit) & 0xFFFF_FFFF
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(data), 2):
            code = (31 * code + (data[index] << 8 | data[index + 1])) & 0xFFFF_FFFF
    return code


def _existing_topics(
    partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> dict[str, int]:
    """Return the topics that some member wants and that have partitions, in Java's order."""
    wanted = hash_order(topic for member in hash_order(members) for topic in members[member].topics)
    existing = hash_order(topic for topic in wanted if partition_counts.get(topic, 0) > 0)
    return {topic: partition_counts[topic] for topic in existing}


def _ordered_members(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Static members first, by their instance ids; the others by member id."""

    def key(member: str) -> tuple[bool, str]:
        instance_id = members[member].group_instance_id
        return (instance_id is None, member if instance_id is None else instance_id)

    return sorted(members, key=key)


# Assignments on the wire


def assignment_bytes(partitions: Iterable[TopicPartition], version: int = 3) -> bytes:
    """Return a member's assignment for SyncGroup."""
    assigned = [
        AssignmentTopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in indexes_by_topic(partitions).items()
    ]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned), version)


def assignment_partitions(data: Buffer) -> list[TopicPartition]:
    """Read a member's assignment; no bytes at all are no partitions.

    Raises:
        RemoteProtocolError: the bytes are no assignment.
    """
    if not data:
        return []
    return [
        TopicPartition(assigned.topic, partition)
        for assigned in decode_assignment(data).assigned_partitions
        for partition in assigned.partitions
    ]


_INT32 = struct.Struct(">i")
