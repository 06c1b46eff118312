"""What a broker finds after kill -9: transactions in every state, and logs with their markers.

States that no client reaches within the time of a test, such as an epoch that is nearly used up, or
a crash between the prepared record and the markers, are written to __transaction_state by the test
itself: a client with the client id of Kafka's own admin may write there.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kraftrio.broker.coordinator.partitioning import partition_for
from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.transactions import (
    TransactionLogKey,
    TransactionLogPartitions,
    TransactionLogValue,
)
from kraftrio.wire.records.batch import Record, build_batch
from tests.conformance.broker_process import TEST_CONFIG, Broker, start_broker
from tests.conformance.cases.calls import (
    SETTLE_DEADLINE_S,
    append,
    create_topic,
    fetch,
    list_offset,
    new_producer_id,
    now_ms,
    produce,
    wait_for_coordinator,
    wait_for_leaders,
)
from tests.conformance.cases.members import fetch_offset
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import (
    READ_COMMITTED,
    TransactionalProducer,
    aborted_in,
    committed,
    describe_transaction,
    markers_in,
    repeated,
    wait_for_state,
    wait_for_transactions,
    wait_stable,
)

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED

PARTITIONS = int(TEST_CONFIG["transaction.state.log.num.partitions"])
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT = range(5)
LAST_EPOCH = 32766  # 32767 is for the marker that ends the last transaction
HOUR_MS = 3_600_000


def write_state(
    client: RawClient, transactional_id: str, value: TransactionLogValue | None
) -> None:
    """Append a record about a transactional id, None for a tombstone."""
    key = struct.pack(">h", 0) + encode(TransactionLogKey(transactional_id=transactional_id), 0)
    body = None if value is None else struct.pack(">h", 1) + encode(value, 1)
    batch = build_batch([Record(0, now_ms(), key, body)])
    partition = partition_for(transactional_id, PARTITIONS)
    assert produce(client, "__transaction_state", batch, partition).error_code == NONE


def state_of(producer: TransactionalProducer, status: int, *topics: str) -> TransactionLogValue:
    """Return the record of a producer in a state, with partition 0 of these topics."""
    return TransactionLogValue(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_timeout_ms=producer.timeout_ms,
        transaction_status=status,
        transaction_partitions=[
            TransactionLogPartitions(topic=topic, partition_ids=[0]) for topic in topics
        ],
        transaction_last_update_timestamp_ms=now_ms(),
        transaction_start_timestamp_ms=now_ms() if topics else -1,
        client_transaction_version=producer.version,
    )


@dataclass
class Found:
    """The broker after its crash, and what the producers knew before."""

    broker: Broker
    producers: dict[str, TransactionalProducer]

    def producer(self, name: str, client: RawClient) -> TransactionalProducer:
        """Return a producer that goes on over a new connection."""
        return self.producers[name].twin(client)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    """A broker that was killed with all of it open."""
    broker = start_broker(
        tmp_path_factory.mktemp("loaded"),
        transactional_id_expiration_ms=HOUR_MS,
        transaction_remove_expired_transaction_cleanup_interval_ms=200,
    )
    with RawClient(broker.address) as client, RawClient(broker.address, "__admin_client") as admin:
        wait_for_transactions(client)
        wait_for_coordinator(client)
        producers = begun(client)
        prepare(admin, producers)
        end_some(client, producers)
        producers |= invented(client, admin)
    # Apache Kafka, when it was killed, may take partitions for deleted whose leader is not back
    # yet, and completes a prepared transaction without their markers.
    if broker.kind != "apache":
        broker.kill9()
    broker.restart()
    with RawClient(broker.address) as client:
        wait_for_transactions(client)
        wait_for_coordinator(client)
        for name in producers:
            wait_for_leaders(client, name)
    yield Found(broker, producers)
    broker.close()


def begun(client: RawClient) -> dict[str, TransactionalProducer]:
    """Begin transactions, each with two records and an offset."""
    producers: dict[str, TransactionalProducer] = {}
    for name in (
        "open",
        "open-1",
        "prepared-commit",
        "prepared-commit-1",
        "prepared-abort",
        "aborted",
        "retried",
    ):
        topic = create_topic(client, name)
        append(client, topic, b"before")
        producer = TransactionalProducer(client, name, 1 if name.endswith("-1") else 2).init()
        producer.write(topic, b"1", b"2")
        assert producer.commit_offset(f"group-{name}", topic, 3) == NONE
        producers[name] = producer
    return producers


def prepare(admin: RawClient, producers: dict[str, TransactionalProducer]) -> None:
    """Write that the end of some is decided, under version 2 with an epoch of its own."""
    for name, status in (
        ("prepared-commit", PREPARE_COMMIT),
        ("prepared-commit-1", PREPARE_COMMIT),
        ("prepared-abort", PREPARE_ABORT),
    ):
        producers[name].producer_epoch += 1 if producers[name].version == 2 else 0
        value = state_of(producers[name], status, name)
        value.transaction_partitions = (value.transaction_partitions or []) + [
            TransactionLogPartitions(
                topic="__consumer_offsets", partition_ids=[partition_for(f"group-{name}", 4)]
            )
        ]
        write_state(admin, name, value)


def end_some(client: RawClient, producers: dict[str, TransactionalProducer]) -> None:
    """Abort one; commit another one, whose producer gets no answer."""
    producers["aborted"].end(commit=False)
    append(client, "aborted", b"after")
    unaware = producers["retried"].twin()
    producers["retried"].end(commit=True)
    producers["retried"] = unaware
    for name in ("aborted", "retried"):
        wait_stable(client, name)


def invented(client: RawClient, admin: RawClient) -> dict[str, TransactionalProducer]:
    """Write states of unused ids: nearly out of epochs, long idle, deleted."""
    producers: dict[str, TransactionalProducer] = {}
    for name, epoch in (
        ("one-left", LAST_EPOCH - 1),
        ("used-up", LAST_EPOCH),
        ("taken", LAST_EPOCH),
    ):
        producer = TransactionalProducer(client, name, producer_epoch=epoch)
        producer.producer_id = new_producer_id(client)
        create_topic(client, name)
        write_state(admin, name, state_of(producer, COMPLETE_COMMIT))
        producers[name] = producer
    for name, epoch in (("idle", 3), ("never-used", -1)):
        producer = TransactionalProducer(client, name, producer_epoch=epoch)
        producer.producer_id = new_producer_id(client)
        value = state_of(producer, EMPTY)
        value.transaction_last_update_timestamp_ms -= 2 * HOUR_MS
        write_state(admin, name, value)
    write_state(admin, "gone", state_of(producers["used-up"], EMPTY))
    write_state(admin, "gone", None)
    return producers


@pytest.fixture
def bootstrap(found: Found) -> str:
    """The broker after its crash."""
    return found.broker.address


@pytest.mark.parametrize("name", ["open", "open-1"])
def test_a_commit_after_the_crash(found: Found, client: RawClient, name: str) -> None:
    """From another connection, with the producer id and epoch that a job had saved; then again.

    Flink resumes like this. What was open is still held back, and is committed whole.
    """
    answer = fetch(client, name, 0, isolation_level=READ_COMMITTED)
    assert (answer.last_stable_offset, answer.high_watermark) == (1, 3)
    assert list_offset(client, name, -1, isolation_level=1).offset == 1
    assert committed(client, name) == [b"before"]
    assert fetch_offset(client, f"group-{name}", name).committed_offset == -1
    producer = found.producer(name, client)
    producer.write(name, b"3")
    saved = producer.twin()
    producer.end(commit=True)
    assert wait_stable(client, name) == 5
    assert committed(client, name) == [b"before", b"1", b"2", b"3"]
    wait_for_state(client, name, "CompleteCommit")
    assert fetch_offset(client, f"group-{name}", name).committed_offset == 3
    again = repeated(lambda: saved.try_end(True), lambda one: one.error_code)
    assert again.error_code == NONE
    producer.write(name, b"4")
    producer.end(commit=False)


def test_the_retry_of_a_commit_from_before(found: Found, client: RawClient) -> None:
    """Its answer may have been lost in the crash: it gets the epoch to go on with."""
    producer = found.producer("retried", client)
    answer = repeated(lambda: producer.try_end(True), lambda one: one.error_code)
    assert (answer.error_code, answer.producer_id) == (NONE, producer.producer_id)
    assert answer.producer_epoch == producer.producer_epoch + 1
    assert producer.try_end(False).error_code == ErrorCode.INVALID_TXN_STATE
    assert committed(client, "retried") == [b"before", b"1", b"2"]


@pytest.mark.parametrize(
    ("name", "state", "values", "offset"),
    [
        ("prepared-commit", "CompleteCommit", [b"before", b"1", b"2"], 3),
        ("prepared-commit-1", "CompleteCommit", [b"before", b"1", b"2"], 3),
        ("prepared-abort", "CompleteAbort", [b"before"], -1),
    ],
)
def test_what_was_prepared_is_finished(
    found: Found, client: RawClient, name: str, state: str, values: list[bytes], offset: int
) -> None:
    """By the next leader, unasked: in the topic and among the offsets."""
    wait_for_state(client, name, state)
    assert wait_stable(client, name) == 4
    assert committed(client, name) == values
    assert fetch_offset(client, f"group-{name}", name).committed_offset == offset
    producer = found.producer(name, client)
    assert markers_in(client, name) == [
        (producer.producer_id, producer.producer_epoch, state == "CompleteCommit")
    ]
    producer.init()
    producer.write(name, b"next")
    producer.end(commit=False)


def test_what_was_aborted_stays_so(found: Found, client: RawClient) -> None:
    """The index of aborted transactions is there before the first read."""
    assert wait_stable(client, "aborted") == 5
    aborted = [(one.producer_id, one.first_offset) for one in aborted_in(client, "aborted")]
    assert aborted == [(found.producers["aborted"].producer_id, 1)]
    assert committed(client, "aborted") == [b"before", b"after"]
    assert fetch_offset(client, "group-aborted", "aborted").committed_offset == -1


def test_the_last_epochs_by_transactions(found: Found, client: RawClient) -> None:
    """The last epoch ends under the one that is kept for it, and a new producer id goes on."""
    producer = found.producer("one-left", client)
    old = producer.producer_id
    producer.write("one-left", b"a")
    producer.end(commit=True)
    assert (producer.producer_id, producer.producer_epoch) == (old, LAST_EPOCH)
    producer.write("one-left", b"b")
    last = producer.twin()
    producer.end(commit=True)
    assert producer.producer_id != old
    assert producer.producer_epoch == 0
    wait_stable(client, "one-left")
    again = repeated(lambda: last.try_end(True), lambda one: one.error_code)
    assert (again.error_code, again.producer_id) == (NONE, producer.producer_id)
    assert again.producer_epoch == 0
    producer.write("one-left", b"c")
    producer.end(commit=True)
    wait_stable(client, "one-left")
    assert committed(client, "one-left") == [b"a", b"b", b"c"]
    assert markers_in(client, "one-left") == [
        (old, LAST_EPOCH, True),
        (old, LAST_EPOCH + 1, True),
        (producer.producer_id, 1, True),
    ]


def test_the_last_epochs_by_new_producers(found: Found, client: RawClient) -> None:
    """An id whose epochs are used up gives the next producer another producer id, epoch 0."""
    producer = found.producer("used-up", client)
    old = producer.producer_id
    producer.init()
    assert producer.producer_id != old
    assert producer.producer_epoch == 0
    assert found.producer("used-up", client).try_end(True).error_code != NONE


def test_a_takeover_at_the_last_epoch(found: Found, client: RawClient) -> None:
    """The abort uses the epoch kept for it, never a negative one."""
    producer = found.producer("taken", client)
    old = producer.twin()
    producer.write("taken", b"lost")
    producer.init()
    assert producer.producer_id != old.producer_id
    assert producer.producer_epoch == 1, "the new producer id's 0 went with the abort"
    wait_stable(client, "taken")
    assert markers_in(client, "taken") == [(old.producer_id, LAST_EPOCH + 1, False)]
    assert old.try_write("taken", b"late").error_code != NONE
    assert committed(client, "taken") == []


@pytest.mark.parametrize("name", ["idle", "never-used", "gone"])
def test_ids_that_expire(found: Found, client: RawClient, name: str) -> None:
    """Those that were not used for transactional.id.expiration.ms, and tombstones."""
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while (code := describe_transaction(client, name).error_code) == NONE:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
