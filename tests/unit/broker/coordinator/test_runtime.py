"""The runtime with shards that have nothing to do with groups: registers with a time to live.

A register is a name with a value; it is stored by a record, removed by a tombstone, and expires.
A reader may wait for the next change of a register. Values of a transaction are pending until its
end marker, which shows or drops them once it is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from immutables import Map

from kraftrio.base.deferred import Deferred
from kraftrio.broker.coordinator.deadlines import DeadlineQueue
from kraftrio.broker.coordinator.outcome import (
    Change,
    CoordinatorRecord,
    FollowUp,
    Now,
    Outcome,
    ProducerOfBatch,
    RecordMessages,
)
from kraftrio.broker.coordinator.runtime import CoordinatorRuntime
from kraftrio.broker.coordinator.settings import CoordinatorSettings
from kraftrio.broker.log.producers.producer_state import AppendOrigin
from kraftrio.broker.log.producers.verifications import VerificationGuard
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.broker.ports import VerificationResult
from kraftrio.kraft_meta.metadata.image import MetadataImage, PartitionImage, TopicImage
from kraftrio.wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.primitives import Buffer, TopicPartition
from kraftrio.wire.records.batch import NO_PRODUCER_ID, parse_header
from kraftrio.wire.records.builder import BatchBuilder
from kraftrio.wire.records.compression import Compression
from kraftrio.wire.records.control import EndTransactionMarker, read_end_transaction_marker
from tests.unit.broker.coordinator.broker_stand_in import FakeReplicas, ManualTimers

TOPIC = "__registers"
LIFE_MS = 10_000
PRODUCER = ProducerOfBatch(7, 3)
NONE = ErrorCode.NONE
COMMIT, ABORT = EndTransactionMarker(True, 5), EndTransactionMarker(False, 5)


@dataclass(frozen=True, slots=True)
class Stored(Change):
    """A register's new value."""

    name: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Announced(FollowUp):
    """A change of which those who wait are to learn when it is stored."""

    name: bytes


