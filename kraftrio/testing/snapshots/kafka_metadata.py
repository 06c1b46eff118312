"""What Apache Kafka's own metadata log says of topics: `KafkaMetadata`, read from its files.

Owns: the few of Kafka's metadata records that matter here (KIP-631), which are read and never
written. A record's value is a frame version, the record's type and version, each an unsigned
varint, and then a message. Brokers, users, ACLs and quotas are of the old cluster alone.

Called by: `kafka_directories`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kraftrio.broker.log.metadata.names import parse_segment_file_name, parse_snapshot_file_name
from kraftrio.kraft_meta.quorum.log_batches import parse_snapshot
from kraftrio.testing.snapshots.errors import SnapshotError
from kraftrio.wire.codec.message import (
    INT32,
    UUID,
    array,
    decode,
    int8,
    int32,
    int64,
    message,
    string,
    uuid,
)
from kraftrio.wire.errors import KafkaError, RemoteProtocolError
from kraftrio.wire.primitives import read_uvarint
from kraftrio.wire.records.batch import iter_headers, iter_records, verify_crc

_FRAME_VERSION: Final = 1


@message("0", flexible="0+")
class TopicRecord:
    name: str = string()
    topic_id: bytes = uuid()


@message("0-2", flexible="0+")
class PartitionRecord:
    """Its tagged fields are ignored."""

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(INT32)
    isr: list[int] = array(INT32)
    removing_replicas: list[int] = array(INT32)
    adding_replicas: list[int] = array(INT32)
    leader: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(UUID, "1+")


@message("0", flexible="0+")
class ConfigRecord:
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


@message("0", flexible="0+")
class RemoveTopicRecord:
    topic_id: bytes = uuid()


@message("0", flexible="0+")
class ProducerIdsRecord:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


_RECORDS: Final[dict[int, tuple[type[Any], int]]] = {  # with the newest version that is known
    2: (TopicRecord, 0),
    3: (PartitionRecord, 2),
    4: (ConfigRecord, 0),
    9: (RemoveTopicRecord, 0),
    15: (ProducerIdsRecord, 0),
}


@dataclass
class KafkaMetadata:
    """See the module.

    Attributes:
        topic_ids: by name.
        partition_counts: by topic id.
        configs: settings by resource type and name.
        next_producer_id: all lower ones are given out.
        last_timestamp_ms: when the newest record was written.
    """

    topic_ids: dict[str, bytes] = field(default_factory=dict)
    partition_counts: dict[bytes, int] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    last_timestamp_ms: int = 0

    def replay(self, value: bytes) -> None:
        """Take in a record.

        Raises:
            SnapshotError: it is of a version that is not known.
            RemoteProtocolError: it is damaged.
        """
        frame_version, position = read_uvarint(value, 0)
        type_id, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
        known = _RECORDS.get(type_id)
        if known is None:
            return
        kind, newest = known
        if frame_version != _FRAME_VERSION or version > newest:
            raise SnapshotError(
                f"has {kind.__name__} version {version} of a newer Apache Kafka; this kraftrio"
                f" knows version {newest}"
            )
        record, _ = decode(kind, version, value, position)
        match record:
            case TopicRecord():
                self.topic_ids[record.name] = record.topic_id
                self.partition_counts[record.topic_id] = 0
            case PartitionRecord():
                count = max(self.partition_counts.get(record.topic_id, 0), record.partition_id + 1)
                self.partition_counts[record.topic_id] = count
            case ConfigRecord():
                settings = self.configs.setdefault((record.resource_type, record.resource_name), {})
                if record.value is None:
                    settings.pop(record.name, None)
                else:
                    settings[record.name] = record.value
            case RemoveTopicRecord():
                self.topic_ids = {
                    name: topic_id
                    for name, topic_id in self.topic_ids.items()
                    if topic_id != record.topic_id
                }
            case ProducerIdsRecord():
                self.next_producer_id = max(self.next_producer_id, record.next_producer_id)


def read_metadata(files: Mapping[str, bytes]) -> KafkaMetadata:
    """Read the files of a `__cluster_metadata-0`: the newest snapshot, and the log behind it.

    Raises:
        SnapshotError: they are damaged, or of a newer version; the text goes on after a name.
    """
    metadata = KafkaMetadata()
    try:
        snapshots = {parse_snapshot_file_name(name): data for name, data in files.items()}
        newest = max((each for each in snapshots if each is not None), default=None)
        if newest is not None:
            snapshot = parse_snapshot(snapshots[newest])
            for value in snapshot.values:
                metadata.replay(value)
            metadata.last_timestamp_ms = snapshot.last_timestamp_ms
        _replay_log(files, metadata, 0 if newest is None else newest.end_offset)
    except (KafkaError, RemoteProtocolError, IndexError) as error:
        raise SnapshotError(f"has a damaged metadata log: {error}") from error
    return metadata


def _replay_log(files: Mapping[str, bytes], metadata: KafkaMetadata, start_offset: int) -> None:
    for data in _segments(files):
        for header in iter_headers(data, allow_partial=True):
            verify_crc(data, header)
            metadata.last_timestamp_ms = max(metadata.last_timestamp_ms, header.max_timestamp)
            if header.is_control:
                continue
            for record in iter_records(data, header):
                if record.offset >= start_offset and record.value:
                    metadata.replay(bytes(record.value))


def _segments(files: Mapping[str, bytes]) -> Iterator[bytes]:
    found = {parse_segment_file_name(name): data for name, data in files.items()}
    for base_offset in sorted(each for each in found if each is not None):
        yield found[base_offset]
