"""What every client goes through, the same for all of them: a topic, a group, a restart, the admin.

A `Client` says how its library does each step; the scenarios check the results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Protocol

import pytest

from tests.conformance.broker_process import Broker
from tests.conformance.clients.members import Member, wait_until
from tests.conformance.clients.records import (
    Abilities,
    Received,
    Record,
    check_received,
    make_record,
)

# A first use fetches the client; the warnings are other people's code's.
MARKS = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

DEADLINE_S = 30.0
PARTITIONS = 3
ALL_PARTITIONS = frozenset(range(PARTITIONS))
CHUNK = 100

# Quick to notice a rebalance, slow to give a member up.
SESSION_TIMEOUT_MS = 10_000
HEARTBEAT_INTERVAL_MS = 300


class Client(Protocol):
    """One client, pointed at one broker."""

    codecs: Sequence[str]  # each of the client's compressions, and none
    can: Abilities
    commits_at_rebalance: bool  # so nothing is read twice when another member joins
    commits_at_leave: bool  # whether asked to or not

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic."""

    def produce(
        self, topic: str, codec: str, records: Sequence[Record]
    ) -> list[tuple[int, int]] | None:
        """Send records and return once all are acknowledged: their positions, if known."""

    def member(self, topic: str, group: str, name: str) -> Member:
        """Return a member, not started yet; it reads from the beginning without a commit."""