class Registers:
    """A shard: the registers of one partition."""

    def __init__(self, partition: int, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epochs = [leader_epoch]
        self.values: dict[bytes, bytes] = {}
        self.pending: dict[int, dict[bytes, bytes]] = {}
        self.committed_offset = 0
        self.deleted_topics: list[str] = []
        self.changed_topics: list[str] = []
        self._decided: list[tuple[int, dict[bytes, bytes]]] = []  # by markers not committed yet
        self._deadlines = DeadlineQueue()
        self._waiting: list[tuple[bytes, Any]] = []

    # --- requests ---

    def put(self, name: bytes, value: bytes) -> Outcome:
        if value == b"refused":
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return Outcome(
            records=[CoordinatorRecord(name, value)],
            response=f"stored {value.decode()}",
            follow_up=Announced(name),
            replay=True,
        )

    def put_encoded(self, name: bytes, value: bytes, now: Now) -> Outcome:
        batch = BatchBuilder(now.wall_ms)
        batch.add([(name, value)])
        return Outcome(batch=batch, change=Stored(name, value), response="stored")

    def put_for_transaction(self, name: bytes, value: bytes, now: Now) -> Outcome:
        """Store one value by a record, another by an encoded batch and a change."""
        outcome = self.put(name, value)
        outcome.batch = self.put_encoded(name + b"+", value, now).batch
        outcome.change = Stored(name + b"+", value)
        outcome.producer = PRODUCER
        return outcome

    def wait(self, name: bytes, ticket: Any) -> Outcome:
        self._waiting.append((name, ticket))
        return Outcome()

    # --- what the runtime asks of a shard ---

    def replay(
        self,
        record_offset: int,
        key: Buffer,
        value: Buffer | None,
        now: Now,
        *,
        producer_id: int = NO_PRODUCER_ID,
        committed: bool = True,
        messages: RecordMessages | None = None,
    ) -> None:
        if bytes(key) == b"unreadable":
            raise RemoteProtocolError("not a register")
        if value is None:
            self.values.pop(bytes(key), None)
        else:
            self._set(bytes(key), bytes(value), now, producer_id)

    def apply(
        self, change: Change, end_offset: int, now: Now, *, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        assert isinstance(change, Stored)
        self._set(change.name, change.value, now, producer_id)

    def _set(self, name: bytes, value: bytes, now: Now, producer_id: int) -> None:
        if producer_id != NO_PRODUCER_ID:
            self.pending.setdefault(producer_id, {})[name] = value
            return
        self.values[name] = value
        self._deadlines.schedule((name.decode(),), now.monotonic_ms + LIFE_MS)

    def replay_end_transaction(
        self, producer_id: int, end_offset: int, now: Now, *, commit: bool, committed: bool = True
    ) -> None:
        values = self.pending.pop(producer_id, {})
        if commit:
            self._decided.append((end_offset, values))
            if committed:
                self.on_committed(end_offset)

    def on_committed(self, end_offset: int) -> None:
        self.committed_offset = end_offset
        while self._decided and self._decided[0][0] <= end_offset:
            self.values.update(self._decided.pop(0)[1])

    def on_append_done(self, follow_up: FollowUp, error: ErrorCode, now: Now) -> Outcome:
        assert isinstance(follow_up, Announced)
        answer = "changed" if error is ErrorCode.NONE else error.name
        return self._answer(follow_up.name, answer)

    def _answer(self, name: bytes | None, answer: str) -> Outcome:
        outcome = Outcome()
        for waiting, ticket in self._waiting:
            if name in (None, waiting):
                outcome.reply(ticket, answer)
        self._waiting = [one for one in self._waiting if name not in (None, one[0])]
        return outcome

    def on_loaded(self, now: Now) -> Outcome:
        return Outcome()

    def on_leader_epoch(self, leader_epoch: int) -> None:
        self.leader_epochs.append(leader_epoch)

    def unload(self, now: Now) -> Outcome:
        return self._answer(None, "moved")

    def on_topics_changed(self, names: Collection[str], now: Now) -> None:
        self.changed_topics += names

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> Outcome:
        self.deleted_topics += topics
        return Outcome()

    def next_deadline_ms(self) -> float | None:
        return self._deadlines.next_deadline_ms()

    def on_deadline(self, now: Now) -> list[Outcome]:
        outcomes = []
        while (key := self._deadlines.pop_due(now.monotonic_ms)) is not None:
            records = [CoordinatorRecord(key[0].encode(), None)]
            outcomes.append(Outcome(records=records, replay=True))
        return outcomes


class Broker:
    """A runtime of registers over logs in memory; the topic has one partition."""

    def __init__(self) -> None:
        self.timers = ManualTimers()
        self.replicas = FakeReplicas(self.timers)
        self.log = self.replicas.lead(0, TOPIC)
        self.metadata = MetadataCache()
        self.runtime: CoordinatorRuntime[Registers]
        self.start()

    def start(self) -> None:
        """Make the runtime (again: as after a restart)."""
        self.runtime = CoordinatorRuntime(
            CoordinatorSettings(
                name="registers",
                topic=TOPIC,
                default_partition_count=1,
                load_buffer_size=1 << 20,
                commit_timeout_ms=5_000,
                compression=Compression.NONE,
            ),
            Registers,
            replicas=self.replicas,
            timers=self.timers,
            clock=self.timers,
            metadata=self.metadata,
        )

    def put(self, value: str, name: str = "r") -> Deferred[str]:
        return self.runtime.write(
            name,
            lambda shard, _now: shard.put(name.encode(), value.encode()),
            lambda code: code.name,
        )

    def put_encoded(self, value: str, name: str = "r") -> Deferred[str]:
        return self.runtime.write(
            name,
            lambda shard, now: shard.put_encoded(name.encode(), value.encode(), now),
            lambda code: code.name,
        )

    def put_for_transaction(
        self, value: str, verified: Deferred[VerificationResult] | None = None
    ) -> Deferred[str]:
        """Store `r` and `r+` in a transaction; verified at once unless that is given."""

        def verify(topic_partition: TopicPartition) -> Deferred[VerificationResult]:
            assert topic_partition == self.log.topic_partition
            return verified or Deferred.completed(VerificationResult(ErrorCode.NONE))

        return self.runtime.write_for_transaction(
            "r",
            verify,
            lambda shard, now: shard.put_for_transaction(b"r", value.encode(), now),
            lambda code: code.name,
        )

    def end(self, marker: EndTransactionMarker) -> Deferred[ErrorCode]:
        return self.runtime.end_transaction(0, PRODUCER, marker, transaction_version=2)

    async def restart(self, leader_epoch: int) -> None:
        """Another process leads, by what the log holds."""
        self.start()
        self.runtime.elect(0, leader_epoch)
        await self.load()

    def wait(self, name: str = "r") -> Deferred[str]:
        return self.runtime.write_parked(
            name, lambda shard, ticket, _now: shard.wait(name.encode(), ticket), lambda c: c.name
        )

    def append(self, batch: BatchBuilder) -> None:
        """Append a batch that no shard of this runtime made."""
        self.replicas.append_to_leader(
            self.log.topic_partition, batch.build(), origin=AppendOrigin.COORDINATOR
        )

    def is_loading(self) -> bool:
        return self.put("refused").value == "COORDINATOR_LOAD_IN_PROGRESS"

    def shard(self) -> Registers:
        return self.runtime.read("r", lambda shard, _now: shard)

    def values(self) -> dict[bytes, bytes]:
        return dict(self.shard().values)

    async def load(self) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.runtime.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    broker.runtime.elect(0, 0)
    return broker


def test_the_topic_decides_the_partition_once_it_exists() -> None:
    """Until then as many partitions are assumed as are configured."""
    broker = Broker()
    assert (broker.runtime.topic, broker.runtime.partition_count()) == (TOPIC, 1)
    partitions = Map(dict.fromkeys(range(7), PartitionImage((1,), (1,), 1, 0, 0)))
    topic = TopicImage(TOPIC, b"r" * 16, partitions)
    broker.metadata.image = MetadataImage(topics_by_name=Map({TOPIC: topic}))
    assert broker.runtime.partition_count() == 7


def test_who_does_not_lead_the_partition_is_no_coordinator() -> None:
    """Before an election, and after a resignation."""
    broker = Broker()
    assert broker.put("a").value == "NOT_COORDINATOR"
    broker.runtime.elect(0, 0)
    assert broker.put("a").value == "stored a"
    broker.runtime.resign(0)
    assert broker.put("b").value == "NOT_COORDINATOR"
    with pytest.raises(KafkaError):
        broker.values()


async def test_an_election_replays_what_the_partition_holds(broker: Broker) -> None:
    """Values and tombstones; a record that cannot be read takes nothing else away."""
    broker.put("1")
    broker.put("2")
    unreadable = BatchBuilder(0)
    unreadable.add([(b"unreadable", b"x"), (None, b"without a key"), (b"s", b"3"), (b"s", None)])
    broker.append(unreadable)
    broker.start()
    broker.runtime.elect(0, 1)
    assert broker.put("3").value == "COORDINATOR_LOAD_IN_PROGRESS"
    figures = {"partitions": 1, "loading_partitions": 1, "failed_partitions": 0}
    assert broker.runtime.statistics() == figures
    await broker.load()
    assert broker.runtime.statistics() == {**figures, "loading_partitions": 0}
    assert broker.values() == {b"r": b"2"}


def test_an_answer_waits_until_its_record_is_committed(broker: Broker) -> None:
    """The change counts at once for the shard; others see it when it is committed."""
    broker.replicas.auto_commit = False
    waiting = broker.wait()
    stored = broker.put("a")
    assert broker.values() == {b"r": b"a"}
    assert not stored.done
    assert not waiting.done
    stable = broker.runtime.read_stable("r", lambda shard, _now: shard.values[b"r"])
    assert not stable.done
    broker.replicas.commit(broker.log.topic_partition)
    assert (stored.value, waiting.value, stable.value) == ("stored a", "changed", b"a")
    assert broker.shard().committed_offset == 1


def test_an_encoded_batch_is_applied_by_its_change(broker: Broker) -> None:
    """It is in the log, and the shard did not have to read it."""
    assert broker.put_encoded("a").value == "stored"
    assert (broker.values(), broker.log.log_end_offset) == ({b"r": b"a"}, 1)


def test_a_refused_request_appends_nothing(broker: Broker) -> None:
    """The error is that of the shard."""
    assert broker.put("refused").value == "INVALID_REQUEST"
    assert broker.log.log_end_offset == 0


@pytest.mark.parametrize("put", [Broker.put, Broker.put_encoded])
def test_an_append_that_fails_changes_nothing(broker: Broker, put: Any) -> None:
    """The client gets a coordinator's error, the shard the log's."""
    waiting = broker.wait()
    broker.replicas.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert put(broker, "a").value == "COORDINATOR_NOT_AVAILABLE"
    assert broker.values() == {}
    assert waiting.done == (put is Broker.put)
    if waiting.done:
        assert waiting.value == "NOT_ENOUGH_REPLICAS"


@pytest.mark.parametrize("put", [Broker.put, Broker.put_encoded])
def test_what_is_in_the_log_unflushed_counts(broker: Broker, put: Any) -> None:
    """As if its commit had come too late: the client is to ask again, the shard shows it."""
    broker.replicas.flush_fails = True
    broker.replicas.auto_commit = False
    assert put(broker, "a").value == "COORDINATOR_NOT_AVAILABLE"
    assert broker.values() == {b"r": b"a"}
    assert broker.shard().committed_offset == 0
    broker.replicas.commit(broker.log.topic_partition)
    assert broker.shard().committed_offset == 1
    broker.replicas.flush_fails = False
    flushed = put(broker, "b")
    broker.replicas.commit(broker.log.topic_partition)
    assert flushed.value.startswith("stored")


def test_what_a_sole_replica_could_not_flush_is_shown_at_once(broker: Broker) -> None:
    """A reader that waits for it gets an error; then nothing comes any more."""
    waiting = broker.wait()
    broker.replicas.flush_fails = True
    assert broker.put("a").value == "COORDINATOR_NOT_AVAILABLE"
    assert waiting.value == "REQUEST_TIMED_OUT"
    assert broker.shard().committed_offset == 1


def test_every_part_of_an_outcome_counts_though_the_first_is_not_flushed(broker: Broker) -> None:
    """The marker, too: what it ended is ended."""
    broker.replicas.flush_fails = True
    assert broker.put_for_transaction("a").value == "COORDINATOR_NOT_AVAILABLE"
    assert broker.shard().pending == {7: {b"r": b"a", b"r+": b"a"}}
    assert broker.end(COMMIT).value is ErrorCode.REQUEST_TIMED_OUT
    assert broker.shard().pending == {}
    assert broker.values() == {b"r": b"a", b"r+": b"a"}


async def test_a_failover_unloads_the_shard(broker: Broker) -> None:
    """Waiting requests are answered, no timer is left, and the next leadership loads the log."""
    waiting = broker.wait()
    broker.put("a", name="s")
    broker.runtime.resign(0)
    assert waiting.value == "moved"
    broker.timers.advance(2 * LIFE_MS)
    assert broker.log.log_end_offset == 1
    broker.runtime.elect(0, 2)
    await broker.load()
    assert broker.values() == {b"s": b"a"}


def test_the_next_epoch_of_the_same_leader_goes_on(broker: Broker) -> None:
    """Nobody else can have written in between; the shard is notified of each new epoch once."""
    before = broker.shard()
    for leader_epoch in (1, 1, 0, 2):
        broker.runtime.elect(0, leader_epoch)
    assert broker.shard() is before
    assert (before.partition, before.leader_epochs) == (0, [0, 1, 2])
    broker.runtime.elect(0, 4)
    broker.put("refused")  # loading, since another broker may have led in epoch 3
    assert before.leader_epochs == [0, 1, 2]


async def test_a_loading_shard_is_notified_of_the_next_epoch(broker: Broker) -> None:
    """It was made for the epoch before."""
    broker.put("a")
    broker.start()
    broker.runtime.elect(0, 1)
    broker.runtime.elect(0, 2)
    await broker.load()
    assert broker.shard().leader_epochs == [1, 2]


def test_deadlines_come_by_timer(broker: Broker) -> None:
    """A register expires; one that is written again lives on."""
    broker.put("a")
    broker.put("b", name="s")
    broker.timers.advance(LIFE_MS - 1)
    broker.put("c", name="s")
    broker.timers.advance(1)
    assert broker.values() == {b"s": b"c"}
    broker.timers.advance(LIFE_MS)
    assert broker.values() == {}


async def test_topics_deleted_while_loading_are_not_forgotten(broker: Broker) -> None:
    """A shard is notified of them when it is loaded."""
    broker.put("a")
    broker.start()
    broker.runtime.elect(0, 1)
    broker.runtime.on_topics_deleted({"gone": b"g" * 16})
    await broker.load()
    broker.runtime.on_topics_deleted({"later": b"l" * 16})
    assert broker.shard().deleted_topics == ["gone", "later"]


async def test_a_loading_shard_is_not_notified_of_changed_topics(broker: Broker) -> None:
    """It looks at the newest metadata once it is loaded; then it is notified of each change."""
    broker.put("a")
    broker.start()
    broker.runtime.elect(0, 1)
    broker.runtime.on_topics_changed(["grown"])
    await broker.load()
    broker.runtime.on_topics_changed(["later"])
    assert broker.shard().changed_topics == ["later"]


def test_all_shards_are_asked_unless_one_is_loading(broker: Broker) -> None:
    """An answer that lacked some would be wrong."""
    broker.put("a")
    assert broker.runtime.read_all(lambda shard: dict(shard.values)) == [{b"r": b"a"}]
    broker.start()
    broker.runtime.elect(0, 1)
    with pytest.raises(KafkaError) as caught:
        broker.runtime.read_all(lambda shard: shard)
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_batch_of_many_records_is_replayed_in_slices(broker: Broker) -> None:
    """Other tasks run while one batch is loaded."""
    batch = BatchBuilder(0)
    batch.add([(b"r%d" % i, b"v") for i in range(5_000)])
    broker.append(batch)
    broker.start()
    broker.runtime.elect(0, 1)
    turns = 0
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.runtime.run)
        while broker.is_loading():
            turns += 1
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert turns >= 10
    assert len(broker.values()) == 5_000


# --- transactions ---


@pytest.mark.parametrize("marker", [COMMIT, ABORT])
async def test_what_a_transaction_wrote_is_pending_until_its_marker(
    broker: Broker, marker: EndTransactionMarker
) -> None:
    """Records and changes alike; a later leader says the same at each moment."""
    assert broker.put_for_transaction("a").value == "stored a"
    for batch in broker.log.batches:
        header = parse_header(batch)
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch) == PRODUCER
    for leader_epoch in (0, 1):
        if leader_epoch:
            await broker.restart(leader_epoch)
        assert broker.shard().pending == {7: {b"r": b"a", b"r+": b"a"}}
        assert broker.values() == {}
    assert broker.end(marker).value is ErrorCode.NONE
    written = broker.log.batches[-1]
    header = parse_header(written)
    assert (header.producer_id, header.producer_epoch) == PRODUCER
    assert read_end_transaction_marker(written, header) == marker
    for leader_epoch in (1, 2):
        if leader_epoch > 1:
            await broker.restart(leader_epoch)
        assert broker.shard().pending == {}
        assert broker.values() == ({b"r": b"a", b"r+": b"a"} if marker.commit else {})


