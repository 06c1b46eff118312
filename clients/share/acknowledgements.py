"""Acknowledgements as brokers get them: by partition, offsets with the types of acknowledgement.

Owns `AcknowledgeType` and the acknowledgements that are not sent yet (`PendingAcknowledgements`).
Each goes to the broker that delivered the record: another leader knows nothing of it.

Sans-IO. Called by: `in_hand`, `fetcher`. KIP-932; KIP-1222 (renew).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from kraftrio.wire.messages.share_fetch import AcknowledgementBatch
from kraftrio.wire.primitives import TopicPartition

GAP: Final = 0  # an offset that was acquired, and has no record


class AcknowledgeType(IntEnum):
    """What became of a record."""

    ACCEPT = 1  # it is done
    RELEASE = 2  # it is to be delivered again, to whomever
    REJECT = 3  # it is not to be delivered again: it cannot be worked on
    RENEW = 4  # it is still being worked on: the lock begins again


class TopicIdPartition(NamedTuple):
    """A partition of a topic, whose id distinguishes it from others that had its name."""

    topic_id: bytes
    topic_partition: TopicPartition


# The offsets of partitions with the types of their acknowledgements.
Acknowledgements = Mapping[TopicIdPartition, Mapping[int, int]]


class PendingAcknowledgements:
    """The acknowledgements that are not sent yet, by the broker that they go to.

    Args:
        on_first: called when there is one after there was none.
    """

    def __init__(self, on_first: Callable[[], None]) -> None:
        self._on_first = on_first
        self._by_node: dict[int, dict[TopicIdPartition, dict[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_node)

    def __len__(self) -> int:
        return sum(
            len(offsets) for partitions in self._by_node.values() for offsets in partitions.values()
        )

    @property
    def node_ids(self) -> Collection[int]:
        """The brokers that some go to."""
        return list(self._by_node)

    def add(self, node_id: int, partition: TopicIdPartition, offset: int, kind: int) -> None:
        """Add an acknowledgement; it replaces an earlier one for the same offset."""
        is_first = not self._by_node
        self._by_node.setdefault(node_id, {}).setdefault(partition, {})[offset] = kind
        if is_first:
            self._on_first()

    def has(self, node_id: int, partition: TopicIdPartition, offset: int) -> bool:
        """Whether an acknowledgement of this offset is not sent yet."""
        return offset in self._by_node.get(node_id, {}).get(partition, {})

    def fits_fetch(self, node_id: int, fetched: Collection[TopicIdPartition]) -> bool:
        """Whether everything for a broker can be sent with a request for more records.

        Args:
            fetched: the partitions that the request fetches.
        """
        return all(
            partition in fetched and AcknowledgeType.RENEW not in offsets.values()
            for partition, offsets in self._by_node.get(node_id, {}).items()
        )

    def take(self, node_id: int) -> Acknowledgements:
        """Remove and return what goes to a broker, to be sent now."""
        return self._by_node.pop(node_id, {})


def is_renewing(acknowledgements: Acknowledgements) -> bool:
    """Whether some lock is to be renewed, for which requests have a field of their own."""
    return any(AcknowledgeType.RENEW in offsets.values() for offsets in acknowledgements.values())


def batches_of(offsets: Mapping[int, int]) -> list[AcknowledgementBatch]:
    """Return offsets as runs without gaps, each with one type, or one type per offset."""
    runs: list[list[int]] = []
    for offset in sorted(offsets):
        if runs and runs[-1][-1] == offset - 1:
            runs[-1].append(offset)
        else:
            runs.append([offset])
    batches = []
    for run in runs:
        kinds = [offsets[offset] for offset in run]
        batches.append(
            AcknowledgementBatch(
                first_offset=run[0],
                last_offset=run[-1],
                acknowledge_types=kinds[:1] if len(set(kinds)) == 1 else kinds,
            )
        )
    return batches
