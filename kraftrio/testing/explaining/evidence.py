"""What explanations are based on: the events of a run, what clients asked, and the brokers' logs.

Owns: `Evidence`, and `Answer` and `Reason`, what an explanation says.

Called by: what else is here; `kafka_world` and `cluster` gather it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kraftrio.broker.replica.partition import Partition
from kraftrio.kraft_meta.metadata.image import MetadataImage, PartitionImage
from kraftrio.testing.explaining.exchanges import Exchange
from kraftrio.testing.explaining.lines import line_of
from kraftrio.testing.story import Event
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import BatchHeader, Record, iter_headers, iter_records

Batch = tuple[BatchHeader, list[Record]]


class Reason(StrEnum):
    """Why something is as it is; `str` of it is the field's term."""

    # Visibility
    VISIBLE = "visible"
    ABOVE_HIGH_WATERMARK = "above the high watermark"
    OPEN_TRANSACTION = "in an open transaction"
    ABORTED = "aborted"
    DELETED_BY_RETENTION = "deleted by retention"
    DELETED_BY_REQUEST = "deleted by DeleteRecords"
    COMPACTED = "deleted by compaction"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    NOT_ACKNOWLEDGED = "never acknowledged"
    NOT_SENT = "never sent"
    NOT_WRITTEN = "never written"
    CONTROL_RECORD = "a control record"
    NO_PARTITION = "no such partition"
    # Reading
    NOT_READ = "not read"
    READ_ONCE = "read once"
    OTHER_GROUP = "read by two groups"
    NOT_COMMITTED = "read again: not committed"
    COMMIT_REFUSED = "read again: its commit was refused"
    COMMIT_LOST = "read again: its commit never reached the broker"
    COMMIT_ANSWER_LOST = "read again: the answer to its commit was lost"
    COMMITTED_BACK = "read again: a smaller offset was committed"
    OFFSET_RESET = "read again: offset reset"
    SEEK = "read again: the program moved its position"
    FETCHED_AGAIN = "fetched again from the same position"
    # Placement
    BY_KEY = "by its key"
    EXPLICIT = "named by the program"
    STICKY = "sticky"
    # Any of them
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer.

    Attributes:
        text: a sentence or two.
        event: the one of the run that decided it; None: the trace has none, which the text says.
    """

    reason: Reason
    text: str
    event: Event | None = None

    def __str__(self) -> str:
        line = f"{self.reason}: {self.text}"
        if self.event is None:
            return line
        time, who, kind, text = self.event
        return f"{line}\n    decided by: {time} {who} {kind} {text}"


class Place(NamedTuple):
    """Where a record is, or was."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class Evidence:
    """See the module.

    Attributes:
        events: in the order of their times.
        exchanges: in the order in which requests were sent.
        topic_names: by id, also of topics that are gone.
        images: the metadata of each node that runs, by its id.
        replicas: of a partition, by node: of nodes that run.
        gap: what the trace lacks, as a sentence; "" if nothing.
        gap_of_choices: why it does not say which partitions clients have chosen by themselves.
    """

    events: Sequence[Event]
    exchanges: Sequence[Exchange]
    topic_names: Mapping[bytes, str]
    images: Mapping[int, MetadataImage]
    replicas: Callable[[TopicPartition], Mapping[int, Partition]]
    gap: str = ""
    gap_of_choices: str = ""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that a running node has."""
        return max(self.images.values(), key=lambda image: image.offset, default=MetadataImage())

    def partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        return self.image.partition(*topic_partition)

    def topic_ids(self, topic: str) -> frozenset[bytes]:
        """The id of a topic; of one that is gone, all that it had."""
        found = self.image.topic(topic)
        if found is not None:
            return frozenset({found.topic_id})
        return frozenset(each for each, name in self.topic_names.items() if name == topic)

    def line_of(self, exchange: Exchange) -> Event:
        """The line of the story for an exchange."""
        return line_of(exchange, self.topic_names)

    def best_replica(self, topic_partition: TopicPartition) -> tuple[int, Partition] | None:
        """The leader's replica; without a leader, the running one with the longest log."""
        replicas = self.replicas(topic_partition)
        image = self.partition(topic_partition)
        if image is not None and image.leader in replicas:
            return image.leader, replicas[image.leader]
        return max(replicas.items(), key=lambda item: item[1].log.log_end_offset, default=None)

    def last_event(
        self, *parts: str, before_s: float | None = None, after_s: float = -1.0
    ) -> Event | None:
        """The last event whose text matches every one of the patterns, within a time."""
        for event in reversed(self.events):
            time_s = float(event.time)
            if (
                (before_s is None or time_s <= before_s)
                and time_s >= after_s
                and all(re.search(part, f"{event.who} {event.kind} {event.text}") for part in parts)
            ):
                return event
        return None

    def unknown(self, text: str) -> str:
        """A sentence that says that the trace does not show it, and why if that is known."""
        return f"{text}; the trace does not say why{f': {self.gap}' if self.gap else ''}"


def batch_at(partition: Partition, offset: int) -> Batch | None:
    """The batch that holds an offset, with the records that are left of it."""
    log = partition.log
    if not log.log_start_offset <= offset < log.log_end_offset:
        return None
    for scanned in log.batches(offset, offset + 1):
        header = scanned.header
        if header.base_offset <= offset <= header.last_offset:
            return header, list(iter_records(scanned.buffer, header))
    return None


def may_be_same(header: BatchHeader, sent: BatchHeader) -> bool:
    """Whether a batch in a log may be one that was sent: by its producer and sequence, if any."""
    if not sent.has_producer_id:
        return not header.has_producer_id
    mine = (sent.producer_id, sent.producer_epoch, sent.base_sequence)
    return (header.producer_id, header.producer_epoch, header.base_sequence) == mine


def batches_in(records: bytes | memoryview) -> Iterator[Batch]:
    """The batches of what was sent or answered; one that is cut off at its end is left out."""
    for header in iter_headers(records, allow_partial=True):
        yield header, list(iter_records(records, header))