def test_a_marker_counts_once_it_is_committed(broker: Broker) -> None:
    """Until then another leader may come that never saw it, and its sender has no answer."""
    broker.put_for_transaction("a")
    broker.replicas.auto_commit = False
    ended = broker.end(COMMIT)
    assert not ended.done
    assert (broker.values(), broker.shard().pending) == ({}, {})
    broker.replicas.commit(broker.log.topic_partition)
    assert ended.value is ErrorCode.NONE
    assert broker.values() == {b"r": b"a", b"r+": b"a"}


def test_a_marker_that_is_committed_late_counts(broker: Broker) -> None:
    """Its sender has given up waiting, and will send it again."""
    broker.put_for_transaction("a")
    broker.replicas.auto_commit = False
    ended = broker.end(COMMIT)
    broker.timers.advance(5_000)
    assert ended.value is ErrorCode.REQUEST_TIMED_OUT
    assert broker.values() == {}
    broker.replicas.commit(broker.log.topic_partition)
    assert broker.values() == {b"r": b"a", b"r+": b"a"}


def test_a_marker_counts_that_too_few_replicas_have(broker: Broker) -> None:
    """The high watermark has passed it, whatever its sender is answered."""
    broker.put_for_transaction("a")
    broker.replicas.auto_commit = False
    ended = broker.end(COMMIT)
    too_few = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    broker.replicas.commit(broker.log.topic_partition, error=too_few)
    assert ended.value is too_few
    assert broker.values() == {b"r": b"a", b"r+": b"a"}


