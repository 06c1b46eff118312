"""Sheet of the broker's settings for groups, offsets and transactions.

Names, types, defaults and ranges are Kafka's (4.3); the form is that of `config/types`. Read by
`config`; what they must be to each other is checked in `group_checks`.
"""

from __future__ import annotations

GROUP_SHEET = """\
# Groups and offsets
group.coordinator.rebalance.protocols | list | classic,consumer,streams \
  | consumer,classic,share,streams | medium
    Group protocols that are served.
group.coordinator.threads | int | 4 | 1.. | high
    Threads of the group coordinator.
group.coordinator.background.threads | int | 2 | 1.. | high
    Background threads of the group coordinator.
group.coordinator.append.linger.ms | int | -1 | -1.. | medium
    How long the coordinator gathers writes; -1 lets it choose.
group.coordinator.cached.buffer.max.bytes | int | 1048588 | 524288.. | medium | cluster
    Largest write buffer the coordinator keeps.
group.initial.rebalance.delay.ms | int | 3000 | | medium
    Wait for more members before a new classic group's first rebalance.
group.min.session.timeout.ms | int | 6000 | | medium
    Smallest session timeout a classic member may ask for.
group.max.session.timeout.ms | int | 1800000 | | medium
    Largest session timeout a classic member may ask for.
group.max.size | int | 2147483647 | 1.. | medium
    Most members of a classic group.
group.consumer.assignors | list | uniform,range | | medium
    Assignors of consumer groups, the first is the default.
group.consumer.assignment.interval.ms | int | 1000 | 0.. | medium | cluster
    Least time between two assignments of a consumer group.
group.consumer.min.assignment.interval.ms | int | 0 | 0.. | medium
    Smallest assignment interval a group may set.
group.consumer.max.assignment.interval.ms | int | 15000 | 0.. | medium
    Largest assignment interval a group may set.
group.consumer.heartbeat.interval.ms | int | 5000 | 1.. | medium
    Heartbeat interval given to members of consumer groups.
group.consumer.min.heartbeat.interval.ms | int | 5000 | 1.. | medium
    Smallest heartbeat interval a consumer group may set.
group.consumer.max.heartbeat.interval.ms | int | 15000 | 1.. | medium
    Largest heartbeat interval a consumer group may set.
group.consumer.session.timeout.ms | int | 45000 | 1.. | medium
    A member of a consumer group silent for this long is removed.
group.consumer.min.session.timeout.ms | int | 45000 | 1.. | medium
    Smallest session timeout a consumer group may set.
group.consumer.max.session.timeout.ms | int | 60000 | 1.. | medium
    Largest session timeout a consumer group may set.
group.consumer.max.size | int | 2147483647 | 1.. | medium
    Most members of a consumer group.
group.consumer.migration.policy | string | bidirectional \
  | ~disabled,downgrade,upgrade,bidirectional | medium
    Which way groups may change between classic and consumer protocol.
group.consumer.regex.refresh.interval.ms | int | 600000 | 10000.. | medium | internal
    Time after which subscribed patterns are matched again.
offset.metadata.max.bytes | int | 4096 | | high
    Longest note stored with a committed offset.
offsets.commit.timeout.ms | int | 5000 | 1.. | high
    How long a commit waits for the replicas of the offsets topic.
offsets.load.buffer.size | int | 5242880 | 1.. | high
    Bytes read at a time when offsets are loaded.
offsets.retention.minutes | int | 10080 | 1.. | high
    How long committed offsets outlive their empty group.
offsets.retention.check.interval.ms | long | 600000 | 1.. | high
    Time between two looks for expired offsets.
offsets.topic.num.partitions | int | 50 | 1.. | high
    Partitions of the offsets topic; fixed once it exists.
offsets.topic.replication.factor | short | 3 | 1.. | high
    Replicas of the offsets topic; fewer nodes that are all controllers, too, lower the default.
offsets.topic.segment.bytes | int | 104857600 | 1.. | high
    Segment size of the offsets topic.
offsets.topic.compression.codec | int | 0 | | high
    Codec of the offsets topic's batches, as its number.
# Transactions and producers
transaction.state.log.num.partitions | int | 50 | 1.. | high
    Partitions of the transaction topic; fixed once it exists.
transaction.state.log.replication.factor | short | 3 | 1.. | high
    Replicas of the transaction topic; the default is lowered like that of the offsets topic.
transaction.state.log.min.isr | int | 2 | 1.. | high
    min.insync.replicas of the transaction topic.
transaction.state.log.segment.bytes | int | 104857600 | 1.. | high
    Segment size of the transaction topic.
transaction.state.log.load.buffer.size | int | 5242880 | 1.. | high
    Bytes read at a time when transactions are loaded.
transaction.max.timeout.ms | int | 900000 | 1.. | high
    Longest transaction timeout a producer may ask for.
transactional.id.expiration.ms | int | 604800000 | 1.. | high
    An idle transactional id is forgotten after this long.
transaction.abort.timed.out.transaction.cleanup.interval.ms | int | 10000 | 1.. | low
    Time between two looks for transactions to abort.
transaction.remove.expired.transaction.cleanup.interval.ms | int | 3600000 | 1.. | low
    Time between two looks for expired transactional ids.
transaction.partition.verification.enable | boolean | true | | low | cluster
    Check that a transaction knows the partition before a write to it.
transaction.two.phase.commit.enable | boolean | false | | low
    Allow two-phase commit transactions.
add.partitions.to.txn.retry.backoff.ms | int | 20 | 1.. | high
    First wait before a partition is added to a transaction again.
add.partitions.to.txn.retry.backoff.max.ms | int | 100 | 0.. | high
    Longest wait before a partition is added to a transaction again.
producer.id.expiration.ms | int | 86400000 | 1.. | low | cluster
    An idle producer id is forgotten after this long.
producer.id.expiration.check.interval.ms | int | 600000 | 1.. | low | internal
    Time between two looks for expired producer ids.
# Share groups
group.share.assignors | list | simple | | medium
    Assignors of share groups.
group.share.assignment.interval.ms | int | 1000 | 0.. | medium | cluster
    Least time between two assignments of a share group.
group.share.min.assignment.interval.ms | int | 0 | 0.. | medium
    Smallest assignment interval a share group may set.
group.share.max.assignment.interval.ms | int | 15000 | 0.. | medium
    Largest assignment interval a share group may set.
group.share.delivery.count.limit | int | 5 | 2..10 | medium
    Deliveries of a record before it is given up.
group.share.min.delivery.count.limit | int | 2 | 2..5 | medium
    Smallest delivery limit a share group may set.
group.share.max.delivery.count.limit | int | 10 | 5..25 | medium
    Largest delivery limit a share group may set.
group.share.heartbeat.interval.ms | int | 5000 | 1.. | medium
    Heartbeat interval given to members of share groups.
group.share.min.heartbeat.interval.ms | int | 5000 | 1.. | medium
    Smallest heartbeat interval a share group may set.
group.share.max.heartbeat.interval.ms | int | 15000 | 1.. | medium
    Largest heartbeat interval a share group may set.
group.share.session.timeout.ms | int | 45000 | 1.. | medium
    A member of a share group silent for this long is removed.
group.share.min.session.timeout.ms | int | 45000 | 1.. | medium
    Smallest session timeout a share group may set.
group.share.max.session.timeout.ms | int | 60000 | 1.. | medium
    Largest session timeout a share group may set.
group.share.record.lock.duration.ms | int | 30000 | 1000..3600000 | medium
    How long a share consumer holds a record.
group.share.min.record.lock.duration.ms | int | 15000 | 1000..30000 | medium
    Smallest lock duration a share group may set.
group.share.max.record.lock.duration.ms | int | 60000 | 30000..3600000 | medium
    Largest lock duration a share group may set.
group.share.partition.max.record.locks | int | 2000 | 100..10000 | medium
    Most records of a partition held at a time.
group.share.min.partition.max.record.locks | int | 100 | 100..2000 | medium
    Smallest record lock limit a share group may set.
group.share.max.partition.max.record.locks | int | 4000 | 2000..10000 | medium
    Largest record lock limit a share group may set.
group.share.max.share.sessions | int | 2000 | 1.. | medium
    Most share sessions of a broker.
group.share.max.size | int | 200 | 1..1000 | medium
    Most members of a share group.
group.share.initialize.retry.interval.ms | int | 30000 | 1.. | low | internal
    Wait before share state is initialized again.
group.share.persister.class.name | string \
  | org.apache.kafka.server.share.persister.DefaultStatePersister | | medium | internal
    Where the state of share groups is kept: by the share coordinator.
share.coordinator.append.linger.ms | int | -1 | -1.. | medium
    How long the share coordinator gathers writes; -1 lets it choose.
share.coordinator.cached.buffer.max.bytes | int | 1048588 | 524288.. | medium | cluster
    Largest write buffer the share coordinator keeps.
share.coordinator.cold.partition.snapshot.interval.ms | int | 300000 | 1.. | low | internal
    Time after which the state of an idle share partition is written again.
share.coordinator.load.buffer.size | int | 5242880 | 1.. | high
    Bytes read at a time when share state is loaded.
share.coordinator.snapshot.update.records.per.snapshot | int | 500 | 0..500 | medium
    Updates of share state between two full ones.
share.coordinator.state.topic.compression.codec | int | 0 | | high
    Codec of the share state topic, as its number.
share.coordinator.state.topic.min.isr | short | 2 | 1.. | high
    min.insync.replicas of the share state topic.
share.coordinator.state.topic.num.partitions | int | 50 | 1.. | high
    Partitions of the share state topic.
share.coordinator.state.topic.prune.interval.ms | int | 300000 | 1.. | low | internal
    Time between two prunings of the share state topic.
share.coordinator.state.topic.replication.factor | short | 3 | 1.. | high
    Replicas of the share state topic.
share.coordinator.state.topic.segment.bytes | int | 104857600 | 1.. | high
    Segment size of the share state topic.
share.coordinator.threads | int | 1 | 1.. | medium
    Threads of the share coordinator.
share.coordinator.write.timeout.ms | int | 5000 | 1.. | high
    How long a write of share state waits for its replicas.
share.fetch.purgatory.purge.interval.requests | int | 1000 | | medium
    Kept for Kafka's sake: waiting requests free themselves here.
# Streams groups
group.streams.assignment.interval.ms | int | 1000 | 0.. | medium | cluster
    Least time between two assignments of a streams group.
group.streams.min.assignment.interval.ms | int | 0 | 0.. | medium
    Smallest assignment interval a streams group may set.
group.streams.max.assignment.interval.ms | int | 15000 | 0.. | medium
    Largest assignment interval a streams group may set.
group.streams.heartbeat.interval.ms | int | 5000 | 1.. | medium
    Heartbeat interval given to members of streams groups.
group.streams.min.heartbeat.interval.ms | int | 5000 | 1.. | medium
    Smallest heartbeat interval a streams group may set.
group.streams.max.heartbeat.interval.ms | int | 15000 | 1.. | medium
    Largest heartbeat interval a streams group may set.
group.streams.session.timeout.ms | int | 45000 | 1.. | medium
    A member of a streams group silent for this long is removed.
group.streams.min.session.timeout.ms | int | 45000 | 1.. | medium
    Smallest session timeout a streams group may set.
group.streams.max.session.timeout.ms | int | 60000 | 1.. | medium
    Largest session timeout a streams group may set.
group.streams.initial.rebalance.delay.ms | int | 3000 | 0.. | medium
    Wait for more members before a streams group's first assignment.
group.streams.max.size | int | 2147483647 | 1.. | medium
    Most members of a streams group.
group.streams.num.standby.replicas | int | 0 | 0.. | medium
    Standby copies of each stateful task.
group.streams.max.standby.replicas | int | 2 | 0.. | medium
    Most standby copies a streams group may set.
"""
