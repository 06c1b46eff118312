"""kcat (an older librdkafka) as it is: producing, groups with automatic commits, looking around.

The first record creates the topic. A record of its producer is a line, so values are letters and
digits, with the same headers for a whole invocation.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from kraftrio.wire.messages.groups import OffsetFetchRequest
from tests.conformance.broker_process import Broker, start_broker
from tests.conformance.clients import scenarios
from tests.conformance.clients.install import Kcat, kcat
from tests.conformance.clients.members import DEADLINE_S, Member, wait_until
from tests.conformance.clients.records import (
    Abilities,
    Received,
    Record,
    check_received,
    make_record,
)
from tests.integration.wire_client import WireClient

pytestmark = scenarios.MARKS

Names = Callable[[], str]

# Lengths first, so that any byte may stand in a key or value; a null's length is -1.
FORMAT = r"%p %o %T %K %S\n%k%s%h\n"
HEAD = re.compile(rb"(\d+) (\d+) (-?\d+) (-?\d+) (-?\d+)\n")


class KcatClient:
    """The client of the scenarios."""

    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")
    can = Abilities(binary=False, null_values=False, headers=False, timestamps=False)
    commits_at_rebalance = True
    commits_at_leave = True

    def __init__(self, program: Kcat, address: str) -> None:
        self.program = program
        self.address = address

    def create_topic(self, topic: str, partitions: int) -> None:
        """Ask for the topic until the broker has created it, with its own number of partitions."""
        scenarios.eventually(lambda: len(self.partitions(topic)) == partitions, "it is created")

    def partitions(self, topic: str) -> list[dict[str, int]]:
        """Return a topic's partitions that have a leader."""
        (listed,) = json.loads(self.run("-L", "-J", "-t", topic))["topics"]
        return [found for found in listed["partitions"] if found["leader"] >= 0]

    def run(self, *arguments: str, data: bytes = b"") -> bytes:
        """Run kcat to its end and return what it printed."""
        done = subprocess.run(
            [self.program.path, "-b", self.address, *arguments],
            input=data,
            capture_output=True,
            env=os.environ | self.program.environment,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"kcat {arguments}: {done.stderr.decode(errors='replace')}"
        return done.stdout

    def produce(self, topic: str, codec: str, records: Sequence[Record]) -> None:
        options = ["-P", "-t", topic, "-K", "\t", "-z", codec]
        for name, value in records[0].headers:
            options += ["-H", f"{name}={(value or b'').decode()}"]
        lines = [b"%s\t%s\n" % (record.key, record.value) for record in records]
        self.run(*options, data=b"".join(lines))

    def member(self, topic: str, group: str, name: str) -> KcatMember:
        return KcatMember(self, topic, group, name)


class KcatMember(Member):
    """`kcat -G`: it commits by itself, when a rebalance takes partitions and when it leaves."""

    def __init__(self, client: KcatClient, topic: str, group: str, name: str) -> None:
        super().__init__(name)
        self._client, self._topic, self._group = client, topic, group
        options = {
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "session.timeout.ms": scenarios.SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": scenarios.HEARTBEAT_INTERVAL_MS,
            "fetch.wait.max.ms": 100,
            # A broker that is back is found well within the session, however long its start took.
            "reconnect.backoff.max.ms": 500,
        }
        self._command = [client.program.path, "-b", client.address, "-E", "-u", "-f", FORMAT]
        for option, value in options.items():
            self._command += ["-X", f"{option}={value}"]
        self._command += ["-G", group, topic]
        self._process: subprocess.Popen[bytes] | None = None
        self._threads: list[threading.Thread] = []
        self._noise = ""

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | self._client.program.environment,
        )
        for target in (self._read_records, self._read_messages):
            thread = threading.Thread(target=target, name=self.name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _read_records(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while head := self._process.stdout.readline():
            found = HEAD.fullmatch(head)
            if not found:
                self.fail(f"not a head: {head!r}")
                return
            partition, offset, timestamp_ms, *sizes = map(int, found.groups())
            key, value = (self._process.stdout.read(max(size, 0)) for size in sizes)
            headers = self._process.stdout.readline().rstrip(b"\n")
            pairs = [pair.split(b"=", 1) for pair in headers.split(b",") if pair]
            record = Record(
                key,
                None if sizes[1] < 0 else value,
                tuple((name.decode(), text) for name, text in pairs),
                timestamp_ms,
            )
            self.add([Received(partition, offset, record)])
        if not self._left:
            self.fail("kcat ended by itself")

    def _read_messages(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            text = line.decode(errors="replace")
            self._noise = (self._noise + text)[-3000:]
            if "rebalanced" in text and ("assigned:" in text or "revoked:" in text):
                listed = {int(number) for number in re.findall(r"\[(\d+)\]", text)}
                self.assign(() if "revoked:" in text else listed)

    def commit(self) -> None:
        """Wait until it has committed what it printed, as it does by itself from time to time."""
        ends = {found.partition: found.offset + 1 for found in self.received}

        def has_committed() -> bool:
            committed = self._committed()
            return all(committed.get(partition, -1) >= end for partition, end in ends.items())

        scenarios.eventually(has_committed, "it commits", s=DEADLINE_S)

    def _committed(self) -> dict[int, int]:
        """The group's committed offsets by partition."""
        host, port = self._client.address.rsplit(":", 1)
        with WireClient((host, int(port))) as asked:
            response = asked.call(OffsetFetchRequest(group_id=self._group, topics=None), 2)
        return {
            found.partition_index: found.committed_offset
            for topic in response.topics
            if topic.name == self._topic
            for found in topic.partitions
        }

    def _ask(self, command: str) -> None:
        """Leave, on SIGTERM, as a person ends it."""
        assert command == "leave"
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(DEADLINE_S)
        self._free()
        assert code == 0, f"exit code {code}\n{self.describe()}"

    def abandon(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._left = True
            self._process.kill()
            self._process.wait()
            self._free()

    def _free(self) -> None:
        assert self._process is not None
        for thread in self._threads:
            thread.join(DEADLINE_S)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def describe(self) -> str:
        return f"{super().describe()}\n--- stderr of {self.name}\n{self._noise}"


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose new topics have as many partitions as the scenarios want."""
    kcat()
    directory = tmp_path_factory.mktemp("kcat")
    broker = start_broker(directory, num_partitions=scenarios.PARTITIONS)
    yield broker
    broker.close()


@pytest.fixture
def client(own_broker: Broker) -> KcatClient:
    """Kcat at that broker."""
    return KcatClient(kcat(), own_broker.address)


def test_group(client: KcatClient, unique_topic: Names, unique_group: Names) -> None:
    """A topic's records through a group whose members come and go."""
    scenarios.check_group(client, unique_topic(), unique_group())


def test_restart(
    client: KcatClient, own_broker: Broker, unique_topic: Names, unique_group: Names
) -> None:
    """Members go on over a stop and a crash of the broker."""
    scenarios.check_restart(client, own_broker, unique_topic(), unique_group())


def test_headers(client: KcatClient, unique_topic: Names, unique_group: Names) -> None:
    """Headers come back with their records."""
    topic = unique_topic()
    client.create_topic(topic, scenarios.PARTITIONS)
    sent: list[Record] = []
    for headers in ((), (("a", b"1"),), (("a", b"1"), ("b", b""), ("a", b"2 3"))):
        numbers = range(len(sent), len(sent) + 20)
        records = [make_record(n, client.can)._replace(headers=headers) for n in numbers]
        client.produce(topic, "lz4", records)
        sent += records
    with client.member(topic, unique_group(), "reader") as reader:
        wait_until(lambda: len(reader.keys) == len(sent), [reader], "all of them")
    check_received(sent, reader.received)


def test_metadata(client: KcatClient, unique_topic: Names) -> None:
    """-L lists the broker and the topic with its partitions."""
    topic = unique_topic()
    client.create_topic(topic, scenarios.PARTITIONS)
    shown = json.loads(client.run("-L", "-J", "-t", topic))
    (broker,) = shown["brokers"]
    assert broker["name"] == client.address
    (listed,) = shown["topics"]
    assert listed["topic"] == topic
    assert [p["partition"] for p in listed["partitions"]] == list(range(scenarios.PARTITIONS))
    assert {p["leader"] for p in listed["partitions"]} == {broker["id"]}


def test_offsets(client: KcatClient, unique_topic: Names) -> None:
    """-Q finds offsets by time; -o reads from the end, from the beginning and between times."""
    topic = unique_topic()
    client.create_topic(topic, scenarios.PARTITIONS)
    lines = "".join(f"value-{n}\n" for n in range(100)).encode()
    client.run("-P", "-t", topic, "-p", "1", data=lines)
    end = client.run("-Q", "-t", f"{topic}:1:-1").decode()
    start = client.run("-Q", "-t", f"{topic}:1:-2").decode()
    first = int(re.search(r"offset (\d+)", start)[1])  # type: ignore[index]
    last = int(re.search(r"offset (\d+)", end)[1])  # type: ignore[index]
    assert (first, last) == (0, 100)
    chosen = ["-C", "-e", "-q", "-t", topic, "-p", "1"]
    assert client.run(*chosen, "-o", "-10").split() == lines.split()[-10:]
    assert client.run(*chosen, "-o", "beginning").split() == lines.split()
    assert client.run(*chosen, "-o", str(last - 3)).split() == lines.split()[-3:]
    assert client.run(*chosen, "-o", "end") == b""
