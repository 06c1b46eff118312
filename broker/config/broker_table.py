"""Sheet of the broker's own settings: roles, sockets, quorum, topics, replication.

Names, types, defaults and ranges are Kafka's (4.3); the form is that of `config/types`. Read by
`config`. Defaults that differ on purpose, so that a broker without any settings starts:
process.roles, node.id, listeners, log.dir. Names that begin with `kraftrio.` are ours.
"""

from __future__ import annotations

CORE_SHEET = """\
# Roles and identity
process.roles | list | broker,controller | broker,controller | high
    What this process does: broker, controller, or both.
node.id | int | 1 | 0.. | high
    Number of this node, unique in the cluster.
broker.id | int | -1 | | high
    Older name of node.id; both must agree when both are set.
broker.rack | string | null | | medium
    Rack or zone of this broker, used to spread replicas.
initial.broker.registration.timeout.ms | int | 60000 | | medium
    How long a starting broker tries to register before it gives up.
broker.heartbeat.interval.ms | int | 2000 | | medium
    Time between two heartbeats of a broker to the controller.
broker.session.timeout.ms | int | 9000 | | medium
    A broker silent for this long is fenced by the controller.
controlled.shutdown.enable | boolean | true | | medium
    Move leadership away before this broker stops.
request.timeout.ms | int | 30000 | | high
    How long this node waits for answers to its own requests.
server.max.startup.time.ms | long | 9223372036854775807 | 0.. | medium | internal
    Longest time a start may take.
# Listeners and sockets
listeners | list | PLAINTEXT://localhost:9092 | | high | broker
    Addresses this node listens on, as NAME://host:port separated by commas.
advertised.listeners | list | null | | high
    Addresses that clients are to use; those of listeners when not set.
listener.security.protocol.map | string \
  | SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT | | low | broker
    Security protocol of each listener name, as NAME:PROTOCOL pairs.
inter.broker.listener.name | string | null | | medium
    Listener that brokers use among themselves.
security.inter.broker.protocol | string | PLAINTEXT | PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL | medium
    Security protocol among brokers when no listener name is given.
controller.listener.names | list | |  | high
    Names of the listeners of the controller role.
early.start.listeners | list | null | | high
    Listeners that accept connections before the broker is ready.
socket.request.max.bytes | int | 104857600 | 1.. | high
    Largest request accepted; a bigger one closes its connection.
socket.send.buffer.bytes | int | -1 | | high
    SO_SNDBUF of accepted sockets; -1 leaves the system's default.
socket.receive.buffer.bytes | int | 102400 | | high
    SO_RCVBUF of accepted sockets; -1 leaves the system's default.
socket.listen.backlog.size | int | 50 | 1.. | medium
    Length of the queue of connections not accepted yet; 512 when nobody sets it.
socket.connection.setup.timeout.ms | long | 10000 | | medium
    First limit on the time to connect to another node.
socket.connection.setup.timeout.max.ms | long | 30000 | | medium
    Upper limit on the time to connect to another node.
connections.max.idle.ms | long | 600000 | | medium
    A connection without requests for this long is closed.
connections.max.reauth.ms | long | 0 | | medium
    Longest life of an authenticated session; 0 means no limit.
connection.failed.authentication.delay.ms | int | 100 | 0.. | low
    Pause before a connection that failed to authenticate is closed.
max.connections | int | 2147483647 | 0.. | medium | cluster
    Most connections open at a time on this broker.
max.connections.per.ip | int | 2147483647 | 0.. | medium | cluster
    Most connections open at a time from one address.
max.connections.per.ip.overrides | string | |  | medium | cluster
    Limits for single addresses, as host:count pairs.
max.connection.creation.rate | int | 2147483647 | 0.. | medium | cluster
    Most connections accepted in a second.
num.network.threads | int | 3 | 1.. | high | cluster
    Kept for Kafka's sake: sockets are served by one event loop here.
num.io.threads | int | 8 | 1.. | high | cluster
    Kept for Kafka's sake: requests are served by one event loop here.
background.threads | int | 10 | 1.. | high | cluster
    Worker threads for background disk work.
queued.max.requests | int | 500 | 1.. | high
    Most requests waiting in the broker before reading pauses.
queued.max.request.bytes | long | 8388608 | | medium
    Memory of unfinished and waiting requests of all connections; -1 means no limit.
kraftrio.queued.max.response.bytes | long | 8388608 | | medium
    Memory of answers that clients have not taken, of all connections; -1 means no limit.
max.request.partition.size.limit | int | 2000 | 1.. | medium
    Most partitions answered in one DescribeTopicPartitions response.
kraftrio.max.inflight.requests.per.connection | int | 64 | 1.. | medium
    Requests of one connection in progress before its reading pauses.
kraftrio.max.decompressed.batch.bytes | int | 67108864 | 1024.. | medium
    Largest size a compressed batch may grow to when it must be opened.
kraftrio.shutdown.timeout.ms | int | 30000 | 0.. | medium
    Longest time a graceful stop may take.
# Metadata quorum
kraftrio.cluster.id | string | | | medium
    The cluster id that a new data directory gets; empty: made from the voters, or drawn by chance.
kraftrio.first.users.file | string | | | medium
    A file with the first users of a new cluster, a line for each as for `start --add-scram`.
controller.quorum.voters | list | |  | high
    The voters of the metadata quorum, as id@host:port separated by commas.
controller.quorum.bootstrap.servers | list | |  | high
    Addresses at which a node finds the metadata quorum.
controller.quorum.election.timeout.ms | int | 1000 | 0.. | high
    Time without a leader after which a voter stands for election.
controller.quorum.election.backoff.max.ms | int | 1000 | 0.. | high
    Longest wait before a lost election is tried again.
controller.quorum.fetch.timeout.ms | int | 2000 | 0.. | high
    Time without a successful fetch after which the leader is doubted.
controller.quorum.request.timeout.ms | int | 2000 | 0.. | medium
    How long quorum requests wait for their answers.
controller.quorum.retry.backoff.ms | int | 20 | 0.. | low
    Wait before a failed quorum request is sent again.
controller.quorum.append.linger.ms | int | 25 | 0.. | medium
    How long the quorum leader gathers records into one append.
controller.quorum.auto.join.enable | boolean | false | | low
    Whether a controller joins the voters by itself.
controller.quorum.fetch.max.bytes | int | 1048576 | 1.. | low
    Most bytes of one fetch of the metadata log.
controller.quorum.fetch.snapshot.max.bytes | int | 1048576 | 1.. | low
    Most bytes of one fetch of a metadata snapshot.
controller.socket.timeout.ms | int | 30000 | | medium
    Socket timeout of requests to the controller.
controller.performance.always.log.threshold.ms | long | 2000 | 0.. | medium | internal
    Controller events slower than this are logged.
controller.performance.sample.period.ms | long | 60000 | 100.. | medium | internal
    Time between two reports on the controller's speed.
metadata.log.dir | string | null | | high
    Folder of the metadata log; the first of log.dirs when not set.
metadata.log.segment.bytes | int | 1073741824 | 8388608.. | high
    Largest segment file of the metadata log.
metadata.log.segment.ms | long | 604800000 | | high
    Age at which a segment of the metadata log is rolled.
metadata.log.max.record.bytes.between.snapshots | long | 20971520 | 1.. | high
    Bytes of metadata records after which a snapshot is written.
metadata.log.max.snapshot.interval.ms | long | 3600000 | 0.. | high
    Time after which a snapshot is written if anything changed; 0 means never.
metadata.max.idle.interval.ms | int | 500 | 0.. | low
    How often an idle quorum leader writes a no-op record; 0 means never.
metadata.max.retention.bytes | long | 104857600 | | high
    Size of metadata log and snapshots beyond which the oldest go.
metadata.max.retention.ms | long | 604800000 | | high
    Age beyond which old metadata log and snapshots go.
internal.metadata.delete.delay.millis | long | 60000 | | low | internal
    Wait before deleted metadata files leave the disk.
internal.metadata.log.segment.bytes | int | null | | low | internal
    Segment size of the metadata log in tests.
internal.metadata.max.batch.size.in.bytes | int | 8388608 | | low | internal
    Largest batch of metadata records.
# Topics and log
auto.create.topics.enable | boolean | true | | high
    Create a missing topic when a client asks for it.
delete.topic.enable | boolean | true | | high
    Whether topics may be deleted.
num.partitions | int | 1 | 1.. | medium
    Partitions of a topic created without a count.
default.replication.factor | int | 1 | | medium
    Replicas of a topic created without a factor.
min.insync.replicas | int | 1 | 1.. | high | cluster
    Replicas that must be in sync for acks=all writes.
unclean.leader.election.enable | boolean | false | | high | cluster
    Let a replica outside the ISR lead, at the price of lost data.
unclean.leader.election.interval.ms | long | 300000 | 1.. | medium | internal
    Time between two checks for unclean elections.
auto.leader.rebalance.enable | boolean | true | | high
    Hand leadership back to preferred replicas from time to time.
leader.imbalance.check.interval.seconds | long | 300 | 1.. | high
    Time between two checks for leaders that are not preferred.
log.dir | list | ./kraftrio-data | | high
    Folder of the logs when log.dirs is not set.
log.dirs | list | null | | high
    Folders of the logs, separated by commas.
cordoned.log.dirs | list | |  | medium | broker
    Folders of log.dirs in which no new partitions are placed.
log.dir.failure.timeout.ms | long | 30000 | 1.. | low
    A broker stops when a failed folder cannot be reported for this long.
log.segment.bytes | int | 1073741824 | 1048576.. | high | cluster
    Largest segment file of a partition.
log.roll.ms | long | null | | high | cluster
    Age at which a segment is rolled; overrides log.roll.hours.
log.roll.hours | int | 168 | 1.. | high
    Age at which a segment is rolled.
log.roll.jitter.ms | long | null | | high | cluster
    Random time taken off the roll age; overrides log.roll.jitter.hours.
log.roll.jitter.hours | int | 0 | 0.. | high
    Random time taken off the roll age.
log.retention.ms | long | null | | high | cluster
    Age at which a segment is deleted; -1 means never. Overrides the minutes and hours.
log.retention.minutes | int | null | | high
    Age at which a segment is deleted; overrides log.retention.hours.
log.retention.hours | int | 168 | | high
    Age at which a segment is deleted.
log.retention.bytes | long | -1 | | high | cluster
    Size of a partition beyond which its oldest segments go; -1 means no limit.
log.retention.check.interval.ms | long | 300000 | 1.. | medium
    Time between two looks for segments to delete.
log.cleanup.policy | list | delete | compact,delete | medium | cluster
    What happens to old segments: delete, compact, both, or nothing.
log.segment.delete.delay.ms | long | 60000 | 0.. | high | cluster
    Wait before a deleted segment's files leave the disk.
log.index.interval.bytes | int | 4096 | 0.. | medium | cluster
    Bytes of log between two entries of the offset index.
log.index.size.max.bytes | int | 10485760 | 4.. | medium | cluster
    Largest offset index of a segment.
log.preallocate | boolean | false | | medium | cluster
    Reserve the whole file when a segment is created.
log.flush.interval.messages | long | 9223372036854775807 | 1.. | high | cluster
    Records after which a log is forced to disk.
log.flush.interval.ms | long | null | | high | cluster
    Age at which unwritten records are forced to disk.
log.flush.scheduler.interval.ms | long | 9223372036854775807 | | high
    Time between two looks for logs to force to disk.
log.flush.offset.checkpoint.interval.ms | int | 60000 | 0.. | high
    Time between two writes of the recovery points.
log.flush.start.offset.checkpoint.interval.ms | int | 60000 | 0.. | high
    Time between two writes of the log start offsets.
log.initial.task.delay.ms | long | 30000 | 0.. | low | internal
    Wait after the start before background log work begins.
log.message.timestamp.type | string | CreateTime | CreateTime,LogAppendTime | medium | cluster
    Whose clock stamps a record: CreateTime or LogAppendTime.
log.message.timestamp.before.max.ms | long | 9223372036854775807 | 0.. | medium | cluster
    How far a record's time may lie behind the broker's.
log.message.timestamp.after.max.ms | long | 3600000 | 0.. | medium | cluster
    How far a record's time may lie ahead of the broker's.
log.local.retention.ms | long | -2 | -2.. | medium | cluster
    Age of segments kept locally with tiered storage; -2 follows log.retention.ms.
log.local.retention.bytes | long | -2 | -2.. | medium | cluster
    Size kept locally with tiered storage; -2 follows log.retention.bytes.
message.max.bytes | int | 1048588 | 0.. | high | cluster
    Largest batch of records accepted.
compression.type | string | producer | uncompressed,zstd,lz4,snappy,gzip,producer | high | cluster
    Codec of stored batches; producer keeps what the producer chose.
compression.gzip.level | int | -1 | -1,1..9 | medium | cluster
    Level used when the broker itself compresses with gzip.
compression.lz4.level | int | 9 | 1..17 | medium | cluster
    Level used when the broker itself compresses with lz4.
compression.zstd.level | int | 3 | -131072..22 | medium | cluster
    Level used when the broker itself compresses with zstd.
log.cleaner.enable | boolean | true | | medium
    Run the compaction of compacted topics.
log.cleaner.threads | int | 1 | 0.. | medium | cluster
    Threads of the compaction.
log.cleaner.backoff.ms | long | 15000 | 0.. | medium | cluster
    Wait of the compaction when nothing is to be cleaned.
log.cleaner.dedupe.buffer.size | long | 134217728 | | medium | cluster
    Memory for the compaction's table of keys.
log.cleaner.io.buffer.load.factor | double | 0.9 | | medium | cluster
    How full the compaction's table of keys may get.
log.cleaner.io.buffer.size | int | 524288 | 0.. | medium | cluster
    Memory for the compaction's reads and writes.
log.cleaner.io.max.bytes.per.second | double | 1.7976931348623157E308 | | medium | cluster
    Limit on the compaction's reads and writes together.
log.cleaner.min.cleanable.ratio | double | 0.5 | 0..1 | medium | cluster
    Share of uncompacted log at which compaction starts.
log.cleaner.min.compaction.lag.ms | long | 0 | 0.. | medium | cluster
    Time during which a record is not compacted.
log.cleaner.max.compaction.lag.ms | long | 9223372036854775807 | 1.. | medium | cluster
    Time after which a record must be compacted.
log.cleaner.delete.retention.ms | long | 86400000 | 0.. | medium | cluster
    How long delete markers stay in a compacted log.
num.recovery.threads.per.data.dir | int | 2 | 1.. | high | cluster
    Threads that load and flush the logs of one folder.
fetch.max.bytes | int | 57671680 | 1024.. | medium
    Most bytes of one fetch response.
max.incremental.fetch.session.cache.slots | int | 1000 | 0.. | medium
    Most incremental fetch sessions kept.
create.topic.policy.class.name | class | null | | low
    Java class that judges new topics; not supported here.
alter.config.policy.class.name | class | null | | low
    Java class that judges changed settings; not supported here.
# Replication
num.replica.fetchers | int | 1 | 1.. | high | cluster
    Fetching tasks for each leader broker.
replica.fetch.min.bytes | int | 1 | | high
    Bytes a leader waits for before it answers a follower.
replica.fetch.max.bytes | int | 1048576 | 0.. | medium
    Bytes asked for each partition in a follower's fetch.
replica.fetch.response.max.bytes | int | 10485760 | 0.. | medium
    Bytes asked for a whole follower's fetch.
replica.fetch.wait.max.ms | int | 500 | | high
    Longest wait of a follower's fetch at the leader.
replica.fetch.backoff.ms | int | 1000 | 0.. | medium
    Wait of a follower after a failed fetch.
replica.lag.time.max.ms | long | 30000 | | high
    A follower behind for this long leaves the ISR.
replica.socket.timeout.ms | int | 30000 | | high
    Socket timeout of a follower's requests.
replica.socket.receive.buffer.bytes | int | 65536 | | high
    SO_RCVBUF of a follower's sockets.
replica.high.watermark.checkpoint.interval.ms | long | 5000 | | high
    Time between two writes of the high watermarks.
replica.selector.class | string | null | | medium
    How a replica near the consumer is chosen for its reads: by the leader, or by its rack.
num.replica.alter.log.dirs.threads | int | null | | high
    Threads that move replicas between folders.
producer.purgatory.purge.interval.requests | int | 1000 | | medium
    Kept for Kafka's sake: waiting requests free themselves here.
fetch.purgatory.purge.interval.requests | int | 1000 | | medium
    Kept for Kafka's sake: waiting requests free themselves here.
delete.records.purgatory.purge.interval.requests | int | 1 | | medium
    Kept for Kafka's sake: waiting requests free themselves here.
follower.fetch.last.tiered.offset.enable | boolean | false | | medium | cluster
    Let a new follower start at the last tiered offset.
"""
