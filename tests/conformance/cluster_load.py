"""Producers that work while nodes fail, what was acknowledged to them, and what the logs hold.

Two unmodified clients: Apache's verifiable producer in a JVM of its own and confluent-kafka
(librdkafka) in a thread, both idempotent with acks=all and retries without end. Each numbers its
values; `check_log` compares what was acknowledged with what is read back over raw frames: at its
offset, once, in the order in which it was sent. `replica_bytes` is what one node has on its disk.
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kraftrio.wire.errors import ErrorCode
from tests.conformance.cases.calls import LATEST, fetch, list_offset, records_in
from tests.conformance.clients.install import python_client
from tests.conformance.cluster_process import Cluster
from tests.conformance.java_tools import KafkaTools, RunningTool

FLUSH_S = 60.0
# What the verifiable producer says of the record that it was about to send when it was stopped.
NOT_SENT = (
    "Producer closed while allocating memory",
    "Producer closed while send in progress",
    "Cannot perform operation after producer has been closed",
    "Requested metadata update after close",
)
log = logging.getLogger("cluster-load")
log.setLevel(logging.CRITICAL)  # librdkafka logs every refused connection


class ClientLog(logging.Handler):
    """Keeps the newest lines of a librdkafka for whoever reads the message of a failure."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=200)
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(self.format(record))

    def logger(self) -> logging.Logger:
        """Return a logger whose lines come here alone."""
        logger = logging.Logger("cluster-load", logging.DEBUG)
        logger.addHandler(self)
        return logger


@dataclass
class Acknowledged:
    """What brokers promised to keep: values by partition and offset."""

    values: dict[tuple[int, int], str] = field(default_factory=dict)
    without_offset: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    last_at: float = 0.0
    longest_gap_s: float = 0.0
    last_at_of: dict[int, float] = field(default_factory=dict)  # by partition
    client_log: ClientLog = field(default_factory=ClientLog, repr=False)

    def add(self, partition: int, offset: int | None, value: str) -> None:
        """Note an acknowledgement; an offset can be promised once.

        librdkafka has no offset for a record that the answer to a later batch acknowledged.
        """
        if offset is None:
            self.without_offset.add(value)
        else:
            place = partition, offset
            if place in self.values:
                self.failures.append(f"{place} is promised for {self.values[place]} and {value}")
            self.values[place] = value
        now = time.monotonic()
        if self.last_at:
            self.longest_gap_s = max(self.longest_gap_s, now - self.last_at)
        self.last_at = self.last_at_of[partition] = now

    @property
    def count(self) -> int:
        """How many records were acknowledged."""
        return len(self.values) + len(self.without_offset)


class JavaLoad:
    """Apache's verifiable producer; its values are 0, 1, 2... with a prefix and a dot."""

    prefix = "1"  # the tool takes numbers only

    def __init__(
        self, kafka: KafkaTools, topic: str, folder: Path, throughput: int, count: int = -1
    ) -> None:
        self.acknowledged = Acknowledged()
        settings = folder / "verifiable-producer.properties"
        # The tool's own default are no retries, and so no idempotence.
        settings.write_text(
            "retries=2147483647\nenable.idempotence=true\nacks=all\nlinger.ms=5\n"
            "delivery.timeout.ms=300000\nrequest.timeout.ms=5000\n"
        )
        options = ["--topic", topic, "--throughput", str(throughput), "--max-messages", str(count)]
        options += ["--value-prefix", self.prefix, "--command-config", str(settings)]
        self.tool: RunningTool = kafka.start("kafka-verifiable-producer", *options)
        self._errors: list[str] = []
        self._is_stopping = False
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.tool.process.stdout is not None
        for line in self.tool.process.stdout:
            event = json.loads(line)
            if event["name"] == "producer_send_success":
                self.acknowledged.add(event["partition"], event["offset"], event["value"])
            elif event["name"] == "producer_send_error" and not (
                self._is_stopping and event["message"] in NOT_SENT
            ):
                self.acknowledged.failures.append(event["message"])

    def _read_errors(self) -> None:
        assert self.tool.process.stderr is not None
        self._errors += self.tool.process.stderr

    def wait(self, timeout_s: float = FLUSH_S) -> None:
        """Wait until it has sent as many records as it should, and ended."""
        try:
            self.tool.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            ages = {one: now - at for one, at in sorted(self.acknowledged.last_at_of.items())}
            raise AssertionError(
                f"the producer did not end in {timeout_s:g} s. Seconds since a partition's last "
                f"acknowledgement: {ages}. It said:\n{''.join(self._errors)}"
            ) from None
        for reader in self._readers:
            reader.join(timeout_s)

    def stop(self) -> None:
        """End it, once what it has sent is acknowledged."""
        self._is_stopping = True
        self.tool.process.terminate()
        self.wait()

    def __enter__(self) -> JavaLoad:
        return self

    def __exit__(self, *_: object) -> None:
        if self.tool.process.poll() is None:
            self.tool.process.kill()
            self.tool.process.wait()
        for stream in (self.tool.process.stdin, self.tool.process.stdout, self.tool.process.stderr):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()


