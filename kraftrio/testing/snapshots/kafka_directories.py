"""Log directories of Apache Kafka as the disks of a cluster: `disks_of`. They are only read.

Rules:
1. Every partition that the directories have is there, with its files as they are: segments, state
   of producers, leader epochs. So are offsets of groups and transactions, which lie in them.
2. The metadata log is rewritten, since Kafka's is written in another form: topics with their ids
   and settings, settings of groups, and the producer ids that are given out. The leader epochs of
   partitions begin above those in their logs.
3. A clean stop is not assumed: logs are recovered when brokers start, for the directories
   may be of a broker that was killed.

Called by: `snapshot`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftrio.broker.log.checkpoints import (
    CLEANER_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    CheckpointError,
    MetaProperties,
    parse_leader_epochs,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
    write_meta_properties,
    write_offset_checkpoint,
)
from kraftrio.broker.log.files import ReadOnlyFileSystem
from kraftrio.broker.log.manager.directories import (
    METADATA_DIRECTORY,
    directory_name,
    parse_directory_name,
)
from kraftrio.broker.log.metadata.foreign_records import holds_foreign_records
from kraftrio.broker.log.metadata.metadata_log import MetadataLog
from kraftrio.broker.log.metadata.quorum_state_file import QuorumStateFile
from kraftrio.kraft_meta.controller.control import ControllerConfig
from kraftrio.kraft_meta.controller.feature_control import bootstrap_records
from kraftrio.kraft_meta.metadata.image import GROUP, TOPIC
from kraftrio.kraft_meta.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    encode_record,
)
from kraftrio.kraft_meta.raft.values import NO_NODE, ElectionState, SnapshotId
from kraftrio.testing.simulation.disk import SimDisk
from kraftrio.testing.simulation.disk_image import DiskImage, FileImage
from kraftrio.testing.snapshots.errors import SnapshotError
from kraftrio.testing.snapshots.folders import LOG_DIRECTORY
from kraftrio.testing.snapshots.kafka_metadata import KafkaMetadata, read_metadata
from kraftrio.wire.primitives import TopicPartition

_MOST_REPLICAS: Final = 3
_EPOCH: Final = 1  # of the metadata log


_CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    LOG_START_CHECKPOINT,
    CLEANER_CHECKPOINT,
)


@dataclass(frozen=True, slots=True)
class _FoundDirectories:
    """What was found in all directories.

    Attributes:
        partitions: the files of each, by name.
        checkpoints: offsets by the checkpoint's name.
    """

    cluster_id: str
    metadata: KafkaMetadata
    partitions: Mapping[TopicPartition, Mapping[str, FileImage]]
    checkpoints: Mapping[str, Mapping[TopicPartition, int]]


def disks_of(directories: Sequence[Path], node_count: int) -> tuple[dict[int, DiskImage], int]:
    """Read the log directories of one cluster's brokers, for a cluster of so many nodes.

    A partition that several of them have is taken from the first one.

    Returns:
        the disks by node id, and the time of the newest record of metadata, in milliseconds.

    Raises:
        SnapshotError: they are not Apache Kafka's, or not whole, or damaged; the text says which.
    """
    try:
        found = _read(directories)
    except OSError as error:
        raise SnapshotError(f"cannot read {error.filename}: {error.strerror}") from error
    _check_whole(found, directories)
    nodes = range(1, node_count + 1)
    placed = {
        partition: tuple(
            nodes[(partition.partition + turn) % node_count]
            for turn in range(min(node_count, _MOST_REPLICAS))
        )
        for partition in found.partitions
    }
    now_ms = found.metadata.last_timestamp_ms
    records = list(_records(found, placed))
    disks = {node_id: _disk(found, placed, records, node_id, nodes) for node_id in nodes}
    return disks, now_ms


# -- reading --------------------------------------------------------------------------------------


def _read(directories: Sequence[Path]) -> _FoundDirectories:
    cluster_ids: dict[str, Path] = {}
    metadata: KafkaMetadata | None = None
    partitions: dict[TopicPartition, dict[str, FileImage]] = {}
    checkpoints: dict[str, dict[TopicPartition, int]] = {name: {} for name in _CHECKPOINTS}
    for directory in directories:
        try:
            cluster_ids.setdefault(_owner(directory).cluster_id, directory)
            mine = dict(_partitions(directory))
            for name, offsets in checkpoints.items():
                offsets |= {
                    partition: offset
                    for partition, offset in _checkpoint(directory / name).items()
                    if partition in mine and partition not in partitions
                }
        except CheckpointError as error:
            raise SnapshotError(f"cannot understand {directory}: {error}") from error
        partitions = mine | partitions
        if metadata is None and (directory / METADATA_DIRECTORY).is_dir():
            metadata = _metadata(directory)
    if len(cluster_ids) > 1:
        several = " and ".join(str(directory) for directory in cluster_ids.values())
        raise SnapshotError(f"{several} are of different clusters: name those of one")
    if metadata is None:
        raise SnapshotError(
            f"there is no {METADATA_DIRECTORY} in {directories[0]}: name the directory that has"
            " it, too"
        )
    (cluster_id,) = cluster_ids
    return _FoundDirectories(cluster_id, metadata, partitions, checkpoints)


def _checkpoint(path: Path) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint; a killed node may leave an empty one from its start."""
    data = path.read_bytes() if path.exists() else b""
    return parse_offset_checkpoint(data) if data else {}


