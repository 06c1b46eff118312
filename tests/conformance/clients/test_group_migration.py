"""A group changes its protocol while it is in use: classic members, then both kinds, and back.

Records flow all the time. Nothing is lost, each record goes to one member only, and members that
stay go on reading. Members are librdkafka's, and Java's as processes of their own.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.conformance.broker_process import Broker
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.clients import scenarios
from tests.conformance.clients.confluent import ConfluentKafka
from tests.conformance.clients.members import Member, wait_until
from tests.conformance.clients.scenarios import ALL_PARTITIONS, CHUNK, Story
from tests.conformance.java_tools import KafkaTools, RunningTool

pytestmark = scenarios.MARKS

Names = Callable[[], str]
CLASSIC: dict[str, object] = {
    "session.timeout.ms": scenarios.SESSION_TIMEOUT_MS,
    "heartbeat.interval.ms": scenarios.HEARTBEAT_INTERVAL_MS,
    "partition.assignment.strategy": "range",
}
CONSUMER: dict[str, object] = {"group.protocol": "consumer"}


@pytest.fixture
def quick_broker(make_broker: Callable[..., Broker]) -> Broker:
    """A broker whose members learn of changes soon."""
    interval_ms = scenarios.HEARTBEAT_INTERVAL_MS
    return make_broker(
        group_consumer_heartbeat_interval_ms=interval_ms,
        group_consumer_min_heartbeat_interval_ms=interval_ms,
        group_consumer_assignment_interval_ms=0,
        group_initial_rebalance_delay_ms=0,
    )


def wait_until_shared(story: Story, *members: Member) -> None:
    """Send on until the members have all partitions between them, each a part of its own."""

    def shared() -> bool:
        parts = [member.assignment for member in members]
        whole = frozenset().union(*parts) == ALL_PARTITIONS
        return whole and all(parts) and sum(map(len, parts)) == len(ALL_PARTITIONS)

    while not shared() and len(story.sent) < 20_000:
        story.send(CHUNK)
    wait_until(shared, members, "the members share the partitions")
    story.wait_for(story.sent, story.members)


def test_a_running_group_is_upgraded_and_downgraded(
    quick_broker: Broker, unique_topic: Names, unique_group: Names
) -> None:
    """Member by member, as a fleet is restarted with another setting, and again with the old."""
    client = ConfluentKafka(quick_broker.address, enable_idempotence=True)
    story = Story(client, unique_topic(), unique_group())
    client.group_settings = CLASSIC
    with ExitStack() as first, ExitStack() as second, ExitStack() as third:
        a = first.enter_context(story.join("a, classic"))
        wait_until_shared(story, a)
        b = second.enter_context(story.join("b, classic"))
        wait_until_shared(story, a, b)
        assert described(quick_broker, story.group)[0] == "classic"
        client.group_settings = CONSUMER
        c = third.enter_context(story.join("c, consumer"))
        wait_until_shared(story, a, b, c)
        assert described(quick_broker, story.group)[0] == "consumer"
        a.commit()
        first.close()
        wait_until_shared(story, b, c)
        b.commit()
        second.close()
        wait_until_shared(story, c)
        client.group_settings = CLASSIC
        d = second.enter_context(story.join("d, classic"))
        wait_until_shared(story, c, d)
        c.commit()
        third.close()
        wait_until_shared(story, d)
        assert described(quick_broker, story.group)[0] == "classic"
        d.commit()
    story.check()


def test_a_running_group_of_java_members_is_upgraded_and_downgraded(
    quick_broker: Broker,
    tools_for: Callable[[Broker], KafkaTools],
    unique_topic: Names,
    unique_group: Names,
) -> None:
    """Each offset is read once, by whichever member had the partition."""
    kafka, group = tools_for(quick_broker), unique_group()
    client = ConfluentKafka(quick_broker.address)
    story = Story(client, unique_topic(), group)
    seen: list[tuple[int, int]] = []

    def start(protocol: str) -> JavaMember:
        tool = kafka.start(
            "kafka-verifiable-consumer", "--topic", story.topic, "--group-id", group,
            "--reset-policy", "earliest", "--group-protocol", protocol,
        )  # fmt: skip
        return JavaMember(running.enter_context(tool))

    def flow(protocol: str, count: int) -> None:
        """Send on until the group has so many members, and is stable."""
        deadline = time.monotonic() + scenarios.DEADLINE_S
        while (found := described(quick_broker, group)) != (protocol, "Stable", count):
            story.send(CHUNK)
            assert time.monotonic() < deadline, (protocol, count, found)
        story.send(CHUNK)

    with ExitStack() as running:
        members = [start("classic") for _ in range(2)]
        flow("classic", 2)
        members += [start("consumer") for _ in range(2)]
        flow("consumer", 4)
        for left in (3, 2):
            seen += members.pop(0).stop()
            flow("consumer", left)
        members.append(start("classic"))
        flow("consumer", 3)
        for protocol, left in (("consumer", 2), ("classic", 1)):
            seen += members.pop(0).stop()
            flow(protocol, left)
        wait_until_committed(quick_broker, story)
        seen += members.pop().stop()
    assert len(seen) == len(set(seen)) == len(story.sent)


def described(broker: Broker, group: str) -> tuple[str, str, int]:
    """The protocol, the state and the number of members of a group."""
    with RawClient(broker.address) as client:
        (found,) = client.call(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
        if found.error_code == ErrorCode.NONE:
            return "consumer", found.group_state, len(found.members)
        (classic,) = client.call(DescribeGroupsRequest(groups=[group]), 5).groups
        return "classic", classic.group_state, len(classic.members)


def wait_until_committed(broker: Broker, story: Story) -> None:
    """Wait until the group has committed all that was sent."""
    topic = OffsetFetchRequestTopics(name=story.topic, partition_indexes=sorted(ALL_PARTITIONS))
    group = OffsetFetchRequestGroup(group_id=story.group, topics=[topic])
    deadline = time.monotonic() + scenarios.DEADLINE_S
    committed = -1
    with RawClient(broker.address) as client:
        while committed != len(story.sent):
            assert time.monotonic() < deadline, (committed, len(story.sent))
            (found,) = client.call(OffsetFetchRequest(groups=[group]), 8).groups
            committed = sum(one.committed_offset for one in found.topics[0].partitions)


class JavaMember:
    """A Java consumer in a process of its own; what it prints is read all the time."""

    def __init__(self, tool: RunningTool) -> None:
        self._process = tool.process
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._lines.extend(self._process.stdout)

    def stop(self) -> Iterator[tuple[int, int]]:
        """End it; the partitions and offsets that it has read."""
        self._process.terminate()
        self._reader.join(scenarios.DEADLINE_S)
        self._process.wait(scenarios.DEADLINE_S)
        for line in self._lines:
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("name") == "records_consumed":
                for part in event["partitions"]:
                    for offset in range(part["minOffset"], part["maxOffset"] + 1):
                        yield part["partition"], offset
