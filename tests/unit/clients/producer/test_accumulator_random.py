"""The producer's core against brokers that fail in every way: nothing lost, doubled or reordered.

One seed is one run: records are accepted while requests are lost before or after they are
written, refused for a while or for good, found too large, or answered late; then all heals.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

import pytest

from kraftrio.clients.producer.batch import Batch, Delivery
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.records.batch import parse_header
from tests.unit.clients.producer.producing import Core, Partition

SEEDS = 150
STEPS = 400
IN_FLIGHT = 5
REFUSALS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
)


@dataclass
class Sent:
    """A request as it was on the wire."""

    batches: list[tuple[Batch, bytes]]


class World:
    """A producer, one broker and what goes wrong between them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.partitions = self.rng.randint(1, 3)
        self.core = Core(
            self.partitions,
            fresh=True,
            batch_size=self.rng.choice((200, 1000, 4000)),
            linger_ms=self.rng.choice((0, 5, 50)),
            compression_type=self.rng.choice(("none", "lz4")),
            delivery_timeout_ms=self.rng.choice((30_100, 120_000)),
        )
        self.logs = [Partition(self.rng.choice((600, 1 << 30))) for _ in range(self.partitions)]
        self.connection: deque[Sent] = deque()
        self.accepted: list[tuple[int, bytes, Delivery]] = []
        self.refused: set[Batch] = set()
        self.faulty = True

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
        self.faulty = False
        for _ in range(2000):
            if not self.core.accumulator.incomplete:
                break
            self.core.flush()
            self.pump()
            while self.connection:
                self.answer(self.connection.popleft())
            self.core.wait(300)
        assert not self.core.accumulator.incomplete, "everything ends once all is well"

    def step(self) -> None:
        action = self.rng.random()
        if action < 0.5:
            self.accept()
        elif action < 0.75:
            self.pump()
        elif action < 0.97:
            if self.connection:
                self.answer(self.connection.popleft())
        elif action < 0.985:
            self.lose_connection()
        else:
            self.core.wait(self.rng.choice((1, 100, 1000, 31_000)))

    def accept(self) -> None:
        partition = self.rng.randrange(self.partitions)
        value = b"%d:" % len(self.accepted) + b"x" * self.rng.randrange(150)
        delivery = self.core.accept(value, partition=partition)
        self.accepted.append((partition, value, delivery))

    def pump(self) -> None:
        while len(self.connection) < IN_FLIGHT:
            batches = self.core.drain()
            if not batches:
                return
            self.connection.append(Sent([(batch, bytes(batch.data)) for batch in batches]))

    def lose_connection(self) -> None:
        """Some of the requests on the way were worked off, and no answer comes."""
        written = self.rng.randint(0, len(self.connection))
        for sent in list(self.connection)[:written]:
            for batch, data in sent.batches:
                self.logs[batch.partition].append(data)
        lost, self.connection = list(self.connection), deque()
        for sent in lost:
            for batch, _ in sent.batches:
                self.core.refuse(batch, ErrorCode.NETWORK_EXCEPTION)

    def answer(self, sent: Sent) -> None:
        for batch, data in sent.batches:
            log = self.logs[batch.partition]
            fault = self.rng.random() if self.faulty else 1.0
            if fault < 0.06:
                self.core.refuse(batch, self.rng.choice(REFUSALS))
                continue
            if fault < 0.07 and not self.is_known(log, data):
                self.core.refuse(batch, ErrorCode.INVALID_RECORD)
                continue
            code, offset = log.append(data)
            if fault < 0.1 and code == ErrorCode.NONE:
                self.core.refuse(batch, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            elif code == ErrorCode.NONE:
                self.core.deliver(batch, offset)
            else:
                self.core.refuse(batch, code)

    def is_known(self, log: Partition, data: bytes) -> bool:
        """Whether the batch was written before: a broker would not refuse it then."""
        header = parse_header(data)
        memory = log.producers.get(header.producer_id)
        return memory is not None and any(
            first == header.base_sequence for first, _, _ in memory.batches
        )

    def check(self) -> None:
        for index, log in enumerate(self.logs):
            values = [record.value for record in log.records]
            assert len(values) == len(set(values)), "a record is there twice"
            offsets = []
            for partition, value, delivery in self.accepted:
                if partition != index or self.failed(delivery):
                    continue
                offset = delivery.result().offset
                assert values[offset] == value
                offsets.append(offset)
            assert offsets == sorted(offsets), "records are out of order"

    @staticmethod
    def failed(delivery: Delivery) -> bool:
        batch, _ = delivery._batch.locate(delivery._index)
        return batch.error is not None


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 25))
def test_nothing_is_lost_doubled_or_reordered(first_seed: int) -> None:
    """Every delivery's offset is right, once in the log, and in the order of sending;
    memory is all back."""
    for seed in range(first_seed, first_seed + 25):
        world = World(seed)
        world.run()
        world.check()
        core = world.core.accumulator
        assert core.memory.free_bytes == world.core.config.buffer_memory, seed
