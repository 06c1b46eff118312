"""The cluster's metadata at one offset (`MetadataImage`) and what changed since (`MetadataDelta`).

Owns: the meaning of every metadata record. Rules:
1. An image is immutable. Its maps are persistent (`immutables.Map`), so a new image costs the
   change and not the cluster, and two images share what is equal.
2. A delta starts from an image, takes records in log order by `replay`, and `apply` gives the next
   image. `replay` trusts the controller: a record about something that does not exist is our bug
   (an assertion), since a log that two nodes read differently must end the node.
3. Naming a leader in a PartitionChangeRecord raises leader_epoch; every change raises
   partition_epoch.
4. `to_records` gives an image's records in sorted order: replayed on the empty image they make an
   equal one (that is what a snapshot is).

Called by: controller.py (on its uncommitted image), quorum/service.py (committed records), and
every subscriber of the metadata (reads). Kafka's counterpart: MetadataImage, MetadataDelta.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar, cast

from immutables import Map

from kraftrio.kraft_meta.metadata.acl_image import Acl, AclChanges
from kraftrio.kraft_meta.metadata.directories import (
    MIGRATING,
    UNASSIGNED,
    directories_of,
    directory_of,
    is_online,
    placement,
    shared,
)
from kraftrio.kraft_meta.metadata.image_parts import ImagePart, apply_changes, changes_between
from kraftrio.kraft_meta.metadata.quota_image import QuotaChanges, QuotaEntity
from kraftrio.kraft_meta.metadata.records import (
    LEADER_RECOVERED,
    NO_LEADER,
    NO_LEADER_CHANGE,
    BrokerRegistrationChangeRecord,
    ClusterIdRecord,
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from kraftrio.kraft_meta.metadata.scram_image import ScramChanges, ScramUser
from kraftrio.kraft_meta.metadata.token_image import DelegationToken, TokenChanges
from kraftrio.wire.sasl.scram_keys import ScramCredential

__all__ = [
    "BROKER",
    "BROKER_LOGGER",
    "CLIENT_METRICS",
    "GROUP",
    "GROUP_VERSION",
    "NO_LEADER",
    "SHARE_VERSION",
    "STREAMS_VERSION",
    "TOPIC",
    "TRANSACTION_VERSION",
    "BrokerImage",
    "ConfigResource",
    "Endpoint",
    "MetadataDelta",
    "MetadataImage",
    "PartitionImage",
    "TopicDelta",
    "TopicImage",
]

TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"

# Types of configuration resources, by Kafka's numbers.
TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32


class ConfigResource(NamedTuple):
    """What a configuration belongs to; the broker named "" stands for all brokers."""

    type: int
    name: str


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition. `leader` is -1 when no replica may lead.

    `directories` are where the replicas lie, in their order; () while that is unknown.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = LEADER_RECOVERED
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, broker_id: int) -> bytes:
        """Return where the replica on that broker lies, as far as it is known."""
        return directory_of(self.replicas, self.directories, broker_id)

    def merge(self, change: PartitionChangeRecord) -> PartitionImage:
        """Return this partition after a change (rule 3)."""
        leader, leader_epoch = self.leader, self.leader_epoch
        if change.leader != NO_LEADER_CHANGE:
            leader, leader_epoch = change.leader, leader_epoch + 1
        replicas, directories = self.replicas, change.directories
        if change.replicas is not None:
            replicas = change.replicas
        if directories is None:
            directories = self.directories
            if directories and replicas != self.replicas:
                directories = directories_of(replicas, placement(self.replicas, directories))
        return PartitionImage(
            replicas=replicas,
            isr=_either(change.isr, self.isr),
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=self.partition_epoch + 1,
            leader_recovery_state=(
                self.leader_recovery_state
                if change.leader_recovery_state is None
                else change.leader_recovery_state
            ),
            adding_replicas=_either(change.adding_replicas, self.adding_replicas),
            removing_replicas=_either(change.removing_replicas, self.removing_replicas),
            directories=shared(directories),
        )


def _either(changed: tuple[int, ...] | None, current: tuple[int, ...]) -> tuple[int, ...]:
    return current if changed is None else changed


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic and its partitions by index."""

    name: str
    topic_id: bytes
    partitions: Map[int, PartitionImage]

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registered broker. A fenced broker is known, but clients and leaders do not see it."""

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    features: tuple[FeatureRange, ...] = ()
    log_dirs: tuple[bytes, ...] = ()

    @property
    def is_active(self) -> bool:
        """May lead partitions and be in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def default_directory(self) -> bytes:
        """Where a new replica lies: in the only directory, or where the broker will say."""
        if not self.log_dirs:
            return MIGRATING
        return self.log_dirs[0] if len(self.log_dirs) == 1 else UNASSIGNED

    def has_online(self, directory: bytes) -> bool:
        """Return whether a replica in that directory of this broker can be used."""
        return is_online(directory, self.log_dirs)

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Return where this broker listens under that listener name."""
        for endpoint in self.endpoints:
            if endpoint.name == listener_name:
                return endpoint
        return None


_NO_CONFIG: Final[Map[str, str]] = Map()
_NO_TOPICS: Final[Map[str, TopicImage]] = Map()
_NO_TOPIC_IDS: Final[Map[bytes, TopicImage]] = Map()
_NO_BROKERS: Final[Map[int, BrokerImage]] = Map()
_NO_CONFIGS: Final[Map[ConfigResource, Map[str, str]]] = Map()
_NO_FEATURES: Final[Map[str, int]] = Map()
_NO_ACLS: Final[Map[bytes, Acl]] = Map()
_NO_CREDENTIALS: Final[Map[ScramUser, ScramCredential]] = Map()
_NO_QUOTAS: Final[Map[QuotaEntity, Map[str, float]]] = Map()

_NO_TOKENS: Final[Map[str, DelegationToken]] = Map()

PARTS: Final[tuple[type[ImagePart[Any, Any]], ...]] = (
    AclChanges,
    ScramChanges,
    QuotaChanges,
    TokenChanges,
)
"""The parts of the image that know their own records; each is a field of `MetadataImage`."""

_PART_OF_RECORD: Final = {record: part for part in PARTS for record in part.RECORDS}

P = TypeVar("P", bound=ImagePart[Any, Any])


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Everything that the metadata log says up to `offset` (the last offset in it; -1 nothing)."""

    offset: int = -1
    epoch: int = -1
    cluster_id: str = ""
    topics_by_name: Map[str, TopicImage] = _NO_TOPICS
    topics_by_id: Map[bytes, TopicImage] = _NO_TOPIC_IDS
    brokers: Map[int, BrokerImage] = _NO_BROKERS
    configs: Map[ConfigResource, Map[str, str]] = _NO_CONFIGS
    features: Map[str, int] = _NO_FEATURES
    next_producer_id: int = 0
    acls: Map[bytes, Acl] = _NO_ACLS
    scram_credentials: Map[ScramUser, ScramCredential] = _NO_CREDENTIALS
    delegation_tokens: Map[str, DelegationToken] = _NO_TOKENS
    client_quotas: Map[QuotaEntity, Map[str, float]] = _NO_QUOTAS

    def topic(self, name: str) -> TopicImage | None:
        return self.topics_by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, name: str, index: int) -> PartitionImage | None:
        topic = self.topics_by_name.get(name)
        return None if topic is None else topic.partitions.get(index)

    def broker(self, broker_id: int) -> BrokerImage | None:
        return self.brokers.get(broker_id)

    def config(self, resource_type: int, name: str) -> Map[str, str]:
        """Return the configurations set on a resource; empty when there are none."""
        return self.configs.get(ConfigResource(resource_type, name), _NO_CONFIG)

    @property
    def transaction_version(self) -> int:
        """Return the finalized level of transaction.version; 0 unless set (KIP-890).

        1: values of the transaction log are flexible; 2: an epoch for each transaction, and clients
        add partitions to it by producing to them.
        """
        return self.features.get(TRANSACTION_VERSION, 0)

    @property
    def group_version(self) -> int:
        """Return the finalized level of group.version; 1: consumer groups are served (KIP-848)."""
        return self.features.get(GROUP_VERSION, 0)

    @property
    def share_version(self) -> int:
        """Return the finalized level of share.version; 1: share groups are served (KIP-932)."""
        return self.features.get(SHARE_VERSION, 0)

    @property
    def streams_version(self) -> int:
        """Return the finalized level of streams.version; 1: streams groups (KIP-1071)."""
        return self.features.get(STREAMS_VERSION, 0)

    def alive_brokers(self) -> list[BrokerImage]:
        """Return the brokers that are not fenced, by id."""
        return [self.brokers[i] for i in sorted(self.brokers) if not self.brokers[i].fenced]

    def to_records(self) -> Iterator[MetadataRecord]:
        """Yield records that make this image from the empty one, in sorted order."""
        if self.cluster_id:
            yield ClusterIdRecord(self.cluster_id)
        for name in sorted(self.features):
            yield FeatureLevelRecord(name, self.features[name])
        for broker_id in sorted(self.brokers):
            broker = self.brokers[broker_id]
            yield RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=broker.incarnation_id,
                broker_epoch=broker.broker_epoch,
                endpoints=broker.endpoints,
                features=broker.features,
                rack=broker.rack,
                fenced=broker.fenced,
                in_controlled_shutdown=broker.in_controlled_shutdown,
                log_dirs=broker.log_dirs,
            )
        for topic_name in sorted(self.topics_by_name):
            topic = self.topics_by_name[topic_name]
            yield TopicRecord(topic.name, topic.topic_id)
            for index in sorted(topic.partitions):
                yield _partition_record(topic.topic_id, index, topic.partitions[index])
        for resource in sorted(self.configs):
            configs = self.configs[resource]
            for key in sorted(configs):
                yield ConfigRecord(resource.type, resource.name, key, configs[key])
        if self.next_producer_id:
            yield ProducerIdsRecord(-1, -1, self.next_producer_id)
        for part in PARTS:
            yield from part.to_records(getattr(self, part.FIELD))


