"""What offsets of a group are committed as, and by which member: by consumers and transactions.

Pure. Called by: the consumer, which commits by itself, and the producer, whose transactions commit
for it (KIP-98, KIP-447).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kraftrio.clients.arguments.several import by_item, topic_partition
from kraftrio.clients.arguments.values import MAX_INT32, text, whole_number
from kraftrio.wire.primitives import TopicPartition

NO_GENERATION: Final = -1


class OffsetAndMetadata(NamedTuple):
    """An offset to commit, or committed: the next one to consume."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


OffsetLike = int | OffsetAndMetadata


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Who the member is at the moment; generation -1 and no member id: not in the group."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


def as_offset(value: Any) -> OffsetAndMetadata:
    """Return an offset to commit, given as such or as a number.

    Raises:
        TypeError, ValueError: no such offset can be sent.
    """
    given = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
    return OffsetAndMetadata(
        whole_number("an offset", given.offset),
        whole_number("a leader epoch", given.leader_epoch, -1, MAX_INT32),
        text("the metadata of a commit", given.metadata),
    )


def as_offsets(
    offsets: Mapping[TopicPartition, OffsetLike],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets to commit for several partitions.

    Raises:
        TypeError, ValueError: as `as_offset` and `topic_partition`.
    """
    return {
        topic_partition(each): as_offset(value)
        for each, value in by_item("offsets", offsets).items()
    }
