"""A broker that is killed (kill -9) again and again under load loses and doubles nothing.

An idempotent producer with acks=all and several batches in flight per partition writes numbered
records: record n of a partition has offset n if and only if every record is there exactly once and
in order. A consumer group reads and commits meanwhile; what it finds committed after a crash is
never before a commit that was acknowledged. The moments of the kills come from a seeded generator,
among them moments while the broker starts and recovers.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import FindCoordinatorRequest
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kraftrio.wire.records.batch import Record, build_batch
from tests.conformance.broker_process import Broker
from tests.integration.wire_client import WireClient, fetch_request, produce_request, records_of

ROUNDS = 50
PARTITIONS = 3
TOPIC = "numbers"
GROUP = "readers"
MAX_IN_FLIGHT = 5
SESSION_MS = 10_000  # how long a member is waited for whose join was lost
END_DEADLINE_S = 60.0

# What a broker may answer while it comes up; everything else is a fault.
PASSING = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
}


class NotNow(Exception):
    """The broker answers that it will serve this later."""


def check(code: int) -> None:
    """Raise NotNow for an error that passes, and fail for one that should never be answered."""
    if code in PASSING:
        raise NotNow(ErrorCode(code).name)
    assert code == ErrorCode.NONE, ErrorCode(code).name


class Worker(threading.Thread):
    """A client that connects again and again until its work is done."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self.broker = broker
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.is_done():
                try:
                    with WireClient((self.broker.host, self.broker.port)) as client:
                        self.work(client)
                except (OSError, EOFError, NotNow):
                    time.sleep(0.02)  # the broker is down or starting: ask again soon
        except BaseException as error:
            self.error = error

    def is_done(self) -> bool:
        raise NotImplementedError

    def work(self, client: WireClient) -> None:
        """Work until done or until the connection breaks."""
        raise NotImplementedError


@dataclass
class Sent:
    """A batch that is written and not acknowledged yet."""

    first: int
    count: int
    batch: bytearray


@dataclass
class PartitionProducer:
    """One partition's numbering; sequence numbers are the records' numbers."""

    next_number: int = 0
    acknowledged: int = 0
    unacknowledged: deque[Sent] = field(default_factory=deque)


class Producer(Worker):
    """An idempotent producer: resends what is not acknowledged, in order, with its sequences."""

    def __init__(self, broker: Broker, rng: random.Random) -> None:
        super().__init__(broker)
        self.rng = rng
        self.producer: tuple[int, int] | None = None
        self.partitions = [PartitionProducer() for _ in range(PARTITIONS)]

    def is_done(self) -> bool:
        return self.stopping.is_set() and not any(p.unacknowledged for p in self.partitions)

    def acknowledged(self) -> int:
        """How many records were acknowledged so far."""
        return sum(p.acknowledged for p in self.partitions)

    def work(self, client: WireClient) -> None:
        if self.producer is None:
            self.producer = client.init_producer()
        order: deque[int] = deque()
        for index, partition in enumerate(self.partitions):
            for sent in partition.unacknowledged:
                client.send(produce_request(TOPIC, index, sent.batch))
                order.append(index)
        while not self.is_done():
            if not self.stopping.is_set():
                for index, partition in enumerate(self.partitions):
                    while len(partition.unacknowledged) < MAX_IN_FLIGHT:
                        sent = self.new_batch(index, partition)
                        partition.unacknowledged.append(sent)
                        client.send(produce_request(TOPIC, index, sent.batch))
                        order.append(index)
            self.receive(client, order.popleft())

    def receive(self, client: WireClient, index: int) -> None:
        answer = client.receive().responses[0].partition_responses[0]
        check(answer.error_code)
        partition = self.partitions[index]
        sent = partition.unacknowledged[0]
        assert answer.index == index
        assert answer.base_offset == sent.first, f"record {sent.first} is at {answer.base_offset}"
        partition.unacknowledged.popleft()
        partition.acknowledged = sent.first + sent.count

    def new_batch(self, index: int, partition: PartitionProducer) -> Sent:
        first, count = partition.next_number, self.rng.randint(1, 8)
        partition.next_number += count
        assert self.producer is not None
        padding = b"x" * self.rng.choice((0, 100, 3000))
        batch = build_batch(
            [
                Record(n, 1_700_000_000_000 + n, b"%d" % index, b"%d " % (first + n) + padding)
                for n in range(count)
            ],
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=first,
        )
        return Sent(first, count, batch)


