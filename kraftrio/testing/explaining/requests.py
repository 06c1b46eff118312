"""What exchanges say about one partition: what was sent to it, read from it, and committed of it.

Owns: `Send`, `FetchedRecord`, `Commit` and `GivenPosition`, and what finds them. Topics come by
name or by id, so both are compared.

Called by: `visibility`, `rereads`, `placement`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kraftrio.testing.explaining.evidence import Evidence, Place, batches_in
from kraftrio.testing.explaining.exchanges import Exchange
from kraftrio.testing.traffic.traffic import TEST_MACHINE
from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.records.batch import BatchHeader, Record

_NO_IDS: frozenset[bytes] = frozenset()  # where topics come by name alone


@dataclass(frozen=True, slots=True)
class Send:
    """A record in a Produce request.

    Attributes:
        error: what the broker answered; None: nothing that arrived anywhere.
        offset: where it was written by the answer, -1 if there is none.
    """

    exchange: Exchange
    topic_partition: TopicPartition
    header: BatchHeader
    record: Record
    error: ErrorCode | None
    offset: int


@dataclass(frozen=True, slots=True)
class FetchedRecord:
    """An answer to a Fetch, with a record in it, that came to its reader."""

    exchange: Exchange
    fetch_offset: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A group's offset for the partition in an OffsetCommit or TxnOffsetCommit request."""

    exchange: Exchange
    group: str
    offset: int
    error: ErrorCode | None


class GivenPosition(NamedTuple):
    """A position that a broker gave to a reader: its group's commit, or the answer to a search."""

    exchange: Exchange
    offset: int
    group: str  # "" for ListOffsets
    timestamp: int  # what was searched for; 0 for a commit


def _is_of(entry: Any, topic: str, topic_ids: frozenset[bytes]) -> bool:
    name = getattr(entry, "name", "") or getattr(entry, "topic", "")
    return name == topic if name else entry.topic_id in topic_ids


def _partitions(
    topics: Iterable[Any] | None, field: str, topic: str, topic_ids: frozenset[bytes]
) -> Iterator[Any]:
    """The entries of the partitions of a topic."""
    for entry in topics or ():
        if _is_of(entry, topic, topic_ids):
            yield from getattr(entry, field)


def sends(evidence: Evidence, topic: str) -> Iterator[Send]:
    """Every record that was sent to a topic, in the order of the requests."""
    topic_ids = evidence.topic_ids(topic)
    for exchange in evidence.exchanges:
        if exchange.api_key != ApiKey.PRODUCE:
            continue
        answers = {}
        if exchange.answer is not None:
            found = _partitions(exchange.answer.responses, "partition_responses", topic, topic_ids)
            answers = {entry.index: entry for entry in found}
        for data in _partitions(exchange.request.topic_data, "partition_data", topic, topic_ids):
            answer = answers.get(data.index)
            error = None if answer is None else answer.error_code
            base = answer.base_offset if answer is not None and not error else -1
            for header, records in batches_in(records_view(data.records)):
                for index, record in enumerate(records):
                    offset = base + index if base >= 0 else -1
                    place = TopicPartition(topic, data.index)
                    yield Send(exchange, place, header, record, error, offset)


def deliveries(evidence: Evidence, place: Place) -> list[FetchedRecord]:
    """Every time that a client was given the record, but for those of the test itself."""
    topic_ids = evidence.topic_ids(place.topic)
    positions: dict[tuple[int, int], int] = {}  # of sessions, by connection
    found = []
    for exchange in evidence.exchanges:
        if exchange.api_key != ApiKey.FETCH or exchange.machine == TEST_MACHINE:
            continue
        answer = exchange.answer
        session_id = exchange.request.session_id or (0 if answer is None else answer.session_id)
        session = (exchange.connection, session_id)
        asked = _partitions(exchange.request.topics, "partitions", place.topic, topic_ids)
        for wanted in asked:
            if wanted.partition == place.partition:
                positions[session] = wanted.fetch_offset
        if answer is None or exchange.arrived_s is None or session not in positions:
            continue
        for data in _partitions(answer.responses, "partitions", place.topic, topic_ids):
            if data.partition_index != place.partition or positions[session] > place.offset:
                continue
            if any(
                record.offset == place.offset
                for _, records in batches_in(records_view(data.records))
                for record in records
            ):
                found.append(FetchedRecord(exchange, positions[session]))
    return found


def fetch_offsets(evidence: Evidence, place: Place, reader: tuple[str, str]) -> list[FetchedRecord]:
    """Where a reader fetched the partition from, each time that it named its position."""
    topic_ids = evidence.topic_ids(place.topic)
    return [
        FetchedRecord(exchange, wanted.fetch_offset)
        for exchange in evidence.exchanges
        if exchange.api_key == ApiKey.FETCH and exchange.reader == reader
        for wanted in _partitions(exchange.request.topics, "partitions", place.topic, topic_ids)
        if wanted.partition == place.partition
    ]


