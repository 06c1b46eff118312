"""Groups of Java consumers, confluent-kafka and ours in a test's hands, whatever their protocol.

A `Group` lets members join, leave and be killed, asks the coordinator who owns what, and checks
that each record is read by the owner of its partition.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.conformance.apache_kafka import apache_kafka
from tests.conformance.clients import scenarios
from tests.conformance.clients.confluent import ConfluentKafka, ConfluentMember
from tests.conformance.clients.members import DEADLINE_S, LineReader, Member, wait_until
from tests.conformance.clients.records import Received, Record
from tests.conformance.clients_trio.consuming import TrioConsumer, TrioMember
from tests.conformance.java_tools import KafkaTools

PARTITIONS = 6
SHARED_DEADLINE_S = 90.0  # the session of a killed member may last 45 s, the broker's default
ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class GroupSettings(NamedTuple):
    """The settings of the members of each client, by which they make one group."""

    java: Mapping[str, object]
    confluent: Mapping[str, object]
    ours: Mapping[str, Any]


def classic(strategy: str) -> GroupSettings:
    """A group of the classic protocol, with an assignor of its members."""
    java = {
        "session.timeout.ms": scenarios.SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": scenarios.HEARTBEAT_INTERVAL_MS,
        "partition.assignment.strategy": ASSIGNORS[strategy],
    }
    return GroupSettings(
        java,
        {"partition.assignment.strategy": strategy},
        {"partition_assignment_strategy": strategy},
    )


def consumer_protocol(assignor: str) -> GroupSettings:
    """A group of the consumer protocol, with an assignor of the broker."""
    named = {"group.protocol": "consumer", "group.remote.assignor": assignor}
    ours = {"group_protocol": "consumer", "group_remote_assignor": assignor}
    return GroupSettings(named, named, ours)


class JavaMember(Member):
    """The console consumer; only the coordinator knows what it is assigned."""

    def __init__(
        self, address: str, topic: str, group: str, settings: Mapping[str, object], name: str
    ) -> None:
        super().__init__(name)
        fixed = {"auto.offset.reset": "earliest", "client.id": name}
        options = ["--bootstrap-server", address, "--topic", topic, "--group", group]
        for key, value in {**fixed, **settings}.items():
            options += ["--command-property", f"{key}={value}"]
        for part in ("partition", "offset"):
            options += ["--formatter-property", f"print.{part}=true"]
        self._command = apache_kafka().tool_command("kafka-console-consumer", options)
        self._process: subprocess.Popen[bytes] | None = None
        self._output: LineReader | None = None
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)

    def start(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=pipe)
        self._output = LineReader(self._process)
        self._thread.start()

    def _listen(self) -> None:
        assert self._output is not None
        while (line := self._output.next_line(None)) is not None:
            partition, offset, value = line.decode().rstrip("\n").split("\t")
            number = value.encode()
            record = Record(number, number)
            self.add([Received(int(partition[10:]), int(offset[7:]), record)])
        if not self._left:
            self.fail("the console consumer ended by itself")

    def _ask(self, command: str) -> None:
        assert command == "leave", "it commits by itself"
        assert self._process is not None
        self._process.terminate()
        self._process.wait(DEADLINE_S)
        self._free()

    def abandon(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._left = True
            self._process.kill()
            self._process.wait()
            self._free()

    def _free(self) -> None:
        assert self._output is not None
        self._thread.join(DEADLINE_S)
        self._output.close()


class LateConfluentMember(ConfluentMember):
    """In a cooperative group librdkafka may have joined again before its application has committed.

    Then that commit is refused, and what it covers is read again by the next owner.
    """

    is_late = False

    def commit_positions(self) -> None:
        library = self._client.library
        try:
            super().commit_positions()
        except library.KafkaException as failure:
            if failure.args[0].code() != library.KafkaError.ILLEGAL_GENERATION:
                raise
            self.is_late = True


class Group:
    """The group, as its coordinator and its members see it."""

    def __init__(self, kafka: KafkaTools, topic: str, group: str, settings: GroupSettings) -> None:
        self.kafka = kafka
        self.topic = topic
        self.group = group
        self.settings = settings
        self.members: dict[str, Member] = {}
        self.gone: list[Member] = []
        self._client = ConfluentKafka(kafka.address)
        self._sent: list[bytes] = []
        self._killed = False

    def join(self, name: str) -> Member:
        """Let a member join: java, confluent or ours."""
        address, settings = self.kafka.address, self.settings
        member: Member
        if name.startswith("java"):
            member = JavaMember(address, self.topic, self.group, settings.java, name)
        elif name.startswith("confluent"):
            self._client.group_settings |= settings.confluent
            member = LateConfluentMember(self._client, self.topic, self.group, name)
        else:
            client = TrioConsumer(address, **settings.ours)
            member = client.member(self.topic, self.group, name)
        self.members[name] = member
        member.start()
        return member

    def leave(self, name: str) -> None:
        """Let a member leave properly; the Java consumer commits by itself."""
        member = self.members.pop(name)
        if not isinstance(member, JavaMember):
            member.commit()
        member.leave()
        self.gone.append(member)

    def kill(self, name: str) -> None:
        """Let a member's process die; what it has not committed is read again."""
        member = self.members.pop(name)
        assert isinstance(member, JavaMember), "the others live in the test's own process"
        member.abandon()
        self.gone.append(member)
        self._killed = True

    def abandon(self) -> None:
        """End the members that are left, after a failure or at the end."""
        for member in self.members.values():
            member.abandon()

    def owners(self) -> dict[str, frozenset[int]]:
        """Ask the coordinator who owns what."""
        command = ("kafka-consumer-groups", "--describe", "--group", self.group)
        shown = self.kafka.run(*command, "--members", "--verbose", check=False)
        rows = shown.rows("GROUP")
        return {row["CLIENT-ID"]: _partitions(row["CURRENT-ASSIGNMENT"]) for row in rows}

    def wait_shared(self) -> dict[str, frozenset[int]]:
        """Wait until the members share all partitions evenly; return who has what."""
        share = PARTITIONS // len(self.members)
        owners: dict[str, frozenset[int]] = {}

        def is_shared() -> bool:
            nonlocal owners
            owners = self.owners()
            return owners.keys() == self.members.keys() and all(
                len(owned) == share for owned in owners.values()
            )

        wait_asking(is_shared, lambda: f"{owners} of {sorted(self.members)}")
        everything = [partition for owned in owners.values() for partition in owned]
        assert sorted(everything) == list(range(PARTITIONS)), owners
        for name, member in self.members.items():
            if isinstance(member, TrioMember | ConfluentMember):
                wait_until(
                    lambda m=member, n=name: m.assignment == owners[n],  # type: ignore[misc]
                    [member],
                    f"{name} has {sorted(owners[name])}",
                )
        return owners

    def send(self, owners: dict[str, frozenset[int]], count: int = 300) -> None:
        """Send records to all partitions: each is read by its owner alone."""
        before = {name: len(member.received) for name, member in self.members.items()}
        numbers = [b"%06d" % (len(self._sent) + index) for index in range(count)]
        producer = self._client._producer("lz4")
        for index, number in enumerate(numbers):
            producer.produce(self.topic, number, key=number, partition=index % PARTITIONS)
        assert producer.flush(scenarios.DEADLINE_S) == 0
        self._sent += numbers
        members = list(self.members.values())
        wait_until(
            lambda: not set(numbers).difference(*(member.keys for member in members)),
            members,
            f"all {count} records",
        )
        for name, member in self.members.items():
            news = [each for each in member.received[before[name] :] if each.record.key in numbers]
            assert {found.partition for found in news} == owners[name], name
            assert len(news) == count // len(self.members), (name, len(news))

    def check(self) -> None:
        """Assert that everything was read and, unless a member died, nothing twice."""
        everybody = [*self.members.values(), *self.gone]
        places = [(each.partition, each.offset) for m in everybody for each in m.received]
        assert len(set(places)) == len(self._sent)
        if self._killed:
            return
        if not any(isinstance(m, LateConfluentMember) and m.is_late for m in everybody):
            assert len(places) == len(set(places))


def _partitions(text: str) -> frozenset[int]:
    """Read topic:0,1,2 as the tool prints it."""
    _, _, listed = text.rpartition(":")
    return frozenset(int(number) for number in listed.split(",") if number.strip().isdigit())


def wait_asking(condition: Callable[[], bool], wanted: Callable[[], str]) -> None:
    """Ask until a condition holds; each question runs a tool, however long that takes."""
    deadline = time.monotonic() + SHARED_DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, wanted()
        time.sleep(0.1)
