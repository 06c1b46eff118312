"""Our admin client against a broker, and beside Apache's tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import trio

from kraftrio import (
    Admin,
    AlterConfigOp,
    CommittedOffset,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ElectionType,
    NewTopic,
    OffsetSpec,
    OpType,
    Producer,
    TopicPartition,
)
from kraftrio.errors import (
    ErrorCode,
    GroupIdNotFoundError,
    GroupNotEmptyError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaClientError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from tests.conformance.clients import scenarios
from tests.conformance.clients.confluent import ConfluentKafka
from tests.conformance.cluster_process import Cluster
from tests.conformance.java_tools import KafkaTools

pytestmark = scenarios.MARKS

Names = Callable[[], str]
T = TypeVar("T")


def administer(address: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Run something with an admin client."""

    async def run() -> T:
        async with Admin(address) as admin:
            return await work(admin)

    return trio.run(run)


def topic_of(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name)


def test_topics(bootstrap: str, kafka: KafkaTools, unique_topic: Names) -> None:
    """Create, list, describe, grow and delete, as Apache's tool sees it, too."""
    first, second = unique_topic(), unique_topic()

    async def create(admin: Admin) -> None:
        created = await admin.create_topics(
            [NewTopic(first, 3, 1, {"retention.ms": "86400000"}), NewTopic(second)]
        )
        assert (created[first].num_partitions, created[first].replication_factor) == (3, 1)
        assert created[first].configs["retention.ms"] == "86400000"
        listed = await admin.list_topics()
        assert {first, second} <= listed.keys()
        assert listed[first].topic_id == created[first].topic_id
        described = await admin.describe_topics([first])
        partitions = described[first].partitions
        assert sorted(partitions) == [0, 1, 2]
        assert {part.leader_id for part in partitions.values()} == {partitions[0].replicas[0]}
        await admin.create_partitions({first: 5})

    administer(bootstrap, create)
    shown = kafka.run("kafka-topics", "--describe", "--topic", first).output
    assert "PartitionCount: 5" in shown
    assert "retention.ms=86400000" in shown

    async def delete(admin: Admin) -> None:
        await admin.delete_topics([first, second])
        assert not {first, second} & (await admin.list_topics()).keys()

    administer(bootstrap, delete)


def test_topics_with_an_assignment(bootstrap: str, unique_topic: Names) -> None:
    """Partitions may be placed by hand; what is only validated is not created."""
    name = unique_topic()

    async def work(admin: Admin) -> None:
        (node,) = (await admin.describe_cluster()).nodes
        placed = NewTopic(name, replica_assignment={0: [node.node_id], 1: [node.node_id]})
        await admin.create_topics([placed], validate_only=True)
        assert name not in await admin.list_topics()
        assert (await admin.create_topics([placed]))[name].num_partitions == 2

    administer(bootstrap, work)


def test_every_item_has_its_error(bootstrap: str, unique_topic: Names) -> None:
    """Items that fail do not keep others from succeeding; the first error is raised on demand."""
    name = unique_topic()

    async def work(admin: Admin) -> None:
        new = [NewTopic(name, 1), NewTopic("a b", 1), NewTopic(f"{name}-9", 1, 99)]
        results = await admin.create_topics(new, raise_errors=False)
        assert results[name].num_partitions == 1
        assert isinstance(results.errors["a b"], InvalidTopicError)
        assert isinstance(results.errors[f"{name}-9"], InvalidReplicationFactorError)
        with pytest.raises(InvalidTopicError):
            results["a b"]
        assert sorted(results) == sorted([name, "a b", f"{name}-9"])
        with pytest.raises(TopicExistsError, match=f"{name}: "):
            await admin.create_topics([NewTopic(name)])
        with pytest.raises(InvalidPartitionsError):
            await admin.create_partitions({name: 1})
        with pytest.raises(UnknownTopicOrPartitionError, match="nope"):
            await admin.describe_topics([name, "nope"])
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.delete_topics(["nope"])

    administer(bootstrap, work)