def fetch_errors(
    evidence: Evidence, place: Place, reader: tuple[str, str]
) -> Iterator[tuple[Exchange, ErrorCode]]:
    """The errors of the partition in answers that a reader got."""
    topic_ids = evidence.topic_ids(place.topic)
    for exchange in evidence.exchanges:
        if exchange.api_key == ApiKey.FETCH and exchange.reader == reader and exchange.arrived_s:
            for data in _partitions(
                exchange.answer.responses, "partitions", place.topic, topic_ids
            ):
                if data.partition_index == place.partition and data.error_code:
                    yield exchange, data.error_code


def commits(evidence: Evidence, topic_partition: TopicPartition) -> list[Commit]:
    """What groups asked to commit for a partition."""
    topic, number = topic_partition
    topic_ids = evidence.topic_ids(topic)
    found = []
    for exchange in evidence.exchanges:
        if exchange.api_key not in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT):
            continue
        request, answer = exchange.request, exchange.answer
        errors = {}
        if answer is not None:
            entries = _partitions(answer.topics, "partitions", topic, topic_ids)
            errors = {entry.partition_index: entry.error_code for entry in entries}
        for entry in _partitions(request.topics, "partitions", topic, topic_ids):
            if entry.partition_index == number:
                error = errors.get(number)
                found.append(Commit(exchange, request.group_id, entry.committed_offset, error))
    return found


def positions(
    evidence: Evidence, topic_partition: TopicPartition, reader: tuple[str, str]
) -> list[GivenPosition]:
    """The positions for a partition that brokers gave to a reader."""
    found: list[GivenPosition] = []
    for exchange in evidence.exchanges:
        if exchange.reader != reader or exchange.arrived_s is None:
            continue
        if exchange.api_key == ApiKey.OFFSET_FETCH:
            found += _committed(evidence, topic_partition, exchange)
        elif exchange.api_key == ApiKey.LIST_OFFSETS:
            asked = {
                entry.partition_index: entry.timestamp
                for entry in _partitions(
                    exchange.request.topics, "partitions", topic_partition.topic, _NO_IDS
                )
            }
            for entry in _partitions(
                exchange.answer.topics, "partitions", topic_partition.topic, _NO_IDS
            ):
                if entry.partition_index == topic_partition.partition and not entry.error_code:
                    timestamp = asked[entry.partition_index]
                    found.append(GivenPosition(exchange, entry.offset, "", timestamp))
    return found


def _committed(
    evidence: Evidence, topic_partition: TopicPartition, exchange: Exchange
) -> Iterator[GivenPosition]:
    topic, number = topic_partition
    topic_ids = evidence.topic_ids(topic)
    answer = exchange.answer
    groups = [(group.group_id, group.topics) for group in answer.groups]
    for group, topics in groups or [(exchange.request.group_id, answer.topics)]:
        for entry in _partitions(topics, "partitions", topic, topic_ids):
            if entry.partition_index == number and not entry.error_code:
                yield GivenPosition(exchange, entry.committed_offset, group, 0)


_NAME_A_GROUP = (
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
)


def groups_of(evidence: Evidence, reader: tuple[str, str]) -> set[str]:
    """The groups that a client was a member of."""
    return {
        exchange.request.group_id
        for exchange in evidence.exchanges
        if exchange.reader == reader and exchange.api_key in _NAME_A_GROUP
    }


def deletions(evidence: Evidence, place: Place) -> list[Exchange]:
    """The DeleteRecords requests that took a record away."""
    return [
        exchange
        for exchange in evidence.exchanges
        if exchange.api_key == ApiKey.DELETE_RECORDS
        for entry in _partitions(exchange.request.topics, "partitions", place.topic, _NO_IDS)
        if entry.partition_index == place.partition
        and (entry.offset > place.offset or entry.offset == -1)
    ]


def partition_count(evidence: Evidence, topic: str, machine: str, before_s: float) -> int | None:
    """How many partitions a topic had in the last metadata that a machine got before a time."""
    topic_ids = evidence.topic_ids(topic)
    count: int | None = None
    for exchange in evidence.exchanges:
        if (
            exchange.api_key == ApiKey.METADATA
            and exchange.machine == machine
            and exchange.arrived_s is not None
            and exchange.arrived_s <= before_s
        ):
            for entry in exchange.answer.topics:
                if _is_of(entry, topic, topic_ids) and entry.partitions:
                    count = len(entry.partitions)
    return count
