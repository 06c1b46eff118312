"""Metadata records: what the metadata log says, as small frozen values, and their bytes.

Owns: the classes of records (security_records.py has those about who may do what), their type ids
(Kafka's own numbers, so that a reader of either knows what 3 means) and their encoding: one msgpack
array `[type_id, version, field...]` per record value, fields in the order of declaration. Rules:
1. A record is never changed or removed once released: new fields go to the end with a default and
   raise VERSION; a decoder fills what an older writer did not know.
2. A type or a version that is not known here means that a newer release wrote the log: that is
   `UnknownRecordError`, never skipped, since an image without it would differ from the others'.
3. Values are immutable and hold no sets: encoding a record gives the same bytes everywhere.

Called by: the controller (makes them), image.py (replays them), quorum/service.py and the metadata
log (carry them). Kafka's counterpart: its metadata message definitions, KIP-631.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import msgpack

from kraftrio.kraft_meta.metadata.security_records import SECURITY_RECORD_CLASSES, SecurityRecord

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2

LEADER_RECOVERED: Final = 0
LEADER_RECOVERING: Final = 1


class UnknownRecordError(Exception):
    """A record of a type or version that this release does not know, or that is not a record."""


class Endpoint(NamedTuple):
    """Where a broker or controller listens; security_protocol is Kafka's number (0 PLAINTEXT)."""

    name: str
    host: str
    port: int
    security_protocol: int


class FeatureRange(NamedTuple):
    """The levels of one feature that a node supports."""

    name: str
    min_supported_version: int
    max_supported_version: int


@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord:
    """A broker registered (or came back): replaces its former registration. KIP-631."""

    TYPE_ID: ClassVar[int] = 0
    VERSION: ClassVar[int] = 0
    broker_id: int
    incarnation_id: bytes
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRecord:
    """A broker is gone for good."""

    TYPE_ID: ClassVar[int] = 1
    VERSION: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic exists; its partitions follow."""

    TYPE_ID: ClassVar[int] = 2
    VERSION: ClassVar[int] = 0
    name: str
    topic_id: bytes


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition as it is: at creation and in snapshots. Version 1: directories.py."""

    TYPE_ID: ClassVar[int] = 3
    VERSION: ClassVar[int] = 1
    topic_id: bytes
    partition_id: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    leader_recovery_state: int = LEADER_RECOVERED
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """One configuration of one resource; value None removes it."""

    TYPE_ID: ClassVar[int] = 4
    VERSION: ClassVar[int] = 0
    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """What changed in a partition; None (or NO_LEADER_CHANGE) keeps what was.

    Every change raises the partition epoch; naming a leader, even the same, raises the leader
    epoch as well. Replicas that stay keep their directories (version 1) unless some are named.
    """

    TYPE_ID: ClassVar[int] = 5
    VERSION: ClassVar[int] = 1
    topic_id: bytes
    partition_id: int
    isr: tuple[int, ...] | None = None
    leader: int = NO_LEADER_CHANGE
    replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None
    directories: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """A topic is gone, with its partitions and its configuration."""

    TYPE_ID: ClassVar[int] = 9
    VERSION: ClassVar[int] = 0
    topic_id: bytes


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """The finalized level of a feature; level 0 removes it."""

    TYPE_ID: ClassVar[int] = 12
    VERSION: ClassVar[int] = 0
    name: str
    feature_level: int


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """All producer ids below next_producer_id are given out. KIP-730."""

    TYPE_ID: ClassVar[int] = 15
    VERSION: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class BrokerRegistrationChangeRecord:
    """A broker was fenced or unfenced, asked to leave, or has other log directories (version 1).

    None keeps what was.
    """

    TYPE_ID: ClassVar[int] = 17
    VERSION: ClassVar[int] = 1
    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class NoOpRecord:
    """Nothing: keeps the committed offset moving."""

    TYPE_ID: ClassVar[int] = 20
    VERSION: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class ClusterIdRecord:
    """The cluster's id, first in a new log (ours alone: Kafka keeps it in meta.properties)."""

    TYPE_ID: ClassVar[int] = 1000
    VERSION: ClassVar[int] = 0
    cluster_id: str


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | NoOpRecord
    | ClusterIdRecord
    | SecurityRecord
)

RECORD_CLASSES: Final[tuple[type[MetadataRecord], ...]] = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    TopicRecord,
    PartitionRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    NoOpRecord,
    ClusterIdRecord,
    *SECURITY_RECORD_CLASSES,
)
_CLASS_BY_TYPE_ID: Final = {cls.TYPE_ID: cls for cls in RECORD_CLASSES}
_FIELD_NAMES: Final = {cls: tuple(f.name for f in fields(cls)) for cls in RECORD_CLASSES}


def encode_record(record: MetadataRecord) -> bytes:
    """Return the bytes of a record's value."""
    cls = type(record)
    values = [getattr(record, name) for name in _FIELD_NAMES[cls]]
    packed = msgpack.packb([cls.TYPE_ID, cls.VERSION, *values], use_bin_type=True)
    assert isinstance(packed, bytes)
    return packed


def decode_record(value: bytes | memoryview) -> MetadataRecord:
    """Return the record of a value; UnknownRecordError when it is not one of ours."""
    try:
        unpacked: Any = msgpack.unpackb(value, raw=False, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise UnknownRecordError(f"not a metadata record: {error}") from error
    if not isinstance(unpacked, tuple) or len(unpacked) < 2:
        raise UnknownRecordError("not a metadata record: no type and version")
    type_id, version, *values = unpacked
    cls = _CLASS_BY_TYPE_ID.get(type_id)
    if cls is None:
        raise UnknownRecordError(f"metadata record type {type_id} is not known to this release")
    if version > cls.VERSION:
        raise UnknownRecordError(
            f"{cls.__name__} version {version} is newer than this release's {cls.VERSION}"
        )
    try:
        if cls is RegisterBrokerRecord:
            values[3] = tuple(Endpoint(*endpoint) for endpoint in values[3])
            values[4] = tuple(FeatureRange(*feature) for feature in values[4])
        return cls(*values)
    except (TypeError, IndexError) as error:
        raise UnknownRecordError(f"{cls.__name__} with wrong fields: {error}") from error