def test_configurations(bootstrap: str, kafka: KafkaTools, unique_topic: Names) -> None:
    """Settings are described with their source and changed one by one; lists grow and shrink."""
    name = kafka.create_topic(unique_topic(), retention_ms=1000)

    async def work(admin: Admin) -> None:
        topic = topic_of(name)
        before = (await admin.describe_configs([topic]))[topic]
        assert before["retention.ms"].value == "1000"
        assert before["retention.ms"].source == ConfigSource.TOPIC_CONFIG
        assert before["segment.bytes"].is_default
        await admin.incremental_alter_configs(
            {
                topic: [
                    AlterConfigOp("retention.ms", op=OpType.DELETE),
                    AlterConfigOp("segment.bytes", "2000000"),
                    AlterConfigOp("cleanup.policy", "compact", OpType.APPEND),
                ]
            }
        )
        after = (await admin.describe_configs([topic]))[topic]
        assert after["retention.ms"].is_default
        assert after["segment.bytes"].value == "2000000"
        assert after["cleanup.policy"].value == "delete,compact"
        with pytest.raises(InvalidConfigurationError, match=f"topic {name}: "):
            await admin.incremental_alter_configs({topic: [AlterConfigOp("retention.ms", "x")]})
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.describe_configs([topic_of("nope")])
        (node,) = (await admin.describe_cluster()).nodes
        broker = ConfigResource(ConfigResourceType.BROKER, str(node.node_id))
        both = await admin.describe_configs([topic, broker], include_documentation=True)
        assert both[broker]["log.retention.hours"].value == "168"
        assert both[broker]["node.id"].is_read_only
        assert both[topic]["segment.bytes"].documentation

    administer(bootstrap, work)


def test_offsets_and_records(bootstrap: str, kafka: KafkaTools, unique_topic: Names) -> None:
    """Offsets by position and by time; records deleted up to an offset."""
    name = kafka.create_topic(unique_topic(), partitions=2)
    zero, one = TopicPartition(name, 0), TopicPartition(name, 1)

    async def work(admin: Admin) -> None:
        async with Producer(bootstrap) as producer:
            for number, timestamp_ms in enumerate((1000, 3000, 2000)):
                await producer.send(name, b"%d" % number, partition=0, timestamp_ms=timestamp_ms)
        latest = await admin.list_offsets({zero: OffsetSpec.LATEST, one: OffsetSpec.LATEST})
        assert (latest[zero].offset, latest[one].offset) == (3, 0)
        assert (await admin.list_offsets({zero: OffsetSpec.EARLIEST}))[zero].offset == 0
        newest = (await admin.list_offsets({zero: OffsetSpec.MAX_TIMESTAMP}))[zero]
        assert (newest.offset, newest.timestamp) == (1, 3000)
        by_time = (await admin.list_offsets({zero: 1001}))[zero]
        assert (by_time.offset, by_time.timestamp) == (1, 3000)
        assert (await admin.list_offsets({zero: 3001}))[zero].offset == -1
        assert (await admin.delete_records({zero: 2}))[zero] == 2
        assert (await admin.list_offsets({zero: OffsetSpec.EARLIEST}))[zero].offset == 2
        with pytest.raises(OffsetOutOfRangeError, match=f"{name}-0"):
            await admin.delete_records({zero: 4})
        assert (await admin.delete_records({zero: -1}))[zero] == 3
        missing = TopicPartition(name, 7)
        results = await admin.list_offsets(
            {zero: OffsetSpec.LATEST, missing: OffsetSpec.LATEST}, raise_errors=False
        )
        assert results[zero].offset == 3
        assert isinstance(results.errors[missing], UnknownTopicOrPartitionError)

    administer(bootstrap, work)