def _partition_record(topic_id: bytes, index: int, partition: PartitionImage) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=partition.replicas,
        isr=partition.isr,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        leader_recovery_state=partition.leader_recovery_state,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
        directories=partition.directories,
    )


class TopicDelta:
    """What changed in one topic: `partitions` holds the new and changed ones.

    `previous` is the topic before (None: it is new), so a reader sees the former leader.
    """

    __slots__ = ("name", "partitions", "previous", "topic_id")

    def __init__(self, name: str, topic_id: bytes, previous: TopicImage | None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.previous = previous
        self.partitions: dict[int, PartitionImage] = {}

    def current(self, index: int) -> PartitionImage | None:
        """Return a partition with the changes of this delta so far."""
        changed = self.partitions.get(index)
        if changed is None and self.previous is not None:
            return self.previous.partitions.get(index)
        return changed

    def previous_partition(self, index: int) -> PartitionImage | None:
        """Return a partition as it was before this delta; None when it is new."""
        return None if self.previous is None else self.previous.partitions.get(index)

    def apply(self) -> TopicImage:
        """Return the topic after this delta."""
        base: Map[int, PartitionImage] = (
            Map() if self.previous is None else self.previous.partitions
        )
        return TopicImage(self.name, self.topic_id, base.update(self.partitions))

    def __repr__(self) -> str:
        kind = "new" if self.previous is None else "changed"
        return f"<TopicDelta {kind} {self.name} partitions={sorted(self.partitions)}>"


class MetadataDelta:
    """The changes from one image to the next (rule 2).

    Readers look at:
        changed_topics: new and changed topics by id; a topic that was deleted and made again under
            its name is in both this and deleted_topics, with different ids.
        deleted_topics: topics by id as they were.
        changed_brokers: brokers by id as they are now; None when unregistered.
        changed_configs: resources and all their configurations as they are now.
        changed_features: feature levels that changed; 0 when removed.
        producer_ids_changed: next_producer_id moved.
        part: what changed in one of PARTS.
    """

    __slots__ = (
        "_parts",
        "changed_brokers",
        "changed_configs",
        "changed_features",
        "changed_topics",
        "cluster_id",
        "deleted_topics",
        "next_producer_id",
        "previous",
    )

    def __init__(self, previous: MetadataImage) -> None:
        self.previous = previous
        self.changed_topics: dict[bytes, TopicDelta] = {}
        self.deleted_topics: dict[bytes, TopicImage] = {}
        self.changed_brokers: dict[int, BrokerImage | None] = {}
        self.changed_configs: dict[ConfigResource, Map[str, str]] = {}
        self.changed_features: dict[str, int] = {}
        self.cluster_id = previous.cluster_id
        self.next_producer_id = previous.next_producer_id
        self._parts = {part: part(getattr(previous, part.FIELD)) for part in PARTS}

    def part(self, kind: type[P]) -> P:
        """Return what changes in a part of the image."""
        return cast(P, self._parts[kind])

    @property
    def producer_ids_changed(self) -> bool:
        return self.next_producer_id != self.previous.next_producer_id

    @property
    def is_empty(self) -> bool:
        return not (
            self.changed_topics
            or self.deleted_topics
            or self.changed_brokers
            or self.changed_configs
            or self.changed_features
            or self.producer_ids_changed
            or self.cluster_id != self.previous.cluster_id
            or any(part.changed for part in self._parts.values())
        )

    @classmethod
    def between(cls, previous: MetadataImage, image: MetadataImage) -> MetadataDelta:
        """Return the changes from one image to any other (after a snapshot was loaded)."""
        delta = cls(previous)
        for topic_id, old_topic in previous.topics_by_id.items():
            if topic_id not in image.topics_by_id:
                delta.deleted_topics[topic_id] = old_topic
        for name in sorted(image.topics_by_name):
            topic = image.topics_by_name[name]
            old = previous.topics_by_id.get(topic.topic_id)
            if old is topic:
                continue
            topic_delta = TopicDelta(topic.name, topic.topic_id, old)
            for index, partition in sorted(topic.partitions.items()):
                if old is None or old.partitions.get(index) != partition:
                    topic_delta.partitions[index] = partition
            if old is None or topic_delta.partitions:
                delta.changed_topics[topic.topic_id] = topic_delta
        delta.changed_brokers = changes_between(previous.brokers, image.brokers, None)
        delta.changed_configs = changes_between(previous.configs, image.configs, _NO_CONFIG)
        delta.changed_features = changes_between(previous.features, image.features, 0)
        for kind, part in delta._parts.items():
            part.become(getattr(image, kind.FIELD))
        delta.cluster_id = image.cluster_id
        delta.next_producer_id = image.next_producer_id
        return delta

    @classmethod
    def full(cls, image: MetadataImage) -> MetadataDelta:
        """Return the delta from nothing to an image: what a new subscriber is given first."""
        return cls.between(MetadataImage(), image)

    def replay(self, record: MetadataRecord) -> None:
        """Take the next record of the log."""
        match record:
            case PartitionChangeRecord():
                self._replay_partition_change(record)
            case PartitionRecord():
                self._replay_partition(record)
            case TopicRecord():
                assert self.previous.topic_by_id(record.topic_id) is None
                self.changed_topics[record.topic_id] = TopicDelta(
                    record.name, record.topic_id, None
                )
            case RemoveTopicRecord():
                self._replay_remove_topic(record)
            case ConfigRecord():
                resource = ConfigResource(record.resource_type, record.resource_name)
                self.changed_configs[resource] = _with_config(
                    self._configs(resource), record.name, record.value
                )
            case RegisterBrokerRecord():
                self.changed_brokers[record.broker_id] = _broker_image(record)
            case BrokerRegistrationChangeRecord():
                self._replay_broker_change(record)
            case UnregisterBrokerRecord():
                self._broker(record.broker_id, record.broker_epoch)
                self.changed_brokers[record.broker_id] = None
            case ProducerIdsRecord():
                assert record.next_producer_id >= self.next_producer_id
                self.next_producer_id = record.next_producer_id
            case FeatureLevelRecord():
                self.changed_features[record.name] = record.feature_level
            case ClusterIdRecord():
                assert self.cluster_id in ("", record.cluster_id)
                self.cluster_id = record.cluster_id
            case NoOpRecord():
                return
            case _:
                self._parts[_PART_OF_RECORD[type(record)]].replay(record)

    def apply(self, offset: int, epoch: int) -> MetadataImage:
        """Return the image after this delta; `offset` is that of the last record."""
        previous = self.previous
        by_name, by_id = previous.topics_by_name, previous.topics_by_id
        if self.changed_topics or self.deleted_topics:
            name_mutation, id_mutation = by_name.mutate(), by_id.mutate()
            for topic_id, topic in self.deleted_topics.items():
                del name_mutation[topic.name]
                del id_mutation[topic_id]
            for topic_id, topic_delta in self.changed_topics.items():
                changed = topic_delta.apply()
                name_mutation[changed.name] = changed
                id_mutation[topic_id] = changed
            by_name, by_id = name_mutation.finish(), id_mutation.finish()
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            cluster_id=self.cluster_id,
            topics_by_name=by_name,
            topics_by_id=by_id,
            brokers=apply_changes(previous.brokers, self.changed_brokers),
            configs=apply_changes(previous.configs, self.changed_configs),
            features=apply_changes(previous.features, self.changed_features),
            next_producer_id=self.next_producer_id,
            **{kind.FIELD: part.apply() for kind, part in self._parts.items()},
        )

    def _topic(self, topic_id: bytes) -> TopicDelta:
        delta = self.changed_topics.get(topic_id)
        if delta is None:
            assert topic_id not in self.deleted_topics, "a record about a deleted topic"
            previous = self.previous.topics_by_id[topic_id]
            delta = TopicDelta(previous.name, topic_id, previous)
            self.changed_topics[topic_id] = delta
        return delta

    def _configs(self, resource: ConfigResource) -> Map[str, str]:
        changed = self.changed_configs.get(resource)
        if changed is not None:
            return changed
        return self.previous.configs.get(resource, _NO_CONFIG)

    def _broker(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        if broker_id in self.changed_brokers:
            broker = self.changed_brokers[broker_id]
        else:
            broker = self.previous.brokers.get(broker_id)
        assert broker is not None, f"a record about broker {broker_id}, which is not registered"
        assert broker.broker_epoch == broker_epoch, "a record about another broker epoch"
        return broker

    def _replay_partition(self, record: PartitionRecord) -> None:
        self._topic(record.topic_id).partitions[record.partition_id] = PartitionImage(
            replicas=record.replicas,
            isr=record.isr,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=record.leader_recovery_state,
            adding_replicas=record.adding_replicas,
            removing_replicas=record.removing_replicas,
            directories=shared(record.directories),
        )

    def _replay_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        partition = topic.current(record.partition_id)
        assert partition is not None, "a change of a partition that does not exist"
        topic.partitions[record.partition_id] = partition.merge(record)

    def _replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        changed = self.changed_topics.pop(record.topic_id, None)
        previous = self.previous.topics_by_id.get(record.topic_id)
        assert changed is not None or previous is not None, "removal of an unknown topic"
        name = previous.name if previous is not None else ""
        if changed is not None:
            name = changed.name
        if previous is not None:
            self.deleted_topics[record.topic_id] = previous
        resource = ConfigResource(TOPIC, name)
        if self._configs(resource):
            self.changed_configs[resource] = _NO_CONFIG

    def _replay_broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced is not None:
            broker = replace(broker, fenced=record.fenced)
        if record.in_controlled_shutdown is not None:
            broker = replace(broker, in_controlled_shutdown=record.in_controlled_shutdown)
        if record.log_dirs is not None:
            broker = replace(broker, log_dirs=record.log_dirs)
        self.changed_brokers[record.broker_id] = broker

    def __repr__(self) -> str:
        return (
            f"<MetadataDelta topics={list(self.changed_topics.values())}"
            f" deleted={[topic.name for topic in self.deleted_topics.values()]}"
            f" brokers={sorted(self.changed_brokers)} configs={sorted(self.changed_configs)}>"
        )


def _with_config(configs: Map[str, str], name: str, value: str | None) -> Map[str, str]:
    if value is not None:
        return configs.set(name, value)
    return configs.delete(name) if name in configs else configs


def _broker_image(record: RegisterBrokerRecord) -> BrokerImage:
    return BrokerImage(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=record.endpoints,
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        features=record.features,
        log_dirs=record.log_dirs,
    )