class ConfluentLoad(threading.Thread):
    """An idempotent producer of confluent-kafka; its values are c.0, c.1, c.2..."""

    def __init__(
        self,
        address: str,
        topic: str,
        partitions: int,
        throughput: int,
        *,
        padding_bytes: int = 0,
        **settings: object,
    ) -> None:
        super().__init__(daemon=True)
        self.acknowledged = Acknowledged()
        self.fatal: list[str] = []
        self.sent = 0
        self._padding = " " + "x" * padding_bytes
        self._topic, self._partitions, self._pause_s = topic, partitions, 1 / throughput
        self._stopping = threading.Event()
        library = python_client("confluent_kafka")
        chosen = {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "message.timeout.ms": 300_000,
            "request.timeout.ms": 5_000,
            "socket.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 500,
            "error_cb": self._on_error,
            "debug": "eos",  # when it begins a new epoch, and why
            "logger": self.acknowledged.client_log.logger(),
        }
        chosen |= {name.replace("_", "."): value for name, value in settings.items()}
        self._producer: Any = library.Producer(chosen)
        self.start()

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.fatal.append(str(error))

    def run(self) -> None:
        """Send at the chosen rate until it is stopped."""
        begin = time.monotonic()
        while not self._stopping.is_set():
            value = f"c.{self.sent}"
            with contextlib.suppress(BufferError):
                self._producer.produce(
                    self._topic,
                    value=(value + self._padding).encode(),
                    partition=self.sent % self._partitions,
                    on_delivery=self._delivered(value),
                )
                self.sent += 1
            ahead = self.sent * self._pause_s - (time.monotonic() - begin)
            self._producer.poll(max(0.0, ahead))

    def _delivered(self, value: str) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.acknowledged.failures.append(f"{value}: {error}")
            else:
                self.acknowledged.add(message.partition(), message.offset(), value)

        return delivered

    def stop(self) -> None:
        """End it, and wait until all that was sent is acknowledged."""
        self._stopping.set()
        self.join(FLUSH_S)
        assert not self.is_alive()
        left = self._producer.flush(FLUSH_S)
        assert left == 0, f"{left} records are not acknowledged in {FLUSH_S:g} s; {self.fatal}"
        assert not self.fatal, self.fatal

    def __enter__(self) -> ConfluentLoad:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join(FLUSH_S)
        self._producer.purge()
        self._producer.flush(5)


def read_log(cluster: Cluster, topic: str, partition: int) -> dict[int, str]:
    """Read all that is committed in a partition from its leader, by offset, without padding."""
    found: dict[int, str] = {}
    with cluster.node(cluster.leader(topic, partition)).client() as client:
        answer = list_offset(client, topic, LATEST, partition)
        assert answer.error_code == ErrorCode.NONE
        position = 0
        while position < answer.offset:
            data = fetch(client, topic, position, partition, partition_max_bytes=1 << 22)
            assert data.error_code == ErrorCode.NONE
            records = [one for one in records_in(data.records) if one.offset >= position]
            assert records, f"nothing at {position} of {answer.offset}"
            for record in records:
                found[record.offset] = (record.value or b"").decode().rstrip(" x")
            position = records[-1].offset + 1
    return found


def check_log(
    cluster: Cluster, topic: str, partitions: int, *loads: Acknowledged
) -> dict[tuple[int, int], str]:
    """Assert that all that was acknowledged is in the log once, in order; return the log."""
    found = {
        (partition, offset): value
        for partition in range(partitions)
        for offset, value in read_log(cluster, topic, partition).items()
    }
    for load in loads:
        assert not load.failures, load.failures[:5]
        for place, value in load.values.items():
            assert found.get(place) == value, f"{place}: {found.get(place)}, promised {value}"
        lost = load.without_offset - set(found.values())
        assert not lost, f"acknowledged and not there: {sorted(lost)[:10]}"
    doubled = [value for value, times in Counter(found.values()).items() if times > 1]
    lines = [line for load in loads for line in load.client_log.lines]
    assert not doubled, "\n".join([f"twice or more: {doubled[:10]}", *lines])
    newest: dict[tuple[int, str], int] = defaultdict(lambda: -1)
    for (partition, offset), value in sorted(found.items()):
        producer, _, number = value.partition(".")
        assert newest[partition, producer] < int(number), f"{value} at {partition}/{offset} is late"
        newest[partition, producer] = int(number)
    return found


def replica_bytes(cluster: Cluster, node_id: int, topic: str, partition: int) -> bytes:
    """Return all bytes of a partition's log on a node's disk, in one piece.

    Replicas may roll their segments at other offsets.
    """
    folder = cluster.node(node_id).data_directory / f"{topic}-{partition}"
    return b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))


def check_replicas(cluster: Cluster, topic: str, partitions: int) -> None:
    """Assert that all replicas have the same bytes, the newest included."""
    for partition in range(partitions):
        found = cluster.partition(topic, partition)
        assert found is not None
        first, *others = found.replica_nodes

        def same(
            partition: int = partition, first: int = first, others: list[int] = others
        ) -> bool:
            wanted = replica_bytes(cluster, first, topic, partition)
            return all(replica_bytes(cluster, i, topic, partition) == wanted for i in others)

        cluster.wait_until(same, f"the replicas of {topic}-{partition} are identical", 15)


def wait_for_more(cluster: Cluster, loads: list[Acknowledged], count: int = 1) -> None:
    """Wait until each of some producers got another acknowledgement."""
    before = [load.count for load in loads]

    def more() -> bool:
        return all(
            load.count >= earlier + count for load, earlier in zip(loads, before, strict=True)
        )

    cluster.wait_until(more, "producers go on", 60)