def test_groups(
    bootstrap: str, kafka: KafkaTools, unique_topic: Names, unique_group: Names
) -> None:
    """A group with a member of another client: described, its offsets listed, then deleted."""
    name, group = kafka.create_topic(unique_topic(), partitions=3), unique_group()
    client = ConfluentKafka(bootstrap)
    story = scenarios.Story.__new__(scenarios.Story)
    story.client, story.topic, story.group = client, name, group
    story.sent, story.placed, story.members = [], {}, []

    async def living(admin: Admin) -> None:
        listed = {item.group_id: item for item in await admin.list_groups()}
        assert listed[group].protocol_type == "consumer"
        assert listed[group].type == "classic"
        described = (await admin.describe_groups([group]))[group]
        assert described.state == "Stable"
        (member,) = described.members
        assert member.assignment == {TopicPartition(name, partition) for partition in range(3)}
        with pytest.raises(GroupNotEmptyError):
            await admin.delete_groups([group])
        assert [item.group_id for item in await admin.list_groups(states=["Empty"])].count(
            group
        ) == 0

    async def empty(admin: Admin) -> None:
        places = {TopicPartition(name, partition): 5 + partition for partition in range(2)}
        await admin.alter_group_offsets(group, places)
        await admin.alter_group_offsets(
            group, {TopicPartition(name, 2): CommittedOffset(9, 0, "by hand")}
        )
        committed = await admin.list_group_offsets(group)
        by_partition = {item.partition: committed[item] for item in committed}
        assert by_partition[2] == CommittedOffset(9, 0, "by hand")
        assert by_partition[0] is not None and by_partition[0].offset == 5
        await admin.delete_group_offsets(group, [TopicPartition(name, 0)])
        asked = await admin.list_group_offsets(group, [TopicPartition(name, 0)])
        assert asked[TopicPartition(name, 0)] is None

    async def delete(admin: Admin) -> None:
        await admin.delete_groups([group])
        with pytest.raises(GroupIdNotFoundError):
            await admin.describe_groups([group])
        with pytest.raises(GroupIdNotFoundError):
            await admin.delete_groups([group])

    member = client.member(name, group, "reader")
    with member:
        story.wait_for_assignment(member, frozenset(range(3)))
        administer(bootstrap, living)
    administer(bootstrap, empty)
    rows = kafka.run("kafka-consumer-groups", "--describe", "--group", group).rows("GROUP")
    offsets = {row["PARTITION"]: row["CURRENT-OFFSET"] for row in rows if row["TOPIC"] == name}
    assert offsets.get("1") == "6"
    administer(bootstrap, delete)


def test_the_cluster(cluster: Cluster, unique_topic: Names) -> None:
    """Three nodes: brokers, quorum, elections and reassignments."""
    name = unique_topic()
    zero = TopicPartition(name, 0)

    async def work(admin: Admin) -> None:
        described = await admin.describe_cluster()
        assert [node.node_id for node in described.nodes] == [1, 2, 3]
        assert described.controller_id in {1, 2, 3}
        quorum = await admin.describe_metadata_quorum()
        assert {voter.replica_id for voter in quorum.voters} == {1, 2, 3}
        assert quorum.leader_id in {1, 2, 3}
        assert quorum.high_watermark > 0
        await admin.create_topics([NewTopic(name, replica_assignment={0: [1, 2]})])
        with pytest.raises(KafkaClientError) as raised:
            await admin.elect_leaders(ElectionType.PREFERRED, [zero])
        assert raised.value.code == ErrorCode.ELECTION_NOT_NEEDED
        await admin.alter_partition_reassignments({zero: [3, 2]})
        with trio.fail_after(30):
            while True:
                ongoing = await admin.list_partition_reassignments([zero])
                partition = (await admin.describe_topics([name]))[name].partitions[0]
                if not ongoing and partition.replicas == (3, 2):
                    break
                await trio.sleep(0.1)
        with pytest.raises(KafkaClientError) as raised:
            await admin.alter_partition_reassignments({zero: None})
        assert raised.value.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    administer(cluster.bootstrap, work)


def test_the_controller_moves(cluster: Cluster, unique_topic: Names) -> None:
    """Calls outlive the death of the controller's node."""
    names = [unique_topic() for _ in range(2)]

    async def work(admin: Admin) -> None:
        await admin.create_topics([NewTopic(names[0], 1, 3)])
        await trio.to_thread.run_sync(cluster.node(cluster.controller()).kill9)
        created = await admin.create_topics([NewTopic(names[1], 1, 2)])
        assert created[names[1]].num_partitions == 1

    administer(cluster.bootstrap, work)


def test_log_dirs(bootstrap: str, unique_topic: Names) -> None:
    """How large replicas are, and how much room their disks have."""
    item = TopicPartition(unique_topic(), 0)

    async def look(admin: Admin) -> None:
        await admin.create_topics([NewTopic(item.topic, 1, 1)])
        async with Producer(bootstrap) as producer:
            await (await producer.send(item.topic, bytes(1000)))
        brokers = [broker.node_id for broker in (await admin.describe_cluster()).nodes]
        (directories,) = (await admin.describe_log_dirs(brokers)).values()
        (directory,) = directories.values()
        assert directory.error is None
        replica = directory.replicas[item]
        assert 1000 < replica.size_bytes < 2000
        assert (replica.offset_lag, replica.is_future) == (0, False)
        assert directory.total_bytes is not None and directory.usable_bytes is not None
        assert directory.total_bytes > directory.usable_bytes > 0

    administer(bootstrap, look)
