"""The state of a share partition as brokers speak of it (KIP-932): its key, its batches, how far it
is.

A share partition is a partition as one share group reads it. Its leader (the leader of the topic's
partition) decides what becomes of each record, and keeps that at the share coordinator. Pure
values, for both of them and for what lies between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.share_state import StateBatch
from kraftrio.wire.primitives import uuid_from_text, uuid_to_text

NO_START_OFFSET: Final = -1
"""Stands for a start offset that is not initialized, or (in a write) stays as it is."""

NO_EPOCH: Final = -1
"""An epoch that is not checked."""

NO_DELIVERY_COMPLETE_COUNT: Final = -1
"""Stands for an unknown count."""


_INT32_DIGITS: Final = 10


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """What FindCoordinator calls it; its hash says which share coordinator has it."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"


class ShareStateBatch(NamedTuple):
    """Offsets with one delivery state (0 available, 2 acknowledged, 4 archived) and count."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class SharePartitionState:
    """What the share coordinator keeps of a share partition.

    Attributes:
        state_epoch: goes up each time that the group's coordinator initializes the state.
        leader_epoch: of the partition, when its leader last read the state.
        start_offset: records below are done with; NO_START_OFFSET until that is known.
        delivery_complete_count: records from the start offset on whose delivery is complete.
        batches: what is known of records from the start offset on, in order.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = NO_DELIVERY_COMPLETE_COUNT
    batches: Sequence[ShareStateBatch] = ()


class ShareStateWrite(NamedTuple):
    """What a leader writes; batches replace what is known of their offsets.

    Attributes:
        start_offset: NO_START_OFFSET: it stays.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[ShareStateBatch] = ()


def read_coordinator_key(text: str) -> SharePartitionKey:
    """Read a key as FindCoordinator names it.

    Raises:
        KafkaError: INVALID_REQUEST, with Kafka's reason.
    """
    tokens = text.split(":")
    if not text:
        raise _refused("Share partition key cannot be empty")
    if len(tokens) < 3:
        raise _refused(f"Invalid key format: expected - groupId:topicId:partition, found - {text}")
    group_id = ":".join(tokens[:-2])
    if not group_id.strip():
        raise _refused("GroupId must not be empty")
    try:
        topic_id = uuid_from_text(tokens[-2])
    except ValueError:
        raise _refused(f"Invalid topic ID: {tokens[-2]}") from None
    partition = _int32(tokens[-1])
    if partition is None:
        raise _refused(f"Invalid partition: {tokens[-1]}")
    return SharePartitionKey(group_id, topic_id, partition)


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _int32(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal():
        return None
    if len(digits) > _INT32_DIGITS:
        return None
    value = -int(digits) if text[0] == "-" else int(digits)
    return value if -(1 << 31) <= value < 1 << 31 else None


def wire_batches(batches: Iterable[ShareStateBatch]) -> list[StateBatch]:
    """Make the batches of a message."""
    return [
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def read_batches(batches: Iterable[StateBatch]) -> tuple[ShareStateBatch, ...]:
    """Read the batches of a message."""
    return tuple(
        ShareStateBatch(
            batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
        )
        for batch in batches
    )
