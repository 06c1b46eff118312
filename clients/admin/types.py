"""What the admin client is given and what it returns.

Owns plain values and `Results`, the outcome of a call about several items. Names are those of the
Java client's classes and fields.

Called by: the admin modules; programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from kraftrio.clients.arguments.values import ConfigValue
from kraftrio.clients.errors import KafkaClientError
from kraftrio.clients.metadata import BrokerAddress
from kraftrio.wire.primitives import TopicPartition

K = TypeVar("K")
T = TypeVar("T")


class Results(Mapping[K, T], Generic[K, T]):
    """What came of each item: a value or an error.

    Looking an item up returns its value or raises its error; `errors` has all errors.
    """

    def __init__(self, values: Mapping[K, T], errors: Mapping[K, KafkaClientError]) -> None:
        self._values = dict(values)
        self.errors = dict(errors)

    def __getitem__(self, item: K) -> T:
        error = self.errors.get(item)
        if error is not None:
            raise type(error)(error.message, code=error.code)
        return self._values[item]

    def __iter__(self) -> Iterator[K]:
        yield from self._values
        yield from self.errors

    def __len__(self) -> int:
        return len(self._values) + len(self.errors)

    def __repr__(self) -> str:
        return f"Results({self._values!r}, errors={self.errors!r})"

    def joined(self, other: Results[K, T]) -> Results[K, T]:
        """Return the results of both."""
        return Results({**self._values, **other._values}, {**self.errors, **other.errors})

    def values_or_raise(self) -> dict[K, T]:
        """Return all values, or raise the first error; its notes name the other items that failed.

        Raises:
            KafkaClientError: something failed.
        """
        for number, (item, error) in enumerate(self.errors.items()):
            if number == 0:
                raised = type(error)(f"{_shown(item)}: {error}", code=error.code)
            else:
                raised.add_note(f"{_shown(item)}: {error}")
        if self.errors:
            raise raised
        return self._values


def _shown(item: object) -> str:
    if isinstance(item, ConfigResource):
        return f"{item.type.name.lower()} {item.name}"
    return str(item)


# Topics


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; None and -1 are the broker's defaults.

    Attributes:
        replica_assignment: the brokers of each partition, the preferred leader first; instead of
            numbers of partitions and replicas.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, ConfigValue] = field(default_factory=dict)
    replica_assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """-1 where the broker is too old to say."""

    name: str
    topic_id: bytes
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class TopicListing:
    name: str
    topic_id: bytes
    is_internal: bool


# Configurations


class ConfigResourceType(IntEnum):
    """What has settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """Whose settings; the name of a broker is its id, "" stands for all brokers."""

    type: ConfigResourceType
    name: str


class ConfigSource(IntEnum):
    """Where a setting's value comes from."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT_CONFIG


class OpType(IntEnum):
    """What to do with a setting; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class AlterConfigOp:
    """A change of one setting; its value may be of any plain type."""

    name: str
    value: ConfigValue | None = None
    op: OpType = OpType.SET


# Offsets


class OffsetSpec(IntEnum):
    """Which offset is meant; a timestamp in milliseconds stands for itself."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class ListedOffset(NamedTuple):
    """An offset that was looked up: -1 if there is none."""

    offset: int
    timestamp: int
    leader_epoch: int | None


class PartitionLag(NamedTuple):
    """How far a group is behind in a partition; offset and lag None: nothing is committed."""

    offset: int | None
    end_offset: int
    lag: int | None


# Groups


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group; `type` is "classic", "consumer", ..., or "" if the broker is too old to say."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    # Of groups of the consumer protocol (KIP-848):
    member_epoch: int | None = None
    target_assignment: frozenset[TopicPartition] | None = None
    subscribed_topics: frozenset[str] | None = None
    subscribed_pattern: str | None = None
    rack_id: str | None = None
    uses_classic_protocol: bool | None = None  # None: the broker is too old to say


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    type: str
    state: str
    protocol_type: str
    partition_assignor: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    # Of groups of the consumer protocol (KIP-848):
    group_epoch: int | None = None
    assignment_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    member_id: str
    member_epoch: int
    client_id: str
    host: str
    subscribed_topics: frozenset[str]
    assignment: frozenset[TopicPartition]
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    group_id: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[ShareMemberDescription, ...]
    group_epoch: int
    assignment_epoch: int


class SharePartitionOffset(NamedTuple):
    """Where a share group's part of a partition begins: all before is done with.

    Attributes:
        lag: how many records are to be delivered; None where the broker does not know.
    """

    start_offset: int
    leader_epoch: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class StreamsTasks:
    """Tasks of a member: partitions by the id of their subtopology."""

    active: Mapping[str, tuple[int, ...]]
    standby: Mapping[str, tuple[int, ...]]
    warmup: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class StreamsMemberDescription:
    member_id: str
    member_epoch: int
    group_instance_id: str | None
    client_id: str
    host: str
    process_id: str
    topology_epoch: int
    user_endpoint: tuple[str, int] | None
    client_tags: Mapping[str, str]
    assignment: StreamsTasks
    target_assignment: StreamsTasks
    uses_classic_protocol: bool
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class StreamsSubtopology:
    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[str, ...]
    repartition_source_topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamsGroupDescription:
    """A streams group; `topology_epoch` is None before a member sent its topology."""

    group_id: str
    state: str
    coordinator: int
    members: tuple[StreamsMemberDescription, ...]
    topology_epoch: int | None
    subtopologies: tuple[StreamsSubtopology, ...]
    group_epoch: int
    assignment_epoch: int


# Transactions


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id and the state of its transaction, by Kafka's name: "Ongoing", ..."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id; it has a start time and partitions while a transaction is open."""

    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int | None
    topic_partitions: frozenset[TopicPartition]


class FencedProducer(NamedTuple):
    """The id and epoch that fence producers with an older epoch."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class AbortTransactionSpec:
    """Which open transaction of a partition to abort, as `describe_producers` shows it."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that a partition knows; None: it has written no marker, has nothing open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    current_transaction_start_offset: int | None


# The cluster


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int | None
    nodes: tuple[BrokerAddress, ...]


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A node's copy of the metadata log; times are -1 or None where unknown."""

    replica_id: int
    log_end_offset: int
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


class ElectionType(IntEnum):
    """Which replica may lead: the preferred one, or in need one that is not in sync."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment that is going on."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class ReplicaInfo(NamedTuple):
    """A replica in a log directory.

    Attributes:
        offset_lag: how far it is behind the high watermark, or what it is to replace.
        is_future: it is to replace the replica in another directory of the broker.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A broker's log directory; sizes of its disk are None where the broker is too old to say.

    Attributes:
        error: why it is offline; None: it is not.
    """

    error: KafkaClientError | None
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
