"""What an assignor is given and what it gives back (KIP-848).

Rules: an assignor is a pure function of its `AssignmentSpec`, and the same on every broker and
after every load: it goes through members in the order of their ids, and through topics in that of
theirs, whatever the order in the mappings. It changes nothing that it is given; what a member keeps
it may hand back as the same object, so that "nothing moved" is cheap to see.

Called by groups with assignors on the broker: consumer and share groups.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias

from kraftrio.wire.primitives import uuid_to_text

MemberAssignment: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; no topic without partitions."""

Assignment: TypeAlias = Mapping[str, MemberAssignment]
"""What each member is to have, by member id; members without an entry get nothing."""


class AssignorError(Exception):
    """The spec cannot be assigned, as when a member subscribes to a topic that it lacks."""


class MemberSpec(NamedTuple):
    """One member.

    Attributes:
        subscribed_topic_ids: existing topics that it subscribes to, by name or by pattern.
        assigned: its part of the group's current target assignment.
        rack_id: where it runs; None: unknown.
        instance_id: of a static member.
    """

    subscribed_topic_ids: frozenset[bytes]
    assigned: MemberAssignment
    rack_id: str | None = None
    instance_id: str | None = None


class TopicSpec(NamedTuple):
    """One topic.

    Attributes:
        partition_count: it has the partitions from 0 on.
        partition_racks: racks of the replicas of each partition; empty: unknown.
    """

    partition_count: int
    partition_racks: Mapping[int, frozenset[str]] = MappingProxyType({})


topic_id_order = struct.Struct(">qq").unpack
"""Key that sorts topic ids as Kafka does: as two signed numbers."""


def text_order(text: str) -> bytes:
    """Key that sorts ids of members and of instances as Kafka does: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


@dataclass(frozen=True, slots=True)
class AssignmentSpec:
    """A group, as its assignor sees it.

    Attributes:
        members: by member id.
        topics: by topic id, at least all that members subscribe to.
        is_homogeneous: all members subscribe to the same topics.
        assignable: of a share group, the partitions whose state is initialized, by topic id; None:
            all that there are.
    """

    members: Mapping[str, MemberSpec]
    topics: Mapping[bytes, TopicSpec]
    is_homogeneous: bool
    assignable: Mapping[bytes, frozenset[int]] | None = None

    def members_in_order(self) -> list[str]:
        """The members' ids, in the order in which assignors go through them."""
        return sorted(self.members, key=text_order)

    def partition_count(self, topic_id: bytes) -> int:
        """How many partitions a topic has; AssignorError when it is not there."""
        topic = self.topics.get(topic_id)
        if topic is None:
            raise AssignorError(
                f"Members are subscribed to topic {uuid_to_text(topic_id)} which doesn't exist in"
                f" the topic metadata."
            )
        return topic.partition_count


class Assignor(Protocol):
    """Decides who gets which partitions; equal to Kafka's assignor of that name."""

    @property
    def name(self) -> str:
        """As `group.consumer.assignors`, `group.share.assignors` and members name it."""

    def assign(self, spec: AssignmentSpec) -> Assignment:
        """Return the new target assignment.

        Raises:
            AssignorError: a member subscribes to a topic that is not among the spec's.
        """
