"""The admin client's calls, against a whole broker in simulated time."""

from __future__ import annotations

import pytest

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    NewTopic,
    OffsetSpec,
)
from kraftrio.clients.errors import (
    BrokerIdNotRegisteredError,
    ClosedError,
    GroupIdNotFoundError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.simulated import Kafka

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def admin(kafka: Kafka) -> Admin:
    return Admin(kafka.bootstrap)


async def test_topics(kafka: Kafka) -> None:
    async with admin(kafka) as client:
        created = await client.create_topics([NewTopic("t", 1, 1), NewTopic("u", 2, 1)])
        assert {name: topic.num_partitions for name, topic in created.items()} == {
            "t": 1,
            "u": 2,
        }
        with pytest.raises(TopicExistsError):
            await client.create_topics([NewTopic("t", 1, 1)])
        results = await client.create_topics(
            [NewTopic("t", 1, 1), NewTopic("v", 1, 1)], validate_only=True, raise_errors=False
        )
        assert set(results) - set(results.errors) == {"v"}
        assert isinstance(results.errors["t"], TopicExistsError)
        await client.create_partitions({"t": 2})
        with pytest.raises(InvalidPartitionsError):
            await client.create_partitions({"t": 1})
        assert sorted(await client.list_topics()) == ["t", "u"]
        described = await client.describe_topics(["t", "nope"], raise_errors=False)
        assert sorted(described["t"].partitions) == [0, 1]
        assert isinstance(described.errors["nope"], UnknownTopicOrPartitionError)
        await client.delete_topics(["u"])
        assert sorted(await client.list_topics()) == ["t"]


async def test_settings(kafka: Kafka) -> None:
    """Of several brokers and of the cluster, whichever is asked."""
    topic = ConfigResource(ConfigResourceType.TOPIC, "t")
    broker = ConfigResource(ConfigResourceType.BROKER, "1")
    async with admin(kafka) as client:
        await client.create_topics([NewTopic("t", 1, 1, {"retention.ms": "5000"})])
        found = await client.describe_configs([topic, broker])
        assert found[topic]["retention.ms"].value == "5000"
        assert found[broker]["node.id"].value == "1"
        await client.incremental_alter_configs({topic: [AlterConfigOp("retention.ms", "6000")]})
        found = await client.describe_configs([topic])
        assert found[topic]["retention.ms"].value == "6000"
        with pytest.raises(InvalidConfigurationError):
            await client.incremental_alter_configs({topic: [AlterConfigOp("retention.ms", "soon")]})


async def test_offsets_and_records(kafka: Kafka) -> None:
    await kafka.create("t", 2)
    await kafka.fill("t", 10)
    async with admin(kafka) as client:
        wanted = {T0: OffsetSpec.LATEST, T1: OffsetSpec.LATEST}
        ends = await client.list_offsets(wanted)
        assert {each: found.offset for each, found in ends.items()} == {T0: 10, T1: 0}
        assert dict(await client.delete_records({T0: 4})) == {T0: 4}
        starts = await client.list_offsets({T0: OffsetSpec.EARLIEST})
        assert starts[T0].offset == 4
        absent = TopicPartition("t", 7)
        results = await client.list_offsets({absent: 0, T0: 0}, raise_errors=False)
        assert set(results) - set(results.errors) == {T0}
        assert isinstance(results.errors[absent], UnknownTopicOrPartitionError)


async def test_groups(kafka: Kafka) -> None:
    await kafka.create("t")
    await kafka.fill("t", 10)
    async with admin(kafka) as client:
        async with kafka.consumer(group_id="g") as consumer:
            await consumer.subscribe(["t"])
            await consumer.poll(max_records=3)
            await consumer.commit()
            described = (await client.describe_groups(["g"]))["g"]
            assert described.state == "Stable"
            (member,) = described.members
            assert member.assignment == frozenset({T0})
        listed = await client.list_groups(states=["Empty"])
        assert [group.group_id for group in listed] == ["g"]
        offsets = await client.list_group_offsets("g")
        committed = offsets[T0]
        assert committed is not None
        assert committed.offset == 3
        await client.alter_group_offsets("g", {T0: 7})
        offsets = await client.list_group_offsets("g", [T0])
        committed = offsets[T0]
        assert committed is not None
        assert committed.offset == 7
        await client.delete_group_offsets("g", [T0])
        assert not await client.list_group_offsets("g")
        await client.delete_groups(["g"])
        with pytest.raises(GroupIdNotFoundError):
            await client.describe_groups(["g"])


async def test_the_cluster(kafka: Kafka) -> None:
    await kafka.create("t")
    async with admin(kafka) as client:
        cluster = await client.describe_cluster()
        ids = {broker.node_id for broker in cluster.nodes}
        quorum = await client.describe_metadata_quorum()
        assert quorum.leader_id in ids
        assert cluster.controller_id in ids
        elected = await client.elect_leaders(ElectionType.PREFERRED)
        assert not elected.errors
        assert await client.list_partition_reassignments() == {}
        (leader,) = (await client.describe_topics(["t"]))["t"].partitions[0].replicas
        await client.alter_partition_reassignments({T0: [leader]})


@pytest.mark.kafka(brokers=3)
async def test_a_broker_that_is_gone_for_good_is_unregistered(kafka: Kafka) -> None:
    def registered() -> set[int]:
        return set(kafka.cluster.nodes[1].quorum.image.brokers)

    async with admin(kafka) as client:
        await kafka.wait_for(lambda: registered() == {1, 2, 3})
        kafka.cluster.nodes[3].crash()
        await client.unregister_broker(3)
        await kafka.wait_for(lambda: registered() == {1, 2})
        with pytest.raises(BrokerIdNotRegisteredError):
            await client.unregister_broker(3)
        kafka.cluster.nodes[3].start()
        await kafka.wait_for(lambda: registered() == {1, 2, 3})
        with pytest.raises(ValueError, match="-1"):
            await client.unregister_broker(-1)


async def test_a_client_that_is_not_open_sends_nothing() -> None:
    client = Admin("localhost:1")
    with pytest.raises(ClosedError):
        await client.list_topics()
    async with client:
        pass
    with pytest.raises(ClosedError):
        await client.describe_cluster()
