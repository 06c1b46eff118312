"""Makes one replica what the controller decided: leader, follower, or gone.

Owns: `ReplicaRoles`. The partition's state takes over the decision (`PartitionState.apply`); what
follows from it is done here, in this order: the log records a new leader epoch, fetching starts or
stops, requests that wait in vain are answered, and the high watermark may advance.

Called by `hosted_replicas` (a new log), `metadata_changes` and `moves`.
"""

from __future__ import annotations

from kraftrio.base.clock import Clock
from kraftrio.broker.log.partition.partition_log import PartitionLog
from kraftrio.broker.replica.directories.disk_errors import DiskErrors
from kraftrio.broker.replica.isr.isr_keeper import IsrKeeper
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.ports import FetcherManager
from kraftrio.broker.replica.state.partition_state import Role
from kraftrio.kraft_meta.metadata.image import NO_LEADER, PartitionImage
from kraftrio.wire.errors import ErrorCode


class ReplicaRoles:
    """See the module."""

    def __init__(
        self, fetchers: FetcherManager, isrs: IsrKeeper, disk_errors: DiskErrors, clock: Clock
    ) -> None:
        self._fetchers = fetchers
        self._isrs = isrs
        self._disk_errors = disk_errors
        self._clock = clock

    def apply(self, partition: Partition, image: PartitionImage) -> None:
        """Take over what the controller decided."""
        state, log = partition.state, partition.log
        was_leader = state.is_leader
        if was_leader:
            partition.notify_followers(0)  # they may have left the ISR
        now_ms = self._clock.monotonic_ms()
        if state.apply(image, log.log_end_offset, now_ms):
            if state.is_leader:
                self._lead(partition)
            else:
                self._follow(partition)
        partition.drop_watches()
        if was_leader and not state.is_leader:
            partition.abandon(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if state.advance_high_watermark(now_ms):
            partition.publish_high_watermark()
        partition.check_low_watermark()
        partition.check_confirmations()

    def serve_from(self, partition: Partition, log: PartitionLog) -> None:
        """Another log, equal to the one so far, takes its place: it has moved."""
        partition.serve_from(log)
        if partition.state.role is Role.FOLLOWER:
            self._follow(partition)

    def retire(self, partition: Partition, code: ErrorCode) -> None:
        """The replica is being removed; `code` answers the requests that wait on it."""
        self._fetchers.stop(partition.topic_partition)
        partition.state.resign()
        partition.abandon(code)
        self._disk_errors.forget(partition.topic_partition)

    def _lead(self, partition: Partition) -> None:
        """A leader epoch begins in which this broker leads."""
        self._fetchers.stop(partition.topic_partition)
        try:
            partition.log.start_leader_epoch(partition.state.leader_epoch)
        except OSError as error:
            # The log knows the epoch, and saves it before it calls anything of it durable.
            self._disk_errors.report(partition.topic_partition, "save the leader epoch", error)
        partition.start_to_lead()
        if not partition.state.is_sole_replica:
            self._isrs.start()

    def _follow(self, partition: Partition) -> None:
        """A leader epoch begins in which another broker leads, or none."""
        partition.wake_fetches()
        tp, state = partition.topic_partition, partition.state
        if state.leader_id == NO_LEADER:
            self._fetchers.stop(tp)
        else:
            self._fetchers.follow(tp, partition.topic_id, state.leader_id, state.leader_epoch)