async def test_a_marker_that_a_resignation_loses_is_as_if_never_sent(broker: Broker) -> None:
    """The next leader, who lacks it, has the transaction open; the sender's next one ends it."""
    broker.put_for_transaction("a")
    broker.replicas.auto_commit = False
    ended = broker.end(COMMIT)
    broker.runtime.resign(0)
    broker.replicas.lose(broker.log.topic_partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert ended.value is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.end(COMMIT).value is ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.log.batches.pop()
    broker.log.log_end_offset -= 1
    broker.replicas.auto_commit = True
    await broker.restart(2)
    assert broker.shard().pending == {7: {b"r": b"a", b"r+": b"a"}}
    assert broker.end(COMMIT).value is ErrorCode.NONE
    assert broker.values() == {b"r": b"a", b"r+": b"a"}


async def test_a_marker_has_to_wait_for_the_load(broker: Broker) -> None:
    """What it ends may not be replayed yet: nothing is appended, and it is to come again."""
    broker.put_for_transaction("a")
    broker.start()
    broker.runtime.elect(0, 1)
    end_offset = broker.log.log_end_offset
    assert broker.end(ABORT).value is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.log.log_end_offset == end_offset
    await broker.load()
    assert broker.end(ABORT).value is ErrorCode.NONE
    assert broker.shard().pending == {}


def test_a_marker_that_the_log_refuses_ends_nothing(broker: Broker) -> None:
    """A coordinator of an older epoch, say: its sender gets the log's own error."""
    broker.put_for_transaction("a")
    broker.replicas.append_error = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert broker.end(COMMIT).value is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert broker.shard().pending == {7: {b"r": b"a", b"r+": b"a"}}


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (ErrorCode.INVALID_TXN_STATE, "INVALID_TXN_STATE"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, "CONCURRENT_TRANSACTIONS"),
        (ErrorCode.NETWORK_EXCEPTION, "COORDINATOR_LOAD_IN_PROGRESS"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "NOT_COORDINATOR"),
    ],
)
def test_nothing_is_written_for_a_transaction_that_is_not_verified(
    broker: Broker, code: ErrorCode, answer: str
) -> None:
    """The shard is not even asked."""
    verified: Deferred[VerificationResult] = Deferred()
    stored = broker.put_for_transaction("a", verified)
    assert not stored.done
    verified.complete(VerificationResult(code))
    assert stored.value == answer
    assert broker.log.log_end_offset == 0


