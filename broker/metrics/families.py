"""Every metric that /metrics shows: its name, what it says, whose figure it is, and which JMX bean
of Apache Kafka it stands for.

Owns the sheet. `docs/reference/metrics.md` is made from it, and a test holds it against
what the shells really say. Three lines a metric, under the source that its figure comes from:

    name | kind | labels | figure
        The bean that shows this of Apache Kafka, or what comes nearest to it; `-`: nothing does.
        What it says.

A name is without the prefix `kraftrio_`, by Prometheus' rules: base units, `_total` for counters.
The figure is a key of the source's `statistics()` or `labelled_statistics()`; one whose unit is
nanoseconds or milliseconds is shown in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

PREFIX: Final = "kraftrio_"


class MetricType(Enum):
    """What a metric is to Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """One line of the sheet.

    Attributes:
        scale: what the figure is multiplied by.
    """

    name: str
    kind: MetricType
    labels: tuple[str, ...]
    source: str
    figure: str
    bean: str
    help: str
    scale: float = 1.0


_SHEET = """\
[requests]
request_seconds | histogram | api | nanoseconds
    kafka.network:type=RequestMetrics,name=TotalTimeMs,request=*
    Time of requests, from the arrival of their bytes until the socket has taken the answer.
request_stage_seconds | histogram | api, stage | stage_nanoseconds
    kafka.network:type=RequestMetrics,name={Queue,Local,Remote,Send}TimeMs,request=*
    Where that time went: queue, local (handling), remote (waiting), send.
request_errors_total | counter | api, error | errors_total
    kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=*,error=*
    Error codes in answers; NONE is not counted.
request_size_bytes | histogram | api | request_bytes
    kafka.network:type=RequestMetrics,name=RequestBytes,request=*
    Size of requests.
response_size_bytes | histogram | api | response_bytes
    kafka.network:type=RequestMetrics,name=ResponseBytes,request=*
    Size of answers.
[connections]
connections | gauge | listener | connections
    kafka.server:type=socket-server-metrics,name=connection-count
    Open connections of clients and other nodes.
connections_accepted_total | counter | listener | connections_accepted_total
    kafka.server:type=socket-server-metrics,name=connection-creation-total
    Connections that were accepted.
connections_refused_total | counter | listener | connections_refused_total
    -
    Connections that were refused for max.connections.per.ip.
received_bytes_total | counter | listener | received_bytes_total
    kafka.server:type=socket-server-metrics,name=incoming-byte-total
    Bytes that came in, of everything.
sent_bytes_total | counter | listener | sent_bytes_total
    kafka.server:type=socket-server-metrics,name=outgoing-byte-total
    Bytes that sockets have taken, of everything.
[memory]
queued_request_bytes | gauge |  | request_bytes
    kafka.network:type=RequestChannel,name=RequestQueueSize
    Memory of requests that are not whole, or not handled (queued.max.request.bytes bounds it).
requests_waiting_for_memory | gauge |  | requests_waiting_for_memory
    kafka.server:type=socket-server-metrics,name=MemoryPoolDepletedTimeTotal
    Connections whose requests wait for that memory.
queued_response_bytes | gauge |  | response_bytes
    kafka.network:type=RequestChannel,name=ResponseQueueSize
    Memory of answers that sockets have not taken.
responses_waiting_for_memory | gauge |  | responses_waiting_for_memory
    -
    Connections whose answers wait for that memory.
[topics]
topic_records_in_total | counter | topic | records_in_total
    kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=*
    Records appended to partitions led here.
topic_bytes_in_total | counter | topic | bytes_in_total
    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=*
    Bytes of these, compressed as they came.
topic_records_out_total | counter | topic | records_out_total
    -
    Records given to consumers, from the offset that each asked for on.
topic_bytes_out_total | counter | topic | bytes_out_total
    kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic=*
    Bytes of record batches given to consumers.
topic_replication_bytes_in_total | counter | topic | replication_bytes_in_total
    kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec
    Bytes copied from the leaders of partitions followed here.
topic_replication_bytes_out_total | counter | topic | replication_bytes_out_total
    kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec
    Bytes given to followers of partitions led here.
[logs]
log_size_bytes | gauge | topic, partition | size_bytes
    kafka.log:type=Log,name=Size,topic=*,partition=*
    Size of a replica's segments on this broker.
log_start_offset | gauge | topic, partition | log_start_offset
    kafka.log:type=Log,name=LogStartOffset,topic=*,partition=*
    First offset of a replica's log.
log_end_offset | gauge | topic, partition | log_end_offset
    kafka.log:type=Log,name=LogEndOffset,topic=*,partition=*
    Offset of the record that comes next.
log_segments | gauge | topic, partition | segments
    kafka.log:type=Log,name=NumLogSegments,topic=*,partition=*
    Segments of a replica's log.
[replicas]
replicas | gauge |  | partitions
    kafka.server:type=ReplicaManager,name=PartitionCount
    Replicas on this broker that have a log.
leader_replicas | gauge |  | leader_partitions
    kafka.server:type=ReplicaManager,name=LeaderCount
    Partitions led here.
under_replicated_partitions | gauge |  | under_replicated_partitions
    kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions
    Partitions led here whose ISR lacks a replica.
under_min_isr_partitions | gauge |  | under_min_isr_partitions
    kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount
    Partitions led here that take no acks=all writes: fewer in the ISR than min.insync.replicas.
offline_replicas | gauge |  | offline_partitions
    kafka.server:type=ReplicaManager,name=OfflineReplicaCount
    Replicas in log directories that failed.
replicas_without_log | gauge |  | partitions_without_log
    -
    Replicas whose log is not made yet.
isr_expands_total | counter |  | isr_expands_total
    kafka.server:type=ReplicaManager,name=IsrExpandsPerSec
    Followers that came into an ISR of a partition led here.
isr_shrinks_total | counter |  | isr_shrinks_total
    kafka.server:type=ReplicaManager,name=IsrShrinksPerSec
    Followers that left an ISR of a partition led here.
[client quotas]
client_quota_waits_total | counter |  | muted_total
    kafka.server:type={Produce,Fetch,Request},user=*,client-id=* throttle-time
    How often a client had to wait, with its connection muted, because of its quota.
client_quota_producers | gauge |  | producers
    kafka.server:type=Produce,user=*,client-id=* byte-rate
    Clients with a quota of produced bytes that are measured now.
client_quota_consumers | gauge |  | consumers
    kafka.server:type=Fetch,user=*,client-id=* byte-rate
    The same of consumed bytes.
client_quota_requesters | gauge |  | requesters
    kafka.server:type=Request,user=*,client-id=* request-time
    The same of time that requests take.
[fetchers]
fetched_leaders | gauge |  | leaders
    -
    Brokers that this one follows.
fetched_partitions | gauge |  | partitions
    -
    Partitions that it follows there.
replica_max_lag_records | gauge |  | max_lag_records
    kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica
    How far the slowest replica here is behind its leader's high watermark.
[replica lag]
replica_lag_records | gauge | topic, partition | lag_records
    kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=*,topic=*,partition=*
    How far a replica here is behind its leader's high watermark.
[quorum]
quorum_leader_id | gauge |  | current_leader
    kafka.server:type=raft-metrics,name=current-leader
    The active controller's node id, -1: unknown.
quorum_epoch | gauge |  | current_epoch
    kafka.server:type=raft-metrics,name=current-epoch
    The quorum's leader epoch.
quorum_vote_id | gauge |  | current_vote
    kafka.server:type=raft-metrics,name=current-vote
    Whom this node voted for in that epoch, -1: nobody.
quorum_voters | gauge |  | voters
    kafka.server:type=raft-metrics,name=number-of-voters
    Voters of the quorum.
active_controller | gauge |  | active_controller_count
    kafka.controller:type=KafkaController,name=ActiveControllerCount
    1 on the node that is the active controller.
metadata_log_end_offset | gauge |  | log_end_offset
    kafka.server:type=raft-metrics,name=log-end-offset
    End of the metadata log here.
metadata_high_watermark | gauge |  | high_watermark
    kafka.server:type=raft-metrics,name=high-watermark
    Committed end of the metadata log, as known here.
metadata_applied_offset | gauge |  | applied_offset
    kafka.server:type=broker-metadata-metrics,name=last-applied-record-offset
    How far this node acts by the metadata.
controller_parked_responses | gauge |  | parked_responses
    kafka.controller:type=ControllerEventManager,name=EventQueueSize
    Decisions of the active controller that wait for their commit.
metadata_appended_records_total | counter |  | appended_records_total
    kafka.server:type=raft-metrics,name=append-records-rate
    Records appended to the metadata log.
metadata_appended_bytes_total | counter |  | appended_bytes_total
    -
    Bytes of these.
metadata_snapshots_written_total | counter |  | snapshots_written_total
    -
    Snapshots of the metadata that this node wrote.
metadata_snapshots_installed_total | counter |  | snapshots_installed_total
    -
    Snapshots that it took from another node.
quorum_leader_changes_total | counter |  | leader_changes_total
    kafka.controller:type=KafkaController,name=NewActiveControllersCount
    Changes of the quorum's leader or epoch, as seen here.
[cluster]
cluster_brokers | gauge |  | active_brokers
    kafka.controller:type=KafkaController,name=ActiveBrokerCount
    Brokers that are registered and not fenced.
cluster_fenced_brokers | gauge |  | fenced_brokers
    kafka.controller:type=KafkaController,name=FencedBrokerCount
    Brokers that are registered and fenced.
cluster_topics | gauge |  | topics
    kafka.controller:type=KafkaController,name=GlobalTopicCount
    Topics of the cluster.
cluster_partitions | gauge |  | partitions
    kafka.controller:type=KafkaController,name=GlobalPartitionCount
    Partitions of the cluster.
cluster_offline_partitions | gauge |  | offline_partitions
    kafka.controller:type=KafkaController,name=OfflinePartitionsCount
    Partitions without a leader.
cluster_under_replicated_partitions | gauge |  | under_replicated_partitions
    -
    Partitions whose ISR lacks a replica, by the metadata.
cluster_preferred_replica_imbalance | gauge |  | not_preferred_leaders
    kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount
    Partitions that another replica than the first leads.
cluster_reassigning_partitions | gauge |  | reassigning_partitions
    kafka.server:type=ReplicaManager,name=ReassigningPartitions
    Partitions whose replicas are being changed.
leader_elections_total | counter |  | leader_elections_total
    kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs
    Leaders of partitions that changed, as seen here.
unclean_leader_elections_total | counter |  | unclean_leader_elections_total
    kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec
    Of these, to a replica that was not in the ISR.
[controller client]
controller_requests_total | counter |  | requests_total
    -
    Requests to the active controller.
controller_requests_waiting | gauge |  | waiting_requests
    kafka.server:type=NodeToControllerChannelManager,name=RequestQueueSize
    Of these, those that wait for a controller to be known.
controller_requests_unanswered | gauge |  | unanswered_requests
    kafka.server:type=NodeToControllerChannelManager,name=UnsentRequestCount
    Of these, those that have no answer yet.
controller_request_timeouts_total | counter |  | timeouts_total
    -
    Of these, those that no answer came to in time.
controller_lost_answers_total | counter |  | lost_answers_total
    -
    Of these, those whose connection ended first.
controller_connections_total | counter |  | connections_total
    -
    Connections made to controllers.
[upkeep]
log_flush_runs_total | counter |  | flushes_total
    -
    Flushes of logs in the background.
log_checkpoint_writes_total | counter |  | checkpoint_writes_total
    -
    Checkpoint files written.
log_segments_deleted_total | counter |  | segments_deleted_total
    -
    Segments deleted by retention.
log_cleaner_logs_total | counter |  | logs_cleaned_total
    -
    Compactions of a log.
log_cleaner_read_bytes_total | counter |  | cleaner_read_bytes_total
    kafka.log:type=LogCleaner,name=cleaner-recopy-percent
    Bytes that the compaction has read.
log_cleaner_written_bytes_total | counter |  | cleaner_written_bytes_total
    kafka.log:type=LogCleaner,name=cleaner-recopy-percent
    Bytes that it has kept of these.
log_cleaner_seconds_total | counter |  | cleaner_busy_ms_total
    kafka.log:type=LogCleaner,name=max-clean-time-secs
    Time that it worked.
log_cleaner_uncleanable_partitions | gauge |  | uncleanable_partitions
    kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count
    Partitions that it has given up, until somebody looks at them.
[flushes]
log_flush_seconds | histogram |  | sync_nanoseconds
    kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs
    Time of each sync of a file to its disk, of all logs.
[disks]
log_directory_free_bytes | gauge | directory | free_bytes
    -
    Space that is left to this user on the disk of a log directory.
log_directory_size_bytes | gauge | directory | total_bytes
    -
    Size of that disk.
log_directory_online | gauge | directory | online
    kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory=*
    1 while the log directory is in use, 0 once it has failed.
[groups]
group_coordinator_partitions | gauge |  | partitions
    kafka.server:type=group-coordinator-metrics,name=partition-count,state=*
    Partitions of __consumer_offsets coordinated here.
group_coordinator_loading_partitions | gauge |  | loading_partitions
    kafka.server:type=group-coordinator-metrics,name=partition-count,state=loading
    Of these, those that are being loaded.
group_coordinator_failed_partitions | gauge |  | failed_partitions
    kafka.server:type=group-coordinator-metrics,name=partition-count,state=failed
    Of these, those that could not be loaded.
[group kinds]
groups | gauge | type, state | groups
    kafka.server:type=group-coordinator-metrics,name=group-count,protocol=*
    Groups coordinated here, by kind and state.
[group members]
group_members | gauge | group | members
    -
    Members of a group coordinated here.
[group events]
group_rebalances_total | counter | type | rebalances_total
    kafka.server:type=group-coordinator-metrics,name=group-completed-rebalance-count
    Rebalances of groups coordinated here: generations begun, or new target assignments.
group_members_expired_total | counter | type | expired_total
    -
    Members removed because their heartbeats stayed away.
[group lag]
group_lag_records | gauge | group, topic, partition | lag_records
    kafka.consumer:type=consumer-fetch-manager-metrics,name=records-lag
    Records between a group's committed offset and the high watermark; of groups coordinated here.
group_committed_offset | gauge | group, topic, partition | committed_offset
    -
    The offset that a group has committed.
[transactions]
transaction_coordinator_partitions | gauge |  | partitions
    -
    Partitions of __transaction_state coordinated here.
transaction_coordinator_loading_partitions | gauge |  | loading_partitions
    -
    Of these, those that are being loaded.
transaction_coordinator_failed_partitions | gauge |  | failed_partitions
    -
    Of these, those that could not be loaded.
[transactional ids]
transactional_ids | gauge |  | transactional_ids
    -
    Transactional ids coordinated here.
transactions_changing | gauge |  | moves
    -
    Of these, those whose change is not committed yet.
[markers]
transactions_ending | gauge |  | pending_transactions
    kafka.server:type=TransactionMarkerChannelManager,name=UnknownDestinationQueueSize
    Transactions that are decided, whose markers are not all written.
transaction_marker_busy_brokers | gauge |  | busy_brokers
    -
    Brokers that are being sent markers.
transaction_marker_requests_total | counter |  | requests_total
    -
    Requests with markers.
transaction_markers_written_total | counter |  | markers_written_total
    -
    Markers that were written.
transaction_markers_retried_total | counter |  | markers_retried_total
    -
    Markers that had to be sent again.
transaction_markers_skipped_total | counter |  | markers_skipped_total
    -
    Markers for partitions that are gone.
transactions_fenced_total | counter |  | fenced_transactions_total
    -
    Transactions whose coordinator was replaced before they ended.
[verification]
transaction_verifications_total | counter |  | questions_total
    kafka.server:type=AddPartitionsToTxnManager,name=VerificationTimeMs
    Partitions of which it was asked whether they belong to a transaction.
transaction_verifications_unanswered_total | counter |  | unanswered_requests_total
    kafka.server:type=AddPartitionsToTxnManager,name=VerificationFailureRate
    Such requests that were never answered.
transaction_verification_busy_brokers | gauge |  | brokers_being_asked
    -
    Coordinators that are being asked.
[share coordinator]
share_coordinator_partitions | gauge |  | partitions
    kafka.server:type=share-coordinator-metrics,name=num-partitions,state=*
    Partitions of __share_group_state coordinated here.
share_coordinator_loading_partitions | gauge |  | loading_partitions
    -
    Of these, those that are being loaded.
share_coordinator_failed_partitions | gauge |  | failed_partitions
    -
    Of these, those that could not be loaded.
[share partitions]
share_partitions | gauge |  | share_partitions
    kafka.server:type=SharePartitionMetrics,name=*
    Share partitions whose records are handed out here.
share_sessions | gauge |  | share_sessions
    kafka.server:type=ShareSessionCache,name=ShareSessionsCount
    Share sessions of consumers.
share_records_in_flight | gauge |  | records_in_flight
    kafka.server:type=SharePartitionMetrics,name=InFlightMessageCount
    Records that are with a consumer, or come back from one.
share_fetches_waiting | gauge |  | waiting_share_fetches
    kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=ShareFetch
    Share fetches that wait for records.
[share state client]
share_state_busy_lanes | gauge |  | busy_lanes
    -
    Share coordinators that are being asked.
share_state_questions_waiting | gauge |  | waiting_questions
    -
    Questions to them that have no answer yet.
share_state_requests_total | counter |  | requests_total
    -
    Requests to them.
share_state_retries_total | counter |  | retries_total
    -
    Of these, those that were sent again.
share_state_given_up_total | counter |  | given_up_total
    -
    Questions that were given up.
[links]
broker_links | gauge | use | brokers
    -
    Other brokers that this one may send requests to, by what they are about.
broker_link_unanswered_requests | gauge | use | unanswered_requests
    -
    Such requests that have no answer yet.
broker_link_requests_total | counter | use | requests_total
    -
    Such requests.
broker_link_failures_total | counter | use | failures_total
    -
    Of these, those that were lost with their connection.
[event loop]
event_loop_delay_seconds | histogram |  | delay_nanoseconds
    kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent
    How late the event loop came to a timer that is due every tenth of a second.
event_loop_stalls_total | counter |  | stalls_total
    -
    Turns of it that took longer than a stall may (they are in the log, with what held it).
event_loop_tasks | gauge |  | tasks
    -
    Tasks of the process.
[registry]
metrics_left_out_series | gauge | family | left_out_series
    -
    Series that are not shown because their family has more than metrics.max.series.
node_info | gauge | node_id, version, roles | info
    kafka.server:type=app-info
    1; says which node this is.
"""


def _parse(sheet: str) -> Iterator[Family]:
    source = ""
    lines = iter(sheet.splitlines())
    for line in lines:
        if line.startswith("["):
            source = line.strip("[]")
            continue
        name, kind, labels, figure = (part.strip() for part in line.split("|"))
        bean = next(lines).strip()
        scale = 1.0
        if "nanoseconds" in figure:
            scale = 1e-9
        elif figure.removesuffix("_total").endswith("_ms"):
            scale = 1e-3
        yield Family(
            PREFIX + name,
            MetricType(kind),
            tuple(label.strip() for label in labels.split(",") if label.strip()),
            source,
            figure,
            "" if bean == "-" else bean,
            next(lines).strip(),
            scale,
        )


FAMILIES: Final[tuple[Family, ...]] = tuple(_parse(_SHEET))
"""All of them, in the order of the sheet."""
