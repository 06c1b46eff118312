"""The replicas on this broker, by topic and partition, and which requests each may serve.

Owns: `HostedReplicas`. The log of a new partition is made soon after its metadata came
(`metadata_changes`), or at once when a request asks for the partition.

Called by the data handlers, and by what else of `replica/` looks a partition up.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.base.clock import Clock
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.directories.unmade_logs import UnmadeLogs
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.ports import MetadataBrokers
from kraftrio.broker.replica.replica_roles import ReplicaRoles
from kraftrio.broker.replica.settings import ReplicaSettings
from kraftrio.broker.replica.state.partition_state import Role
from kraftrio.broker.replica.traffic import Traffics
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition


class HostedReplicas:
    """See the module.

    Args:
        partitions: those that have a log; only this class changes it, others may read it.
        unmade: those that have none yet.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        partitions: dict[TopicPartition, Partition],
        unmade: UnmadeLogs,
        roles: ReplicaRoles,
        metadata: MetadataCache,
        clock: Clock,
        traffics: Traffics,
    ) -> None:
        self._traffics = traffics
        self._settings = settings
        self._partitions = partitions
        self._unmade = unmade
        self._roles = roles
        self._metadata = metadata
        self._brokers = MetadataBrokers(metadata)
        self._clock = clock

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """The replica hosted here, in whatever role, once it has its log."""
        return self._partitions.get(topic_partition)

    def partitions(self) -> Iterable[Partition]:
        """Every replica hosted here that has its log."""
        return self._partitions.values()

    def find(self, topic_partition: TopicPartition) -> Partition:
        """The replica hosted here, in whatever role; its log is made if it has none.

        Raises:
            KafkaError: there is no such partition here, or KAFKA_STORAGE_ERROR: it has no log yet.
        """
        return self._partitions.get(topic_partition) or self.make(topic_partition)

    def leader(self, topic_partition: TopicPartition, current_leader_epoch: int = -1) -> Partition:
        """The replica to serve a client from.

        Raises:
            KafkaError: not the leader, an unknown partition, or a leader epoch out of date.
        """
        partition = self._partitions.get(topic_partition) or self.make(topic_partition)
        code = partition.state.check_leader(current_leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return partition

    def online(self, topic_partition: TopicPartition) -> Partition:
        """The replica hosted here, in whatever role.

        Raises:
            KafkaError: it is elsewhere, or nowhere, or its log directory has failed.
        """
        partition = self.find(topic_partition)
        if partition.state.role is Role.OFFLINE:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return partition

    def readable(self, topic_partition: TopicPartition, current_leader_epoch: int) -> Partition:
        """The replica to serve a consumer from, leader or not (KIP-392).

        Raises:
            KafkaError: not hosted here, its log directory failed, or a leader epoch out of date.
        """
        partition = self._partitions.get(topic_partition) or self.make(topic_partition)
        code = partition.state.check_readable(current_leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return partition

    def make(self, topic_partition: TopicPartition) -> Partition:
        """Create the log of a partition that is placed here, and give it its role.

        Raises:
            KafkaError: there is no such partition here, or KAFKA_STORAGE_ERROR: not now.
        """
        made = self._unmade.make(
            topic_partition,
            self._settings.topic_log_config(topic_partition.topic),
            self._clock.wall_ms(),
        )
        if made is None:
            raise self._metadata.check_hosted(*topic_partition)
        unmade, log = made
        partition = Partition(
            topic_partition,
            unmade.topic.topic_id,
            log,
            self._settings.broker_id,
            self._brokers,
            self._settings.lag_time_max_ms,
            self._traffics.enter(topic_partition.topic),
        )
        self._partitions[topic_partition] = partition
        self._roles.apply(partition, unmade.image)
        return partition

    def remove(self, topic_partition: TopicPartition) -> None:
        """It is not hosted here any more."""
        del self._partitions[topic_partition]
        self._traffics.leave(topic_partition.topic)