def _owner(directory: Path) -> MetaProperties:
    try:
        return parse_meta_properties((directory / META_PROPERTIES).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise SnapshotError(
            f"{directory} is no log directory of Apache Kafka: it has no {META_PROPERTIES}"
        ) from None


def _metadata(directory: Path) -> KafkaMetadata:
    folder = directory / METADATA_DIRECTORY
    if not holds_foreign_records(ReadOnlyFileSystem(), str(folder)):
        raise SnapshotError(
            f"{directory} was not written by Apache Kafka: to begin with what a kraftrio broker"
            " has, start it with folder=, and save() a snapshot"
        )
    try:
        return read_metadata({path.name: path.read_bytes() for path in folder.iterdir()})
    except SnapshotError as error:
        raise SnapshotError(f"{directory} {error}") from error


def _partitions(directory: Path) -> Iterator[tuple[TopicPartition, dict[str, FileImage]]]:
    for folder in sorted(directory.iterdir()):
        partition = parse_directory_name(folder.name) if folder.is_dir() else None
        if partition is not None and folder.name != METADATA_DIRECTORY:
            yield (
                partition,
                {
                    path.name: FileImage(path.read_bytes(), path.stat().st_mtime_ns // 1_000_000)
                    for path in sorted(folder.iterdir())
                    if path.is_file()
                },
            )


def _check_whole(found: _FoundDirectories, directories: Sequence[Path]) -> None:
    """Leave out what the metadata does not know, and miss nothing that it does."""
    metadata = found.metadata
    for topic, topic_id in metadata.topic_ids.items():
        count = metadata.partition_counts[topic_id]
        missing = [
            str(number)
            for number in range(count)
            if not _is_of(found.partitions.get(TopicPartition(topic, number), {}), topic_id)
        ]
        if missing:
            raise SnapshotError(
                f"topic {topic} has {count} partitions, of which {', '.join(missing)} are not in"
                f" {', '.join(map(str, directories))}: name the directories of the other brokers,"
                " too"
            )


def _is_of(files: Mapping[str, FileImage], topic_id: bytes) -> bool:
    """Whether a partition's folder is of this topic, and not of one before with its name."""
    stored = files.get(PARTITION_METADATA)
    if stored is None:
        return False
    try:
        return parse_partition_metadata(stored.read()) == topic_id
    except CheckpointError:
        return False


# -- writing --------------------------------------------------------------------------------------


def _records(
    found: _FoundDirectories, placed: Mapping[TopicPartition, tuple[int, ...]]
) -> Iterator[MetadataRecord]:
    metadata = found.metadata
    yield from bootstrap_records(ControllerConfig(found.cluster_id, 1), found.cluster_id)
    for topic, topic_id in metadata.topic_ids.items():
        yield TopicRecord(topic, topic_id)
        for number in range(metadata.partition_counts[topic_id]):
            partition = TopicPartition(topic, number)
            replicas = placed[partition]
            yield PartitionRecord(
                topic_id=topic_id,
                partition_id=number,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=_newest_epoch(partition, found.partitions[partition]) + 1,
                directories=tuple(_directory_id(found, node_id) for node_id in replicas),
            )
    for (kind, name), settings in metadata.configs.items():
        if kind == GROUP or (kind == TOPIC and name in metadata.topic_ids):
            for setting, value in settings.items():
                yield ConfigRecord(kind, name, setting, value)
    yield ProducerIdsRecord(-1, -1, metadata.next_producer_id)


def _newest_epoch(partition: TopicPartition, files: Mapping[str, FileImage]) -> int:
    stored = files.get(LEADER_EPOCH_CHECKPOINT)
    try:
        entries = [] if stored is None else parse_leader_epochs(stored.read())
    except CheckpointError as error:
        raise SnapshotError(f"cannot understand {directory_name(partition)}: {error}") from error
    return max((entry.epoch for entry in entries), default=-1)


def _directory_id(found: _FoundDirectories, node_id: int) -> bytes:
    return hashlib.sha256(f"{found.cluster_id} {node_id}".encode()).digest()[:16]


def _disk(
    found: _FoundDirectories,
    placed: Mapping[TopicPartition, tuple[int, ...]],
    records: Sequence[MetadataRecord],
    node_id: int,
    nodes: Sequence[int],
) -> DiskImage:
    now_ms = found.metadata.last_timestamp_ms
    directory_id = _directory_id(found, node_id)
    disk = SimDisk(lambda: now_ms)
    disk.make_directory(LOG_DIRECTORY)
    owner = MetaProperties(found.cluster_id, node_id, directory_id)
    write_meta_properties(disk, LOG_DIRECTORY, owner)
    metadata_path = f"{LOG_DIRECTORY}/{METADATA_DIRECTORY}"
    log = MetadataLog(disk, metadata_path)
    snapshot_id = SnapshotId(len(records), _EPOCH)
    log.write_snapshot(snapshot_id, map(encode_record, records), now_ms)
    log.reset_to(snapshot_id)
    log.close()
    state = ElectionState(_EPOCH, NO_NODE, NO_NODE, is_proven=True, committed_offset=len(records))
    QuorumStateFile(disk, metadata_path, directory_id).write(state, nodes)
    mine = [
        partition
        for partition, replicas in placed.items()
        if node_id in replicas and partition.topic in found.metadata.topic_ids
    ]
    for name, offsets in found.checkpoints.items():
        chosen = {partition: offsets[partition] for partition in mine if partition in offsets}
        write_offset_checkpoint(disk, f"{LOG_DIRECTORY}/{name}", chosen)
    image = disk.image()
    folders, files = list(image.folders), dict(image.files)
    for partition in mine:
        folder = f"{LOG_DIRECTORY}/{directory_name(partition)}"
        folders.append(folder)
        files |= {f"{folder}/{name}": one for name, one in found.partitions[partition].items()}
    return DiskImage(tuple(folders), files)
