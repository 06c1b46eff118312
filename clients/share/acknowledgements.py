"""What became of records, as it is sent to brokers: by partition, offsets with their types.

Owns `AcknowledgeType` and the acknowledgements that are not sent yet (`PendingAcknowledgements`).
Each belongs to the broker that handed the record out: another leader knows nothing of it.

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
    """Those that are not sent yet, by the broker that has to hear of them.

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
        """The brokers that have to hear of some."""
        return list(self._by_node)

    def add(self, node_id: int, partition: TopicIdPartition, offset: int, kind: int) -> None:
        """Have it sent; a later one for the same offset takes the place of an earlier one."""
        is_first = not self._by_node
        self._by_node.setdefault(node_id, {}).setdefault(partition, {})[offset] = kind
        if is_first:
            self._on_first()

    def has(self, node_id: int, partition: TopicIdPartition, offset: int) -> bool:
        """Whether an acknowledgement of this offset is not sent yet."""
        return offset in self._by_node.get(node_id, {}).get(partition, {})

    def goes_with_a_fetch(self, node_id: int, fetched: Collection[TopicIdPartition]) -> bool:
        """Whether everything for a broker can be sent with a request for more records.

        Args:
            fetched: the partitions that it is asked for.
        """
        return all(
            partition in fetched and AcknowledgeType.RENEW not in offsets.values()
            for partition, offsets in self._by_node.get(node_id, {}).items()
        )

    def take(self, node_id: int) -> Acknowledgements:
        """Return what a broker has to hear, which is sent now."""
        return self._by_node.pop(node_id, {})


def is_renewing(acknowledgements: Acknowledgements) -> bool:
    """Whether some lock is to be renewed, which requests have to say besides."""
    return any(AcknowledgeType.RENEW in offsets.values() for offsets in acknowledgements.values())


def batches_of(offsets: Mapping[int, int]) -> list[AcknowledgementBatch]:
    """Return offsets as runs without holes, with one type for all of a run, or one for each."""
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
