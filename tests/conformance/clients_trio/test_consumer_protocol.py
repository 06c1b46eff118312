"""Our consumer in groups of the consumer protocol (KIP-848), with Java members, and with brokers
of Apache and ours: joins, leaves, deaths, restarts, patterns, transactions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import trio

from kraftrio import (
    Admin,
    Consumer,
    Producer,
    RebalanceListener,
    SubscriptionPattern,
    TopicPartition,
)
from kraftrio.errors import (
    CommitFailedError,
    InvalidRegularExpressionError,
    UnsupportedAssignorError,
)
from tests.conformance.broker_process import KIND, Broker
from tests.conformance.clients import scenarios
from tests.conformance.clients_trio.consuming import TrioConsumer, make_topic
from tests.conformance.clients_trio.mixed_groups import PARTITIONS, Group, consumer_protocol
from tests.conformance.java_tools import KafkaTools, ToolRunner

pytestmark = scenarios.MARKS

Names = Callable[[], str]

DEADLINE_S = 60.0
NEW: Any = {"group_protocol": "consumer"}


@pytest.fixture
def tools(consumer_groups: Broker, tool_runner: ToolRunner) -> KafkaTools:
    return KafkaTools(consumer_groups.address, tool_runner)


@pytest.mark.timeout(240)
def test_one_owner_per_partition(
    tools: KafkaTools, unique_topic: Names, unique_group: Names
) -> None:
    """Three of ours and Java's, which join, leave and are killed; each record comes to the owner,
    and none is lost.
    """
    topic = tools.create_topic(unique_topic(), partitions=PARTITIONS)
    group = Group(tools, topic, unique_group(), consumer_protocol("uniform"))
    try:
        for name in ("ours-1", "java-1", "ours-2"):
            group.join(name)
            group.send(group.wait_shared())
        group.leave("ours-1")
        group.send(group.wait_shared())
        group.join("ours-3")
        group.send(group.wait_shared())
        group.kill("java-1")
        group.send(group.wait_shared())
        group.join("ours-1b")
        group.send(group.wait_shared())
        for name in ("ours-2", "ours-3", "ours-1b"):
            group.leave(name)
        group.check()
    finally:
        group.abandon()


def test_group(consumer_groups: Broker, unique_topic: Names, unique_group: Names) -> None:
    """Two members share the partitions; nothing is lost or doubled, whatever is committed when."""
    client = TrioConsumer(consumer_groups.address, **NEW)
    scenarios.check_group(client, unique_topic(), unique_group())


def test_restart(consumer_groups: Broker, unique_topic: Names, unique_group: Names) -> None:
    """Members go on over a stop and a crash of the broker."""
    if consumer_groups.kind == "apache" != KIND:
        pytest.skip("its starts take half a minute: with TEST_BROKER=apache")
    client = TrioConsumer(consumer_groups.address, **NEW)
    scenarios.check_restart(client, consumer_groups, unique_topic(), unique_group())


class Listener(RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, set[int]]] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("assigned", {each.partition for each in partitions}))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("revoked", {each.partition for each in partitions}))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("lost", {each.partition for each in partitions}))


async def poll_until(consumer: Consumer, condition: Callable[[], bool]) -> None:
    while not condition():
        await consumer.poll(timeout_ms=50)


async def create(address: str, topic: str, partitions: int = 3) -> None:
    async with Admin(address) as admin:
        await make_topic(admin, topic, partitions)


async def test_a_member_that_was_removed_comes_back(
    consumer_groups: Broker, unique_topic: Names, unique_group: Names
) -> None:
    """It has lost its partitions; what it commits of before is refused."""
    topic, group, listener = unique_topic(), unique_group(), Listener()
    address = consumer_groups.address
    await create(address, topic)
    static: Any = {"group_id": group, "group_instance_id": "one", "client_id": "ours", **NEW}
    with trio.fail_after(DEADLINE_S):
        async with (
            Admin(address) as admin,
            Consumer(address, **static) as consumer,
        ):
            await consumer.subscribe([topic], listener=listener)
            await poll_until(consumer, lambda: len(consumer.assignment) == 3)
            described = (await admin.describe_groups([group]))[group]
            assert (described.type, described.state) == ("consumer", "Stable")
            [member] = described.members
            assert (member.client_id, member.group_instance_id) == ("ours", "one")
            assert member.assignment == member.target_assignment == consumer.assignment
            assert member.subscribed_topics == {topic}
            assert member.member_epoch == consumer.group_metadata().generation_id
            assert dict(await admin.remove_members(group, ["one"])) == {"one": None}
            with pytest.raises(CommitFailedError):
                await consumer.commit({TopicPartition(topic, 0): 0})
            await poll_until(consumer, lambda: ("lost", {0, 1, 2}) in listener.calls)
            await poll_until(consumer, lambda: len(consumer.assignment) == 3)
            await consumer.commit({TopicPartition(topic, 0): 0})


async def test_a_static_member_keeps_its_partitions(
    consumer_groups: Broker, unique_topic: Names, unique_group: Names
) -> None:
    """It comes back within its session: no other member gets them, and the group's epoch stays."""
    topic, group = unique_topic(), unique_group()
    await create(consumer_groups.address, topic, 4)
    static: Any = {"group_id": group, "group_instance_id": "static", **NEW}
    with trio.fail_after(DEADLINE_S):
        async with Consumer(consumer_groups.address, group_id=group, **NEW) as other:
            await other.subscribe([topic])
            owned = []
            for _ in range(2):
                async with Consumer(consumer_groups.address, **static) as consumer:
                    await consumer.subscribe([topic])
                    while len(consumer.assignment) != 2 or len(other.assignment) != 2:
                        await consumer.poll(timeout_ms=50)
                        await other.poll(timeout_ms=50)
                    owned.append(consumer.assignment)
                for _ in range(10):
                    await other.poll(timeout_ms=50)
                assert len(other.assignment) == 2
            assert owned[0] == owned[1]