def test_the_guard_of_the_verification_goes_with_the_append(broker: Broker) -> None:
    """The log refuses what comes after the end of the transaction; plain writes have none."""
    guard = VerificationGuard()
    broker.put_for_transaction("a", Deferred.completed(VerificationResult(NONE, guard)))
    assert broker.replicas.guards == [guard, guard]
    broker.put("b")
    broker.end(COMMIT)
    assert broker.replicas.guards == [guard, guard, None, None]


def test_a_partition_that_moves_during_the_verification(broker: Broker) -> None:
    """The write finds nobody who leads, and nothing is asked where nobody leads before."""
    verified: Deferred[VerificationResult] = Deferred()
    stored = broker.put_for_transaction("a", verified)
    broker.runtime.resign(0)
    verified.complete(VerificationResult(ErrorCode.NONE))
    assert stored.value == "NOT_COORDINATOR"
    unasked = partial(pytest.fail, "nobody is to be asked")
    refused = broker.runtime.write_for_transaction("r", unasked, unasked, lambda code: code.name)
    assert refused.value == "NOT_COORDINATOR"


@pytest.mark.parametrize(
    ("code", "level"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, "DEBUG"),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, "DEBUG"),
        (ErrorCode.NOT_ENOUGH_REPLICAS, "WARNING"),
    ],
)
def test_failures_that_are_no_zombies_are_warned_of(
    broker: Broker, caplog: pytest.LogCaptureFixture, code: ErrorCode, level: str
) -> None:
    """Each refused write and marker has one line."""
    broker.replicas.append_error = code
    with caplog.at_level("DEBUG", logger="kraftrio.registers"):
        broker.put_for_transaction("a")
        broker.end(COMMIT)
    lines = [(record.levelname, record.getMessage().split(":")[0]) for record in caplog.records]
    assert lines == [
        (level, f"{what} failed partition={broker.log.topic_partition} reason={code.name}")
        for what in ("append", "marker")
    ]
