"""All partition replicas of this broker: builds their parts and connects them.

The parts:
- `hosted`: the replicas by topic and partition, and which requests each may serve;
- `led`: appends to partitions led here, and waiting for commits;
- `reads`, `deletions`: reads of a replica's log and deletions of records, for handlers;
- `isrs`: followers' fetches, and the ISRs that follow from them;
- `follower_writes`: what the fetchers do to the logs that follow;
- `metadata_changes`: applies what the controller decided, through `roles` to each replica;
- `traffics`: what came and went, by topic;
- `disk_errors`, `failures`: what a failing disk means for a request, and for a log directory.

Rules: `PartitionState` decides (role, ISR, high watermark) and `PartitionLog` stores the bytes; a
part that calls both does so without an await in between, so that nothing changes between a check
and the act that it allows. Each part is given what it needs here, and none knows this class.
"""

from __future__ import annotations

from kraftrio.base.clock import Clock
from kraftrio.base.statistics import Statistics
from kraftrio.base.timers import Timers
from kraftrio.broker.log.manager.log_manager import LogManager
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.replica.append_gate import OpenGate
from kraftrio.broker.replica.directories.disk_errors import DiskErrors
from kraftrio.broker.replica.directories.failed_directories import FailedDirectories
from kraftrio.broker.replica.directories.full_directories import FullDirectories
from kraftrio.broker.replica.directories.unmade_logs import UnmadeLogs
from kraftrio.broker.replica.follower_writes import FollowerWrites
from kraftrio.broker.replica.hosted_replicas import HostedReplicas
from kraftrio.broker.replica.isr.isr_keeper import IsrKeeper
from kraftrio.broker.replica.led_partitions import LedPartitions
from kraftrio.broker.replica.metadata_changes import MetadataChanges
from kraftrio.broker.replica.partition import Partition
from kraftrio.broker.replica.ports import DirectoryReports, FetcherManager, IsrProposer
from kraftrio.broker.replica.record_deletions import RecordDeletions
from kraftrio.broker.replica.replica_reads import ReplicaReads
from kraftrio.broker.replica.replica_roles import ReplicaRoles
from kraftrio.broker.replica.settings import ReplicaSettings
from kraftrio.broker.replica.traffic import Traffics
from kraftrio.wire.primitives import TopicPartition


class ReplicaManager:
    """See the module.

    Args:
        proposals: the way of new ISRs to the controller.
        directory_reports: the way of the replicas' log directories to the controller.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        log_manager: LogManager,
        metadata: MetadataCache,
        timers: Timers,
        clock: Clock,
        proposals: IsrProposer,
        directory_reports: DirectoryReports,
    ) -> None:
        self.settings = settings
        self.log_manager = log_manager
        partitions: dict[TopicPartition, Partition] = {}
        self.isrs = IsrKeeper(partitions, timers, clock, settings.lag_time_max_ms, proposals)
        self._fetchers = FullDirectories(log_manager, timers, self.isrs.resign)
        self.disk_errors = DiskErrors(log_manager, clock, self._fetchers.on_no_space)
        self.unmade = UnmadeLogs(settings.broker_id, log_manager, directory_reports)
        self.roles = ReplicaRoles(self._fetchers, self.isrs, self.disk_errors, clock)
        self.traffics = Traffics()
        self.hosted = HostedReplicas(
            settings, partitions, self.unmade, self.roles, metadata, clock, self.traffics
        )
        self.reads = ReplicaReads(self.disk_errors)
        self.deletions = RecordDeletions(self.disk_errors, timers)
        self.led = LedPartitions(
            OpenGate(),
            partitions,
            self.hosted,
            self.unmade,
            self.reads,
            self.disk_errors,
            timers,
            clock,
        )
        self.follower_writes = FollowerWrites(
            self.hosted, log_manager, metadata, self.disk_errors, clock
        )
        self.metadata_changes = MetadataChanges(
            settings,
            self.hosted,
            self.unmade,
            self.roles,
            log_manager,
            self.disk_errors,
            timers,
            clock,
        )
        self.failures = FailedDirectories(partitions, self.unmade, self._fetchers)
        log_manager.on_lost = self.failures.go_offline

    def fetch_with(self, fetchers: FetcherManager) -> None:
        """Use these fetchers for what is followed here; called before the first metadata."""
        self._fetchers.fetchers = fetchers

    def statistics(self) -> Statistics:
        """How many replicas are in which state, and how often ISRs have changed."""
        states = [partition.state for partition in self.hosted.partitions()]
        led = [state for state in states if state.is_leader]
        return {
            "partitions": len(states),
            "leader_partitions": len(led),
            "under_replicated_partitions": sum(
                len(state.isr.committed) < len(state.replicas) for state in led
            ),
            "under_min_isr_partitions": sum(state.is_under_min_isr for state in led),
            "offline_partitions": len(self.failures.offline_partitions()),
            "partitions_without_log": len(self.unmade),
            "isr_expands_total": self.isrs.expand_count,
            "isr_shrinks_total": self.isrs.shrink_count,
        }
