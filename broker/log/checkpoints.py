"""The small text files of a log directory and of its partitions, in Kafka's formats.

    recovery-point-offset-checkpoint, replication-offset-checkpoint, log-start-offset-checkpoint,
    cleaner-offset-checkpoint     version 0, count, then `topic partition offset` lines
    leader-epoch-checkpoint       version 0, count, then `epoch start_offset` lines
    partition.metadata            version 0 and the topic id
    meta.properties               node id, directory id, cluster id (version 1)
    .kafka_cleanshutdown          JSON with the broker epoch, only after a clean stop

Rules: every file is replaced atomically; a file that cannot be read is `CheckpointError`, and the
caller rebuilds what it held from the logs. Formatting and parsing are pure; the functions that
touch files take the FileSystem. Called by `partition_log` and `log_manager`.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kraftrio.broker.log.files import FileSystem, write_atomically
from kraftrio.broker.log.leader_epoch_cache import EpochEntry
from kraftrio.wire.primitives import TopicPartition, uuid_from_text, uuid_to_text

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

_VERSION = 0


class CheckpointError(Exception):
    """The file is not what we or Kafka write: rebuild what it held."""


def _parse_lines(data: bytes, what: str, fields: int) -> list[list[str]]:
    """The entries of a checkpoint: version line, count line, then `fields` words a line."""
    try:
        lines = data.decode("utf-8").splitlines()
        version, count = int(lines[0]), int(lines[1])
    except (UnicodeDecodeError, ValueError, IndexError):
        raise CheckpointError(f"{what}: no version and count") from None
    if version != _VERSION:
        raise CheckpointError(f"{what}: version {version}, not {_VERSION}")
    entries = [line.split(" ") for line in lines[2:] if line.strip()]
    if len(entries) != count:
        raise CheckpointError(f"{what}: {len(entries)} entries where the file says {count}")
    if any(len(entry) != fields for entry in entries):
        raise CheckpointError(f"{what}: an entry has not {fields} words")
    return entries


def format_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [f"{_VERSION}\n{len(offsets)}\n"]
    lines += [f"{tp.topic} {tp.partition} {offset}\n" for tp, offset in offsets.items()]
    return "".join(lines).encode()


def parse_offset_checkpoint(data: bytes) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for topic, partition, offset in _parse_lines(data, "offset checkpoint", 3):
        try:
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise CheckpointError("offset checkpoint: a number is not one") from None
    return offsets


def read_offset_checkpoint(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint; none if it is missing. Raises CheckpointError if garbled."""
    try:
        data = fs.read_file(path)
    except FileNotFoundError:
        return {}
    return parse_offset_checkpoint(data)


def write_offset_checkpoint(
    fs: FileSystem, path: str, offsets: Mapping[TopicPartition, int]
) -> None:
    write_atomically(fs, path, format_offset_checkpoint(offsets))


def format_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    lines = [f"{entry.epoch} {entry.start_offset}\n" for entry in entries]
    return f"{_VERSION}\n{len(lines)}\n{''.join(lines)}".encode()


def parse_leader_epochs(data: bytes) -> list[EpochEntry]:
    entries: list[EpochEntry] = []
    for epoch, start_offset in _parse_lines(data, LEADER_EPOCH_CHECKPOINT, 2):
        try:
            entry = EpochEntry(int(epoch), int(start_offset))
        except ValueError:
            raise CheckpointError(f"{LEADER_EPOCH_CHECKPOINT}: a number is not one") from None
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset < entries[-1][1]):
            raise CheckpointError(f"{LEADER_EPOCH_CHECKPOINT}: entries do not rise")
        entries.append(entry)
    return entries


def format_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: {_VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> bytes:
    """The topic id (16 bytes)."""
    values: dict[str, str] = {}
    try:
        for line in data.decode("utf-8").splitlines():
            name, separator, value = line.partition(":")
            if not separator:
                raise CheckpointError(f"{PARTITION_METADATA}: a line without a colon")
            values[name.strip()] = value.strip()
        if values.get("version") != str(_VERSION):
            raise CheckpointError(f"{PARTITION_METADATA}: version {values.get('version')}")
        return uuid_from_text(values["topic_id"])
    except (UnicodeDecodeError, KeyError, ValueError):
        raise CheckpointError(f"{PARTITION_METADATA}: no topic id") from None


def read_topic_id(fs: FileSystem, directory: str) -> bytes | None:
    """The topic id in the folder of a partition; None if it has none that can be read."""
    try:
        return parse_partition_metadata(fs.read_file(posixpath.join(directory, PARTITION_METADATA)))
    except (FileNotFoundError, CheckpointError):
        return None


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Who owns a log directory."""

    cluster_id: str
    node_id: int
    directory_id: bytes
    version: int = 1


def format_meta_properties(properties: MetaProperties) -> bytes:
    return (
        f"node.id={properties.node_id}\n"
        f"directory.id={uuid_to_text(properties.directory_id)}\n"
        f"version={properties.version}\n"
        f"cluster.id={properties.cluster_id}\n"
    ).encode()


def parse_meta_properties(data: bytes) -> MetaProperties:
    values: dict[str, str] = {}
    try:
        for line in data.decode("utf-8").splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                name, _, value = line.partition("=")
                values[name.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
        version = int(values.get("version", "0"))
        if version not in (0, 1):
            raise CheckpointError(f"{META_PROPERTIES}: version {version}")
        return MetaProperties(
            cluster_id=values["cluster.id"],
            node_id=int(values["node.id"]),
            directory_id=uuid_from_text(values["directory.id"]),
            version=version,
        )
    except (UnicodeDecodeError, ValueError, KeyError) as error:
        raise CheckpointError(f"{META_PROPERTIES}: {error!r}") from None


def read_meta_properties(fs: FileSystem, directory: str) -> MetaProperties | None:
    """The owner of a log directory, None for a fresh one. Raises CheckpointError."""
    try:
        data = fs.read_file(posixpath.join(directory, META_PROPERTIES))
    except FileNotFoundError:
        return None
    return parse_meta_properties(data)


def write_meta_properties(fs: FileSystem, directory: str, properties: MetaProperties) -> None:
    path = posixpath.join(directory, META_PROPERTIES)
    write_atomically(fs, path, format_meta_properties(properties))


def write_clean_shutdown(fs: FileSystem, directory: str, broker_epoch: int) -> None:
    data = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_atomically(fs, posixpath.join(directory, CLEAN_SHUTDOWN), data.encode())


def take_clean_shutdown(fs: FileSystem, directory: str) -> int | None:
    """Remove the marker before anything is loaded (KAFKA-10471).

    Returns the broker epoch it held (-1 if unreadable), None if the last stop was not clean.
    """
    path = posixpath.join(directory, CLEAN_SHUTDOWN)
    try:
        data = fs.read_file(path)
    except FileNotFoundError:
        return None
    fs.remove(path)
    fs.sync_directory(directory)
    try:
        epoch = json.loads(data).get("brokerEpoch", -1)
    except (ValueError, AttributeError):
        return -1
    return epoch if isinstance(epoch, int) else -1
