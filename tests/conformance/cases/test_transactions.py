"""Transactions at their coordinator: who is accepted, who is fenced, and with which code.

Every case runs under both transaction.versions that current clients use, unless it is about one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import FindCoordinatorRequest
from kraftrio.wire.messages.data import InitProducerIdRequest
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import (
    append,
    batch_of,
    create_topic,
    delete_topic,
    end_offset,
    fetch,
    produce,
)
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import (
    READ_COMMITTED,
    TransactionalProducer,
    aborted_in,
    committed,
    markers_in,
    repeated,
    wait_for_state,
    wait_stable,
)

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
WRONG_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE

NewProducer = Callable[..., TransactionalProducer]
NewTopic = Callable[..., str]

both_versions = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def bootstrap(transaction_broker: Broker) -> str:
    """The broker whose coordinator looks for what timed out every 200 ms."""
    return transaction_broker.address


@pytest.fixture
def new_producer(client: RawClient, unique_name: Callable[[str], str]) -> NewProducer:
    """Make producers with an id of their own: new_producer(version=1)."""

    def made(version: int = 2, timeout_ms: int = 60_000) -> TransactionalProducer:
        return TransactionalProducer(client, unique_name("id"), version, timeout_ms).init()

    return made


# One transaction after the other


@both_versions
def test_commit_and_abort(new_topic: NewTopic, new_producer: NewProducer, version: int) -> None:
    """read_committed readers see neither what is open nor what was aborted, which Fetch lists.

    A read_uncommitted reader sees all of it, and the markers take offsets of their own.
    """
    producer, topic = new_producer(version=version), new_topic(partitions=2)
    client = producer.client
    assert (producer.state().transaction_state, producer.producer_epoch) == ("Empty", 0)
    for values, commit in (((b"a", b"b"), True), ((b"lost",), False), ((b"c",), True)):
        first = producer.write(topic, *values)
        producer.write(topic, *values, partition=1)
        found = producer.state()
        assert found.transaction_state == "Ongoing"
        assert [(one.topic, sorted(one.partitions)) for one in found.topics] == [(topic, [0, 1])]
        answer = fetch(client, topic, first, isolation_level=READ_COMMITTED)
        assert (answer.last_stable_offset, bool(answer.records)) == (first, False)
        assert answer.high_watermark == first + len(values)
        assert bool(fetch(client, topic, first).records)
        producer.end(commit=commit)
        wait_for_state(
            client, producer.transactional_id, f"Complete{'Commit' if commit else 'Abort'}"
        )
    for partition in (0, 1):
        assert wait_stable(client, topic, partition) == 7
        assert committed(client, topic, partition) == [b"a", b"b", b"c"]
    assert [one.first_offset for one in aborted_in(client, topic)] == [3]
    bump = 1 if version == 2 else 0
    identity = producer.producer_id
    assert markers_in(client, topic) == [
        (identity, 1 * bump, True),
        (identity, 2 * bump, False),
        (identity, 3 * bump, True),
    ]
    assert producer.producer_epoch == 3 * bump
    assert producer.state().topics == []


@both_versions
def test_other_producers_are_not_held_up(
    new_topic: NewTopic, new_producer: NewProducer, version: int
) -> None:
    """Interleaved, each in its own order, committed in the order of their markers."""
    one, two = new_producer(version=version), new_producer(version=version)
    client, topic = one.client, new_topic()
    one.write(topic, b"1")
    two.write(topic, b"2")
    append(client, topic, b"plain")
    one.write(topic, b"1 again")
    two.end(commit=False)
    wait_for_state(client, two.transactional_id, "CompleteAbort")
    assert committed(client, topic) == [], "the first producer's transaction is still open"
    one.end(commit=True)
    wait_stable(client, topic)
    assert committed(client, topic) == [b"1", b"plain", b"1 again"]
    assert [(a.producer_id, a.first_offset) for a in aborted_in(client, topic)] == [
        (two.producer_id, 1)
    ]


def test_a_tail_of_aborted_transactions(new_topic: NewTopic, new_producer: NewProducer) -> None:
    """A fetch returns what holds no records to hand out, so that readers get past it."""
    producer, topic = new_producer(), new_topic()
    append(producer.client, topic, b"head")
    for _ in range(20):
        producer.write(topic, b"lost")
        producer.end(commit=False)
    end = wait_stable(producer.client, topic)
    assert end == 41
    assert committed(producer.client, topic) == [b"head"]
    for offset in (1, 2, 40):
        answer = fetch(producer.client, topic, offset, isolation_level=READ_COMMITTED)
        assert answer.records
        expected = [1 + 2 * n for n in range(20) if 2 + 2 * n >= offset]
        assert [one.first_offset for one in answer.aborted_transactions or []] == expected


# The end of a transaction: G01, G04, G05


def test_a_late_end_does_not_reach_the_next_transaction(
    new_topic: NewTopic, new_producer: NewProducer
) -> None:
    """Neither an EndTxn nor a batch of the transaction before: each has an epoch of its own."""
    producer, topic = new_producer(), new_topic()
    producer.write(topic, b"a")
    late = producer.twin()
    producer.end(commit=True)
    # its retry is recognised as long as nothing new has begun
    again = repeated(lambda: late.try_end(True), lambda one: one.error_code)
    assert (again.error_code, again.producer_epoch) == (NONE, producer.producer_epoch)
    producer.write(topic, b"b")
    for commit in (True, False):
        assert late.try_end(commit).error_code == FENCED
    assert late.try_write(topic, b"late").error_code == OLD_EPOCH
    assert producer.state().transaction_state == "Ongoing"
    producer.end(commit=True)
    wait_stable(producer.client, topic)
    assert committed(producer.client, topic) == [b"a", b"b"]


@both_versions
def test_the_other_end_of_an_ended_transaction(
    new_topic: NewTopic, new_producer: NewProducer, version: int
) -> None:
    """An abort after a commit is refused, and the reverse; the same end again is a retry."""
    for commit in (True, False):
        producer, topic = new_producer(version=version), new_topic()
        producer.write(topic, b"v")
        before = producer.twin()
        producer.end(commit=commit)
        wait_stable(producer.client, topic)
        same = repeated(partial(before.try_end, commit), lambda one: one.error_code)
        assert same.error_code == NONE
        assert before.try_end(not commit).error_code == INVALID_STATE
        assert committed(producer.client, topic) == ([b"v"] if commit else [])


@both_versions
def test_the_end_of_nothing(new_producer: NewProducer, version: int) -> None:
    """Is an invalid state; under version 2 an abort is taken, since a write may be on its way."""
    producer = new_producer(version=version)
    assert producer.try_end(True).error_code == INVALID_STATE
    answer = producer.try_end(False)
    if version == 2:
        assert (answer.error_code, answer.producer_epoch) == (NONE, 1)
        assert answer.producer_id == producer.producer_id
        wait_for_state(producer.client, producer.transactional_id, "CompleteAbort")
    else:
        assert answer.error_code == INVALID_STATE
        assert producer.state().transaction_state == "Empty"


OTHER_EPOCHS = [
    # request version of EndTxn, difference of the epoch, code
    (0, 1, OLD_EPOCH),
    (0, -1, OLD_EPOCH),
    (1, 1, OLD_EPOCH),
    (2, 1, FENCED),
    (4, -1, FENCED),
    (4, 1, FENCED),
    (5, 1, FENCED),
    (5, -1, FENCED),
]


@pytest.mark.parametrize(("request_version", "difference", "code"), OTHER_EPOCHS)
def test_the_end_with_another_epoch(
    new_topic: NewTopic,
    new_producer: NewProducer,
    request_version: int,
    difference: int,
    code: ErrorCode,
) -> None:
    """It must be equal: there is no higher one; old clients know only one code."""
    producer, topic = new_producer(version=1).init(), new_topic()
    producer.write(topic, b"v")
    other = producer.twin()
    other.producer_epoch += difference
    assert other.try_end(True, request_version).error_code == code
    assert producer.state().transaction_state == "Ongoing"
    producer.end(commit=False)


@both_versions
def test_another_producer_id(
    new_topic: NewTopic, new_producer: NewProducer, unique_group: Callable[[], str], version: int
) -> None:
    """Does not belong to this transactional id, nor to an unknown one."""
    producer, topic = new_producer(version=version), new_topic()
    producer.write(topic, b"v")
    other = producer.twin()
    other.producer_id += 1000
    unknown = producer.twin()
    unknown.transactional_id += "-nobody"
    for one in (other, unknown):
        assert one.try_end(True).error_code == WRONG_ID
        assert one.try_add(topic, 0) == WRONG_ID
        assert one.try_add_offsets(unique_group()) == WRONG_ID
    if version == 2:
        assert other.try_write(topic, b"w").error_code == WRONG_ID
    producer.end(commit=False)


# Partitions and their verification: G18


@both_versions
def test_the_epoch_of_added_partitions(
    new_topic: NewTopic, new_producer: NewProducer, unique_group: Callable[[], str], version: int
) -> None:
    """Old versions of the requests know one code for another epoch, newer ones are fenced."""
    producer, topic, group = new_producer(version=version).init(), new_topic(), unique_group()
    for difference in (-1, 1):
        other = producer.twin()
        other.producer_epoch += difference
        for request_version in range(4):
            code = OLD_EPOCH if request_version < 2 else FENCED
            assert other.try_add(topic, version=request_version) == code, request_version
            assert other.try_add_offsets(group, version=request_version) == code, request_version
        assert other.try_add_offsets(group, version=4) == FENCED
    assert producer.state().transaction_state == "Empty"


def test_partitions_that_are_not_there(new_topic: NewTopic, new_producer: NewProducer) -> None:
    """One of them, and none of the others is added."""
    producer, topic = new_producer(version=1), new_topic()
    assert producer.try_add(topic, 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.state().transaction_state == "Empty"


NOT_ADDED = [
    # version of Produce, code and message for a partition that is not in the transaction
    (9, INVALID_STATE, "Partition was not added to the transaction"),
    (10, INVALID_STATE, "Partition was not added to the transaction"),
    (11, ABORTABLE, None),
]


@pytest.mark.parametrize(("version", "code", "message"), NOT_ADDED)
def test_a_write_to_a_partition_that_was_not_added(
    new_topic: NewTopic,
    new_producer: NewProducer,
    version: int,
    code: ErrorCode,
    message: str | None,
) -> None:
    """Is not appended, whether a transaction is open elsewhere or not."""
    producer, topic, other = new_producer(version=1), new_topic(), new_topic()
    answer = producer.try_write(topic, b"v", version=version)
    assert (answer.error_code, answer.error_message) == (code, message)
    producer.write(other, b"v")
    assert producer.try_write(topic, b"v", version=version).error_code == code
    assert end_offset(producer.client, topic) == 0
    producer.end(commit=True)
    wait_stable(producer.client, other)
    assert producer.try_write(other, b"w", version=version).error_code == code
    assert committed(producer.client, other) == [b"v"]


def test_a_write_adds_its_partition(new_topic: NewTopic, new_producer: NewProducer) -> None:
    """From version 12 on."""
    producer, topic = new_producer(), new_topic()
    producer.write(topic, b"v")
    assert [one.topic for one in producer.state().topics] == [topic]
    producer.end(commit=False)


@both_versions
def test_a_plain_batch_of_a_producer_in_a_transaction(
    new_topic: NewTopic, new_producer: NewProducer, version: int
) -> None:
    """Is an invalid state, and the transaction goes on."""
    producer, topic = new_producer(version=version), new_topic()
    producer.write(topic, b"a")
    batch = batch_of(
        b"plain",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=1,
    )
    assert produce(producer.client, topic, batch).error_code == INVALID_STATE
    producer.write(topic, b"b")
    producer.end(commit=True)
    wait_stable(producer.client, topic)
    assert committed(producer.client, topic) == [b"a", b"b"]


# A new producer of the same id: G06, G16


@both_versions
def test_a_new_producer_takes_over(
    connect: Callable[[], RawClient], new_topic: NewTopic, new_producer: NewProducer, version: int
) -> None:
    """The open transaction is aborted, with one new epoch; its producer is fenced for good."""
    old, topic = new_producer(version=version), new_topic()
    old.write(topic, b"lost")
    new = TransactionalProducer(connect(), old.transactional_id, version)
    assert new.try_init().error_code == BUSY
    new.init()
    assert new.producer_id == old.producer_id
    assert new.producer_epoch == old.producer_epoch + 2, "the fence's and its own"
    assert wait_stable(old.client, topic) == 2
    assert markers_in(old.client, topic) == [(old.producer_id, old.producer_epoch + 1, False)]
    assert old.try_write(topic, b"late").error_code == OLD_EPOCH
    assert old.try_end(True).error_code == FENCED
    assert old.try_end(True, 1).error_code == OLD_EPOCH
    assert old.try_add(topic) == FENCED
    resumed = old.try_init(producer_id=old.producer_id, producer_epoch=old.producer_epoch)
    assert resumed.error_code == FENCED
    new.write(topic, b"new")
    new.end(commit=True)
    wait_stable(new.client, topic)
    assert committed(new.client, topic) == [b"new"]


def test_a_producer_that_names_its_epoch(new_producer: NewProducer) -> None:
    """KIP-360: the current epoch is raised; the same request again has the same answer."""
    producer = new_producer(version=1)
    identity, epoch = producer.producer_id, producer.producer_epoch
    for request_version in (3, 4, 5):
        for _ in range(2):
            answer = producer.try_init(request_version, producer_id=identity, producer_epoch=epoch)
            assert (answer.error_code, answer.producer_id) == (NONE, identity)
            assert answer.producer_epoch == epoch + 1
        epoch += 1
    codes = [
        producer.try_init(version, producer_id=identity, producer_epoch=other).error_code
        for version in (3, 4, 5)
        for other in (epoch - 2, epoch + 1)
    ]
    assert codes == [OLD_EPOCH] * 2 + [FENCED] * 4
    other = producer.try_init(producer_id=identity + 1000, producer_epoch=epoch)
    assert other.error_code == FENCED
    producer.init()
    assert (producer.producer_id, producer.producer_epoch) == (identity, epoch + 1)


def test_ids_without_a_transactional_id(connect: Callable[[], RawClient]) -> None:
    """Each request gets one of its own with epoch 0, also those at the same time."""
    clients = [connect() for _ in range(4)]
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    found = []
    for _ in range(50):
        sent = [client.send(request) for client in clients]
        for client, correlation_id in zip(clients, sent, strict=True):
            answer = client.receive(request, None, correlation_id)
            assert (answer.error_code, answer.producer_epoch) == (NONE, 0)
            found.append(answer.producer_id)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
def test_timeouts_that_are_not_allowed(
    client: RawClient, unique_name: Callable[[str], str], timeout_ms: int
) -> None:
    """None at all, or above transaction.max.timeout.ms."""
    producer = TransactionalProducer(client, unique_name("id"), timeout_ms=timeout_ms)
    answer = repeated(producer.try_init, lambda one: one.error_code)
    assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


def test_an_empty_transactional_id(client: RawClient) -> None:
    """Is refused."""
    for version in range(6):
        request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
        assert client.call(request, version).error_code == ErrorCode.INVALID_REQUEST


def test_the_coordinator_is_found_by_key_type(client: RawClient) -> None:
    """In every version that has one; no group comes to be."""
    for version in range(1, 7):
        request = FindCoordinatorRequest(key_type=1)
        if version >= 4:
            request.coordinator_keys = ["some"]
        else:
            request.key = "some"
        answer = repeated(
            partial(client.call, request, version),
            lambda one: ErrorCode(
                one.coordinators[0].error_code if one.coordinators else one.error_code
            ),
        )
        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, found.node_id) == (NONE, 1)


# Time-outs: G08


@both_versions
def test_a_transaction_that_times_out(
    new_topic: NewTopic, new_producer: NewProducer, version: int
) -> None:
    """The coordinator aborts it under a new epoch, and its producer is fenced."""
    producer, topic = new_producer(version=version, timeout_ms=300), new_topic()
    producer.write(topic, b"lost")
    wait_for_state(producer.client, producer.transactional_id, "CompleteAbort")
    assert wait_stable(producer.client, topic) == 2
    assert committed(producer.client, topic) == []
    ((_, epoch, commit),) = markers_in(producer.client, topic)
    assert (epoch, commit) == (producer.producer_epoch + 1, False)
    assert producer.try_write(topic, b"late").error_code == OLD_EPOCH
    # under version 2 it looks like the retry of an abort, with the other end
    code = INVALID_STATE if version == 2 else FENCED
    assert producer.try_end(True).error_code == code
    assert producer.try_end(True, 1).error_code == OLD_EPOCH
    producer.init()
    producer.write(topic, b"next")
    producer.end(commit=True)
    wait_stable(producer.client, topic)
    assert committed(producer.client, topic) == [b"next"]


# Topics that go: G09, G20


@both_versions
def test_a_topic_deleted_in_mid_transaction(
    new_topic: NewTopic, new_producer: NewProducer, version: int
) -> None:
    """The commit is finished on the others, and the next transaction begins."""
    producer, kept, gone = new_producer(version=version), new_topic(), new_topic()
    producer.write(kept, b"a")
    producer.write(gone, b"b")
    delete_topic(producer.client, gone)
    producer.end(commit=True)
    wait_for_state(producer.client, producer.transactional_id, "CompleteCommit")
    wait_stable(producer.client, kept)
    producer.write(kept, b"c")
    producer.end(commit=True)
    wait_stable(producer.client, kept)
    assert committed(producer.client, kept) == [b"a", b"c"]


@both_versions
def test_a_topic_recreated_in_mid_transaction(
    new_topic: NewTopic, new_producer: NewProducer, version: int
) -> None:
    """The commit ends, and what is there now shows nothing of the topic before."""
    producer, topic = new_producer(version=version), new_topic()
    client = producer.client
    producer.write(topic, b"of the old topic")
    delete_topic(client, topic)
    create_topic(client, topic)
    producer.end(commit=True)
    wait_for_state(client, producer.transactional_id, "CompleteCommit")
    producer.forget(topic)
    producer.write(topic, b"new")
    producer.end(commit=True)
    wait_stable(client, topic)
    assert committed(client, topic) == [b"new"]