class Consumer(Worker):
    """The only member of a group: reads on from what is committed and commits what it read."""

    def __init__(self, broker: Broker, producer: Producer) -> None:
        super().__init__(broker)
        self.producer = producer
        self.member_id = ""
        self.generation_id = -1
        self.committed = [0] * PARTITIONS  # acknowledged
        self.sent = [0] * PARTITIONS  # the newest that was asked for
        self.positions = [0] * PARTITIONS
        self.resumed = 0

    def is_done(self) -> bool:
        return (
            self.stopping.is_set()
            and not self.producer.is_alive()
            and self.committed == [p.next_number for p in self.producer.partitions]
        )

    def work(self, client: WireClient) -> None:
        found = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
        check(found.coordinators[0].error_code)
        self.resume(client)
        while not self.is_done():
            if self.generation_id < 0 and not self.join_group(client):
                continue
            self.read(client)
            self.commit(client)

    def resume(self, client: WireClient) -> None:
        """Go on where the group committed: never before what was acknowledged."""
        topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(range(PARTITIONS)))
        response = client.call(OffsetFetchRequest(group_id=GROUP, topics=[topic]), 7)
        check(response.error_code)
        for answer in response.topics[0].partitions:
            check(answer.error_code)
            index, offset = answer.partition_index, max(answer.committed_offset, 0)
            assert self.committed[index] <= offset <= self.sent[index], (
                f"partition {index}: {offset} is committed, acknowledged was"
                f" {self.committed[index]}, asked for {self.sent[index]}"
            )
            self.positions[index] = self.committed[index] = offset
        self.resumed += 1

    def join_group(self, client: WireClient) -> bool:
        joined = client.call(
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
        )
        if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:  # it was given by a life before
            self.member_id = ""
            return False
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return False
        check(joined.error_code)
        assignment = SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all")
        synced = client.call(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[assignment],
            )
        )
        check(synced.error_code)
        self.generation_id = joined.generation_id
        return True

    def read(self, client: WireClient) -> None:
        response = client.call(
            fetch_request(TOPIC, dict(enumerate(self.positions)), max_wait_ms=50)
        )
        for answer in response.responses[0].partitions:
            check(answer.error_code)
            index = answer.partition_index
            for record in records_of(answer.records, self.positions[index]):
                assert record.offset == self.positions[index], "an offset is missing"
                assert record.value is not None
                assert int(record.value.split()[0]) == record.offset, "not exactly once, in order"
                self.positions[index] += 1

    def commit(self, client: WireClient) -> None:
        beat = client.call(
            HeartbeatRequest(
                group_id=GROUP, generation_id=self.generation_id, member_id=self.member_id
            )
        )
        if self.must_rejoin(beat.error_code):
            return
        wanted = list(self.positions)
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            for index, offset in enumerate(wanted)
        ]
        self.sent = wanted
        response = client.call(
            OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=self.generation_id,
                member_id=self.member_id,
                topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
            )
        )
        codes = {answer.error_code for answer in response.topics[0].partitions}
        assert len(codes) == 1, "one record batch: committed whole or not at all"
        if not self.must_rejoin(codes.pop()):
            self.committed = wanted

    def must_rejoin(self, code: int) -> bool:
        """A join whose response was lost, or whose record the crash took, has to be repeated."""
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            self.generation_id = -1
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            return True
        check(code)
        return False


class CrashingBroker(Broker):
    """A broker that can also be killed before it is ready."""

    def start_and_kill(self, delay_s: float) -> None:
        """Kill the process a while after its start, wherever it is then."""
        with self.log_path.open("a") as log:
            process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
            )
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        else:
            raise AssertionError(f"ended by itself\n{self.log_tail()}")


@pytest.mark.timeout(300)
def test_fifty_kills_under_load_lose_and_double_nothing(tmp_path: Path) -> None:
    """Every acknowledged record is there once, in order; the group never goes back."""
    seed = int(os.environ.get("FAULT_TEST_SEED", "0")) or random.SystemRandom().getrandbits(32)
    print(f"FAULT_TEST_SEED={seed}")
    rng = random.Random(seed)
    broker = CrashingBroker(
        tmp_path / "broker",
        log_segment_bytes=1 << 20,
        log_retention_ms=-1,  # the records' times are old
        log_flush_offset_checkpoint_interval_ms=200,
        replica_high_watermark_checkpoint_interval_ms=200,
    ).start()
    with WireClient((broker.host, broker.port)) as client:
        assert client.create_topic(TOPIC, PARTITIONS) is ErrorCode.NONE
    producer = Producer(broker, random.Random(seed + 1))
    consumer = Consumer(broker, producer)
    producer.start()
    consumer.start()
    fruitful = 0
    try:
        for _ in range(ROUNDS):
            before = producer.acknowledged()
            wait_a_moment(rng.uniform(0.0, 0.5), producer, consumer)
            broker.kill9()
            fruitful += producer.acknowledged() > before
            while rng.random() < 0.25:
                broker.start_and_kill(rng.uniform(0.1, 0.7))
            broker.start()
        for worker in (producer, consumer):
            worker.stopping.set()
            worker.join(END_DEADLINE_S)
            raise_error_of(worker)
            assert not worker.is_alive(), f"no end in sight\n{broker.log_tail()}"
        with WireClient((broker.host, broker.port)) as client:
            for index, partition in enumerate(producer.partitions):
                check_whole(client, index, partition.next_number)
    finally:
        producer.stopping.set()
        consumer.stopping.set()
        if producer.error or consumer.error:
            broker.kill9()
    broker.close()
    assert fruitful > ROUNDS // 2, "the kills came too fast for any work"
    assert consumer.resumed > ROUNDS // 2
    print(f"{producer.acknowledged()} records, {fruitful} rounds with acknowledgements")


def wait_a_moment(delay_s: float, *workers: Worker) -> None:
    """Let the clients work for a random while, and end early if one found a fault."""
    deadline = time.monotonic() + delay_s
    while (left := deadline - time.monotonic()) > 0:
        for worker in workers:
            raise_error_of(worker)
        time.sleep(min(left, 0.05))


def raise_error_of(worker: Worker) -> None:
    if worker.error is not None:
        raise worker.error


def check_whole(client: WireClient, index: int, count: int) -> None:
    """The partition holds the records 0..count-1, each at its own offset."""
    records = client.fetch_all(TOPIC, index)
    assert [record.offset for record in records] == list(range(count))
    assert [int((record.value or b"").split()[0]) for record in records] == list(range(count))