class Story:
    """A topic's life in one test: what was sent to it, and which members read it."""

    def __init__(self, client: Client, topic: str, group: str) -> None:
        """Create the topic."""
        self.client = client
        self.topic = topic
        self.group = group
        self.sent: list[Record] = []
        self.placed: dict[bytes, tuple[int, int]] = {}
        self.members: list[Member] = []
        self._codecs = cycle(client.codecs)
        client.create_topic(topic, PARTITIONS)

    def join(self, name: str) -> Member:
        """Return a new member of the group."""
        member = self.client.member(self.topic, self.group, name)
        self.members.append(member)
        return member

    def send(self, count: int) -> list[Record]:
        """Send the next records with the next compression."""
        first = len(self.sent)
        records = [make_record(n, self.client.can) for n in range(first, first + count)]
        places = self.client.produce(self.topic, next(self._codecs), records)
        self.sent += records
        if places is not None:
            assert len(places) == count
            self.placed |= {r.key: place for r, place in zip(records, places, strict=True)}
        return records

    def send_in_all_codecs(self, count: int) -> list[Record]:
        """Send so many records, a part with each compression."""
        codecs = len(self.client.codecs)
        sizes = [count // codecs] * (codecs - 1)
        return [record for size in [*sizes, count - sum(sizes)] for record in self.send(size)]

    def wait_for(self, records: Sequence[Record], members: Sequence[Member]) -> None:
        """Wait until the members have these records between them."""
        keys = {record.key for record in records}

        def here() -> bool:
            return not keys.difference(*(member.keys for member in members))

        wait_until(here, members, f"{len(keys)} records up to number {records[-1].number}")

    def wait_for_assignment(self, member: Member, partitions: frozenset[int]) -> None:
        """Wait until a member is assigned exactly these partitions."""
        wait_until(
            lambda: member.assignment == partitions,
            [member],
            f"{member.name} is assigned {sorted(partitions)}",
        )

    def check(self) -> None:
        """Compare everything sent with everything that the members read."""
        received = [found for member in self.members for found in member.received]
        check_received(self.sent, received, duplicates=not self.client.commits_at_rebalance)
        for found in received:
            place = self.placed.get(found.record.key)
            assert place in {None, (found.partition, found.offset)}, (place, found)


def shared(first: Member, second: Member) -> bool:
    """Return whether two members share the partitions, each with some."""
    apart = not first.assignment & second.assignment
    whole = first.assignment | second.assignment == ALL_PARTITIONS
    return bool(first.assignment and second.assignment) and apart and whole


def check_group(client: Client, topic: str, group: str) -> None:
    """10,000 records through a group: a member joins and leaves, a later one goes on.

    Nothing is lost or altered; what was committed is not read again, what was not, is.
    """
    story = Story(client, topic, group)
    with story.join("first") as first:
        records = story.send_in_all_codecs(3000)
        story.wait_for(records, [first])
        first.commit()
        with story.join("second") as second:
            while not shared(first, second) and len(story.sent) < 6000:
                story.send(CHUNK)  # records are under way while the group rebalances
            wait_until(lambda: shared(first, second), [first, second], "each has its part")
            story.send_in_all_codecs(8000 - len(story.sent))
            story.wait_for(story.sent, [first, second])
            check_owners(first, second)
            first.commit()
            second.commit()
        story.wait_for_assignment(first, ALL_PARTITIONS)
        records = story.send_in_all_codecs(700)
        story.wait_for(records, [first])
        first.commit()
        uncommitted = story.send_in_all_codecs(300)
        story.wait_for(uncommitted, [first])
    story.check()
    again = [] if client.commits_at_leave else uncommitted
    later = story.send_in_all_codecs(1000)
    with story.join("third") as third:
        story.wait_for([*again, *later], [third])
        third.commit()
        check_received([*again, *later], third.received)
    assert len(story.sent) == 10_000


def check_reading(client: Client, topic: str, group: str) -> None:
    """Records in every compression are read by one member, as they are sent."""
    story = Story(client, topic, group)
    with story.join("reader") as reader:
        story.wait_for(story.send_in_all_codecs(1000), [reader])
    story.check()


def check_owners(first: Member, second: Member) -> None:
    """Assert that after the rebalance each member has read only from its own partitions."""
    for member, other in ((first, second), (second, first)):
        last = {found.partition: found for found in member.received}
        for partition in other.assignment & last.keys():
            newest = max(f.offset for f in other.received if f.partition == partition)
            assert last[partition].offset < newest, (member.describe(), other.describe())


def check_restart(client: Client, broker: Broker, topic: str, group: str) -> None:
    """A member goes on over a restart of the broker; after a crash a new one does, as committed."""
    story = Story(client, topic, group)
    with story.join("through a restart") as member:
        story.wait_for(story.send_in_all_codecs(600), [member])
        member.commit()
        broker.restart()
        story.wait_for(story.send_in_all_codecs(300), [member])
        member.commit()
        check_received(story.sent, member.received)
    broker.kill9()
    broker.start()
    later = story.send_in_all_codecs(200)
    with story.join("after a crash") as member:
        story.wait_for(later, [member])
        check_received(later, member.received)
    story.check()


def records_of(received: Sequence[Received]) -> list[Record]:
    """Return the records alone, in the order of partitions and offsets."""
    return [found.record for found in sorted(received, key=lambda f: (f.partition, f.offset))]


class ClientError(Exception):
    """Kafka's error code, as a client's admin reported it."""

    def __init__(self, code: int) -> None:
        """Keep the code."""
        super().__init__(f"error code {code}")
        self.code = code


class Admin(Protocol):
    """One client's admin; failures are raised as ClientError."""

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        """Create a topic."""

    def partitions(self, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
        """Return leader, replicas and in-sync replicas of each partition."""

    def topics(self) -> list[str]:
        """Return the names of all topics."""

    def add_partitions(self, topic: str, total: int) -> None:
        """Raise the number of partitions."""

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""

    def configs(self, topic: str) -> dict[str, str | None]:
        """Return a topic's configuration, defaults too."""

    def set_config(self, topic: str, name: str, value: str) -> None:
        """Set one key and leave the others."""

    def groups(self) -> list[str]:
        """Return the ids of all groups."""

    def group(self, group: str) -> tuple[str, int]:
        """Return a group's state and its number of members."""

    def delete_group(self, group: str) -> None:
        """Delete a group."""

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return a group's committed offsets in a topic."""

    def offsets(self, topic: str, at: int) -> dict[int, int]:
        """Return the offset of each partition at a time, or -2 earliest, -1 latest."""

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        """Delete the records before these offsets and return the new log starts."""


TOPIC_ALREADY_EXISTS = 36
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40
NON_EMPTY_GROUP = 68
OFFSET_OUT_OF_RANGE = 1


def refused(action: Callable[[], object]) -> int:
    """Return the code with which an action is refused."""
    try:
        action()
    except ClientError as error:
        return error.code
    raise AssertionError("the broker took what it should refuse")


def eventually(condition: Callable[[], bool], wanted: str, *, s: float = 5.0) -> None:
    """Ask again until it is so: metadata may reach the broker after the controller's answer."""
    deadline = time.monotonic() + s
    while not condition():
        assert time.monotonic() < deadline, wanted


def check_topic_admin(admin: Admin, topic: str) -> None:
    """A topic is created, described, enlarged, configured and deleted; nonsense is refused."""
    admin.create_topic(topic, 2, {"retention.ms": "7200000"})
    eventually(lambda: topic in admin.topics(), "the topic is listed")
    eventually(lambda: len(admin.partitions(topic)) == 2, "the topic has its partitions")
    ((leader, _, _),) = set(map(freeze, admin.partitions(topic).values()))
    assert admin.partitions(topic) == {p: (leader, [leader], [leader]) for p in range(2)}
    assert refused(lambda: admin.create_topic(topic, 1, {})) == TOPIC_ALREADY_EXISTS
    admin.add_partitions(topic, 4)
    eventually(lambda: sorted(admin.partitions(topic)) == [0, 1, 2, 3], "partitions are added")
    assert refused(lambda: admin.add_partitions(topic, 3)) == INVALID_PARTITIONS
    shown = admin.configs(topic)
    assert shown["retention.ms"] == "7200000"
    assert shown["cleanup.policy"] == "delete"
    assert shown["segment.bytes"] == "1073741824"
    admin.set_config(topic, "cleanup.policy", "compact")
    shown = admin.configs(topic)
    assert (shown["cleanup.policy"], shown["retention.ms"]) == ("compact", "7200000")
    assert refused(lambda: admin.set_config(topic, "cleanup.policy", "nope")) == INVALID_CONFIG
    assert admin.configs(topic)["cleanup.policy"] == "compact"
    admin.delete_topic(topic)
    eventually(lambda: topic not in admin.topics(), "the topic is gone")
    assert refused(lambda: admin.delete_topic(topic)) == UNKNOWN_TOPIC_OR_PARTITION


def freeze(partition: tuple[int, list[int], list[int]]) -> tuple[int, tuple[int, ...], int]:
    """Return what is the same in every partition of a one-node cluster."""
    leader, replicas, isr = partition
    return leader, tuple(replicas), len(isr)


def check_offsets_admin(admin: Admin, client: Client, topic: str) -> None:
    """Offsets are found by time and by end; deleted records are gone and move the log's start."""
    story = Story(client, topic, "none")
    records = story.send_in_all_codecs(300)
    latest = admin.offsets(topic, -1)
    assert sum(latest.values()) == 300
    assert admin.offsets(topic, -2) == dict.fromkeys(ALL_PARTITIONS, 0)
    if client.can.timestamps and len(story.placed) == 300:
        timestamp_ms = records[200].timestamp_ms
        assert timestamp_ms is not None
        wanted = dict.fromkeys(ALL_PARTITIONS, 1 << 62)
        for record in records[200:]:
            partition, offset = story.placed[record.key]
            wanted[partition] = min(wanted[partition], offset)
        assert admin.offsets(topic, timestamp_ms) == wanted
    before = {partition: end // 2 for partition, end in latest.items()}
    assert admin.delete_records(topic, before) == before
    assert admin.offsets(topic, -2) == before
    assert admin.offsets(topic, -1) == latest
    beyond = {0: latest[0] + 1}
    assert refused(lambda: admin.delete_records(topic, beyond)) == OFFSET_OUT_OF_RANGE
    assert admin.delete_records(topic, dict.fromkeys(ALL_PARTITIONS, -1)) == latest


def check_group_admin(admin: Admin, client: Client, topic: str, group: str) -> None:
    """A group is listed and described while it lives and when it is empty, and then deleted."""
    story = Story(client, topic, group)
    records = story.send_in_all_codecs(300)
    with story.join("member") as member:
        story.wait_for(records, [member])
        member.commit()
        assert group in admin.groups()
        assert admin.group(group) == ("Stable", 1)
        assert refused(lambda: admin.delete_group(group)) == NON_EMPTY_GROUP
        ends = admin.offsets(topic, -1)
        assert admin.committed(group, topic) == {p: end for p, end in ends.items() if end}
    assert admin.group(group) == ("Empty", 0)
    assert admin.committed(group, topic) == {p: end for p, end in ends.items() if end}
    admin.delete_group(group)
    assert group not in admin.groups()
