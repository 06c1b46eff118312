"""confluent-kafka (librdkafka) as it is: plain and idempotent producers, groups, the admin."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.broker_process import Broker
from tests.conformance.clients import scenarios
from tests.conformance.clients.confluent import ConfluentAdmin, ConfluentKafka
from tests.conformance.clients.records import Record, check_received, make_record
from tests.conformance.clients.scenarios import CHUNK, Story

pytestmark = scenarios.MARKS

Names = Callable[[], str]


@pytest.fixture
def client(bootstrap: str) -> ConfluentKafka:
    """The client with an idempotent producer."""
    return ConfluentKafka(bootstrap, enable_idempotence=True)


@pytest.fixture
def admin(bootstrap: str) -> ConfluentAdmin:
    """The client's admin."""
    return ConfluentAdmin(bootstrap)


def test_group(client: ConfluentKafka, unique_topic: Names, unique_group: Names) -> None:
    """Idempotent producers, and a group in which a rebalance stops everyone."""
    scenarios.check_group(client, unique_topic(), unique_group())


def test_cooperative_group(
    client: ConfluentKafka, unique_topic: Names, unique_group: Names
) -> None:
    """A member keeps the partitions that stay with it while the group rebalances."""
    client.group_settings["partition.assignment.strategy"] = "cooperative-sticky"
    scenarios.check_group(client, unique_topic(), unique_group())


def test_new_group_protocol(
    make_broker: Callable[..., Broker], unique_topic: Names, unique_group: Names
) -> None:
    """The group protocol of KIP-848: the broker assigns, and members reconcile one by one."""
    interval_ms = scenarios.HEARTBEAT_INTERVAL_MS
    broker = make_broker(
        group_consumer_heartbeat_interval_ms=interval_ms,
        group_consumer_min_heartbeat_interval_ms=interval_ms,
    )
    client = ConfluentKafka(broker.address, enable_idempotence=True)
    client.group_settings = {"group.protocol": "consumer"}
    scenarios.check_group(client, unique_topic(), unique_group())


def test_restart(
    make_broker: Callable[..., Broker], unique_topic: Names, unique_group: Names
) -> None:
    """Members go on over a stop and a crash of the broker."""
    broker = make_broker()
    client = ConfluentKafka(broker.address, enable_idempotence=True)
    scenarios.check_restart(client, broker, unique_topic(), unique_group())


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_plain_producer(
    bootstrap: str, acks: str, unique_topic: Names, unique_group: Names
) -> None:
    """Without idempotence, at each level of acknowledgement, all records arrive in order."""
    client = ConfluentKafka(
        bootstrap, acks=acks, enable_idempotence=False, max_in_flight_requests_per_connection=1
    )
    story = Story(ConfluentKafka(bootstrap), unique_topic(), unique_group())
    story.send(CHUNK)  # unacknowledged records are lost while the new topic's leader starts
    story.client = client
    with story.join("reader") as reader:
        for _ in client.codecs:
            story.wait_for(story.send(200), [reader])  # each comes on a connection of its own
    if acks == "0":
        story.placed.clear()  # with acks=0 the producer does not learn where they are
    story.check()


def test_transactions(bootstrap: str, unique_topic: Names, unique_group: Names) -> None:
    """Committed transactions are read, aborted ones are not, and offsets go with them."""
    client = ConfluentKafka(bootstrap, transactional_id=unique_group())
    story = Story(client, unique_topic(), unique_group())
    kept = client.transact(story.topic, records(0, 200, client), commit=True)
    client.transact(story.topic, records(200, 300, client), commit=False)
    kept += client.transact(story.topic, records(300, 500, client), commit=True)
    with client.member(story.topic, story.group, "reader") as reader:
        story.wait_for(kept, [reader])
        check_received(kept, reader.received)
        target = unique_topic()
        client.create_topic(target, scenarios.PARTITIONS)
        for commit, copied in ((False, kept[:50]), (True, kept)):
            client.transact(target, copied, commit=commit, offsets_of=reader)
    later = client.transact(story.topic, records(500, 600, client), commit=True)
    with client.member(target, unique_group(), "copies") as copies:
        story.wait_for(kept, [copies])
        check_received(kept, copies.received)
    with story.join("later") as reader:
        story.wait_for(later, [reader])
        check_received(later, reader.received)


def records(first: int, end: int, client: ConfluentKafka) -> list[Record]:
    """Return the records of these numbers."""
    return [make_record(number, client.can) for number in range(first, end)]


def test_topic_admin(admin: ConfluentAdmin, unique_topic: Names) -> None:
    """Topics and their settings through the admin."""
    scenarios.check_topic_admin(admin, unique_topic())


def test_offsets_admin(admin: ConfluentAdmin, client: ConfluentKafka, unique_topic: Names) -> None:
    """Offsets and the deletion of records through the admin."""
    scenarios.check_offsets_admin(admin, client, unique_topic())


def test_group_admin(
    admin: ConfluentAdmin, client: ConfluentKafka, unique_topic: Names, unique_group: Names
) -> None:
    """Groups through the admin."""
    scenarios.check_group_admin(admin, client, unique_topic(), unique_group())