@pytest.mark.parametrize("by", ["broker", "client"])
async def test_patterns(
    consumer_groups: Broker, unique_topic: Names, unique_group: Names, by: str
) -> None:
    """Topics that match are read, also one that is created later."""
    name = unique_topic()
    first, second, other = f"{name}.x", f"{name}.y", f"other-{name}.x"
    pattern = re.escape(name) + r"\.[xy]"
    for topic in (first, other):
        await create(consumer_groups.address, topic, 1)
    settings: Any = {"group_id": unique_group(), "metadata_max_age_ms": 500, **NEW}
    with trio.fail_after(DEADLINE_S):
        async with Consumer(consumer_groups.address, **settings) as consumer:
            await consumer.subscribe(
                SubscriptionPattern(pattern) if by == "broker" else re.compile(pattern)
            )
            await poll_until(consumer, lambda: consumer.subscription == {first})
            await poll_until(consumer, lambda: len(consumer.assignment) == 1)
            if by == "client":  # a broker looks for new topics in minutes
                await create(consumer_groups.address, second, 1)
                await poll_until(consumer, lambda: len(consumer.assignment) == 2)
            await consumer.subscribe([other])
            await poll_until(consumer, lambda: consumer.assignment == {TopicPartition(other, 0)})


async def test_what_the_coordinator_refuses(
    consumer_groups: Broker, unique_topic: Names, unique_group: Names
) -> None:
    """An assignor that it does not have, and a pattern that is none."""
    topic = unique_topic()
    await create(consumer_groups.address, topic)
    cases: list[tuple[dict[str, Any], Any, type[Exception]]] = [
        ({"group_remote_assignor": "fair"}, [topic], UnsupportedAssignorError),
        ({}, SubscriptionPattern("(unclosed"), InvalidRegularExpressionError),
    ]
    with trio.fail_after(DEADLINE_S):
        for settings, topics, error in cases:
            async with Consumer(
                consumer_groups.address, group_id=unique_group(), **settings, **NEW
            ) as consumer:
                await consumer.subscribe(topics)
                with pytest.raises(error):
                    await consumer.poll(timeout_ms=10_000)


async def test_offsets_in_a_transaction(
    consumer_groups: Broker, unique_topic: Names, unique_group: Names
) -> None:
    """They are committed as the member's, by its epoch."""
    topic, group = unique_topic(), unique_group()
    await create(consumer_groups.address, topic, 1)
    async with Producer(consumer_groups.address) as producer:
        for number in range(5):
            await producer.send(topic, b"%d" % number)
    settings: Any = {"group_id": group, "enable_auto_commit": False, **NEW}
    with trio.fail_after(DEADLINE_S):
        async with (
            Consumer(consumer_groups.address, auto_offset_reset="earliest", **settings) as consumer,
            Producer(consumer_groups.address, transactional_id=group) as producer,
        ):
            await consumer.subscribe([topic])
            taken = 0
            while taken < 5:
                taken += len(await consumer.poll())
            async with producer.transaction() as transaction:
                await transaction.send_offsets(consumer)
            committed = await consumer.offsets.committed([TopicPartition(topic, 0)])
            found = committed[TopicPartition(topic, 0)]
            assert found is not None and found.offset == 5
