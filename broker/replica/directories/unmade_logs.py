"""The partitions placed on this broker whose logs do not exist yet, or are lost.

Owns: `UnmadeLogs`. A log that is not found was either
- never created: the partition is new, or no directory has been reported for it while this broker
  is not in its ISR. It is created in the directory that the controller names, or in the least used
  one;
- or lost with a log directory that is offline. It is not created again, since it may come back with
  the directory. The controller is informed, unless the ids in this broker's registration say it;
- or lost with a directory that is gone: another disk is in its place. Out of the ISR it is created
  again, and follows. The last member of an ISR does not create it, or an empty log would lead and
  the others would truncate what was acknowledged: it reports that it is LOST, until an unclean
  election allows it to start empty. Where there are no other replicas there is nothing to save, and
  it starts empty at once, as in Kafka.
An administrator may have asked for another directory before (AlterReplicaLogDirs), which then wins.
The directory in which a log was created or found is reported (`DirectoryReports`; KIP-858).

Called by `hosted_replicas` (`make`) and `metadata_changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.replica.ports import DirectoryReports
from kraftrio.kraft_meta.metadata.directories import LOST, MIGRATING, UNASSIGNED
from kraftrio.kraft_meta.metadata.image import PartitionImage, TopicImage
from kraftrio.kraft_meta.metadata.records import LEADER_RECOVERING
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition


class Unmade(NamedTuple):
    """A partition placed here whose log is not there yet."""

    topic: TopicImage
    image: PartitionImage
    is_new: bool  # False: it existed before this process, so its log may be on a failed disk


class UnmadeLogs:
    """See the module.

    Args:
        reports: gets the directory of a replica where the metadata has another one.
    """

    def __init__(self, broker_id: int, log_manager: LogManager, reports: DirectoryReports) -> None:
        self._broker_id = broker_id
        self._log_manager = log_manager
        self._reports = reports
        self._unmade: dict[TopicPartition, Unmade] = {}
        self._preferred: dict[TopicPartition, bytes] = {}
        # Partitions of which only an unfinished copy was found (see `future_logs`).
        self.is_abandoned: Callable[[TopicPartition], bool] = lambda _: False
        self.knows_cluster = False  # the first image shows what existed before this process

    def __len__(self) -> int:
        return len(self._unmade)

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._unmade

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._unmade))

    def add(
        self, topic_partition: TopicPartition, topic: TopicImage, image: PartitionImage
    ) -> None:
        """A partition is placed here, or its image changed before its log was made."""
        earlier = self._unmade.get(topic_partition)
        is_new = self.knows_cluster if earlier is None else earlier.is_new
        self._unmade[topic_partition] = Unmade(topic, image, is_new)

    def discard(self, topic_partition: TopicPartition, topic_id: bytes | None = None) -> None:
        """It is not placed here any more; with a topic id, only if it is of that topic."""
        unmade = self._unmade.get(topic_partition)
        if unmade is not None and topic_id in (None, unmade.topic.topic_id):
            del self._unmade[topic_partition]

    def prefer(self, topic_partition: TopicPartition, directory_id: bytes) -> None:
        """Create its log in that directory when its turn comes; the last call counts."""
        self._preferred[topic_partition] = directory_id

    def is_new(self, topic_partition: TopicPartition) -> bool:
        """Was it made while this process ran, and has no log yet?"""
        unmade = self._unmade.get(topic_partition)
        return unmade is not None and unmade.is_new

    def lost(self) -> list[TopicPartition]:
        """The partitions whose log is likely to be in a directory that is offline."""
        return [key for key, unmade in self._unmade.items() if self._is_lost(key, unmade)]

    def make(
        self, topic_partition: TopicPartition, config: LogConfig, now_ms: int
    ) -> tuple[Unmade, PartitionLog] | None:
        """Give a partition its log; None if it is not placed here, or has one.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: not now.
        """
        unmade = self._unmade.get(topic_partition)
        if unmade is None:
            return None
        assigned = unmade.image.directory(self._broker_id)
        if self._is_lost(topic_partition, unmade):
            is_known = assigned == LOST or (
                assigned not in (MIGRATING, UNASSIGNED) and self._has_offline()
            )
            if not is_known or self._log_manager.dirs.has_online(assigned):
                self._place(topic_partition, unmade, LOST)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the log of {topic_partition} is lost, or in a log directory that is offline",
            )
        wanted = self._preferred.get(topic_partition, assigned)
        try:
            log = self._log_manager.get_or_create_log(
                topic_partition, unmade.topic.topic_id, config, now_ms, directory_id=wanted
            )
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        del self._unmade[topic_partition]
        self._preferred.pop(topic_partition, None)
        log_dir = self._log_manager.dir_of(topic_partition)
        if log_dir is not None and log_dir.directory_id != assigned:
            self._place(topic_partition, unmade, log_dir.directory_id)
        return unmade, log

    def _is_lost(self, topic_partition: TopicPartition, unmade: Unmade) -> bool:
        if unmade.is_new or self._log_manager.get_log(topic_partition) is not None:
            return False
        image = unmade.image
        assigned, is_in_sync = image.directory(self._broker_id), self._broker_id in image.isr
        if assigned == UNASSIGNED:  # nothing that was acknowledged can be in it
            starts_anew = image.leader_recovery_state == LEADER_RECOVERING
            return self._has_offline() and is_in_sync and not starts_anew
        if self._log_manager.dirs.has_online(assigned):
            return self._has_offline() and self.is_abandoned(topic_partition)
        has_others = len(image.replicas) > 1  # that may have what this one lost
        return self._has_offline() or (is_in_sync and assigned != MIGRATING and has_others)

    def _has_offline(self) -> bool:
        return not all(log_dir.is_online for log_dir in self._log_manager.dirs)

    def _place(self, topic_partition: TopicPartition, unmade: Unmade, directory_id: bytes) -> None:
        self._reports.place(unmade.topic.topic_id, topic_partition.partition, directory_id)
