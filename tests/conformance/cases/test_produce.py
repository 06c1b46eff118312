"""Produce: what is accepted, what is refused and with which code, and the answer to a retry."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kraftrio.wire.records.batch import (
    BATCH_OVERHEAD,
    Compression,
    Record,
    build_batch,
    iter_headers,
    verify_crc,
)
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import (
    EARLIEST,
    SET,
    alter_config,
    append,
    batch_of,
    create_topic,
    delete_topic,
    end_offset,
    fetch,
    list_offset,
    new_producer_id,
    now_ms,
    produce,
    records_in,
    topic_id,
    wait_for_leaders,
)
from tests.conformance.cases.raw_client import RawClient

NONE = ErrorCode.NONE
INVALID_RECORD = ErrorCode.INVALID_RECORD
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

LENGTH_POS, EPOCH_POS, CRC_POS, ATTRIBUTES_POS = 8, 12, 17, 21
LAST_OFFSET_DELTA_POS, MAX_TIMESTAMP_POS, COUNT_POS = 23, 35, 57


def sealed(batch: bytearray, position: int, layout: str, value: int) -> bytearray:
    """Write one field of a batch's header and make the checksum right again."""
    struct.pack_into(layout, batch, position, value)
    struct.pack_into(">I", batch, CRC_POS, crc32c(bytes(batch[ATTRIBUTES_POS:])))
    return batch


def sequenced(producer_id: int, sequence: int, *values: bytes, epoch: int = 0) -> bytearray:
    """Build a batch of an idempotent producer."""
    return batch_of(
        *(values or (b"v",)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def stored_headers(client: RawClient, topic: str) -> list[Any]:
    """Return the headers of the batches of a topic as they are fetched, with right checksums."""
    data = fetch(client, topic, 0).records
    assert data is not None
    headers = list(iter_headers(data))  # type: ignore[arg-type]  # a decoded response: one piece
    for header in headers:
        verify_crc(data, header)  # type: ignore[arg-type]
    return headers


# Offsets


def test_the_answer_names_the_first_offset_of_the_batch(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Not the last: clients count up from it."""
    topic = new_topic()
    assert produce(client, topic, batch_of(b"a", b"b", b"c")).base_offset == 0
    answer = produce(client, topic, batch_of(b"d"))
    assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (3, -1, 0)
    assert end_offset(client, topic) == 4
    assert [one.offset for one in records_in(fetch(client, topic, 0).records)] == [0, 1, 2, 3]


@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_takes_a_batch(
    client: RawClient, new_topic: Callable[..., str], acks: int
) -> None:
    """By name up to version 12."""
    topic = new_topic()
    for count, version in enumerate(range(3, 13)):
        answer = produce(client, topic, batch_of(b"v"), acks=acks, version=version)
        assert (answer.error_code, answer.base_offset) == (NONE, count), version


def by_id(client: RawClient, identity: bytes, records: bytes | bytearray) -> Any:
    """Produce in the version that names topics by id; return the topic's answer."""
    data = [PartitionProduceData(index=0, records=memoryview(records))]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(topic_id=identity, partition_data=data)],
    )
    (topic,) = client.call(request, 13).responses
    assert topic.topic_id == identity
    return topic


def test_produce_by_topic_id(client: RawClient, new_topic: Callable[..., str]) -> None:
    """An unknown id, also the zero id, is UNKNOWN_TOPIC_ID."""
    topic = new_topic()
    identity = topic_id(client, topic)
    assert by_id(client, identity, batch_of(b"v")).partition_responses[0].error_code == NONE
    for unknown in (b"\x01" * 16, bytes(16)):
        (answer,) = by_id(client, unknown, batch_of(b"v")).partition_responses
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    delete_topic(client, topic)
    (answer,) = by_id(client, identity, batch_of(b"v")).partition_responses
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_unknown_topic_and_partition(
    client: RawClient, new_topic: Callable[..., str], unique_topic: Callable[[], str]
) -> None:
    """Both are UNKNOWN_TOPIC_OR_PARTITION, and Produce never creates a topic."""
    topic, missing = new_topic(), unique_topic()
    for name, partition in ((topic, 1), (topic, -1), (missing, 0)):
        answer = produce(client, name, batch_of(b"v"), partition)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.base_offset == -1
    answer = produce(client, missing, batch_of(b"v"))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Idempotent producers


def test_the_last_five_batches_are_recognised(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """A retry of any of them is answered as the first time, and nothing is appended."""
    topic, producer_id = new_topic(), new_producer_id(client)
    batches = [sequenced(producer_id, 2 * index, b"a", b"b") for index in range(5)]
    for index, batch in enumerate(batches):
        assert produce(client, topic, batch).base_offset == 2 * index
    for index, batch in enumerate(batches):
        answer = produce(client, topic, batch)
        assert (answer.error_code, answer.base_offset) == (NONE, 2 * index)
    assert end_offset(client, topic) == 10


def test_a_sixth_last_batch_is_out_of_order(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Only five are kept."""
    topic, producer_id = new_topic(), new_producer_id(client)
    batches = [sequenced(producer_id, index) for index in range(6)]
    for batch in batches:
        assert produce(client, topic, batch).error_code == NONE
    assert produce(client, topic, batches[0]).error_code == OUT_OF_ORDER
    assert produce(client, topic, batches[1]).error_code == NONE
    assert end_offset(client, topic) == 6


@pytest.mark.parametrize("ending", ["kill -9", "clean stop"])
def test_retries_are_recognised_after_a_restart(
    make_broker: Callable[..., Broker], ending: str
) -> None:
    """The answers to all kept batches survive, however the broker ended.

    Apache Kafka forgets all but the last batch: its producer snapshot holds no more. A retry across
    the restart of a broker is then an error to its producer, which ours is spared.
    """
    broker = make_broker()
    with RawClient(broker.address) as client:
        topic = create_topic(client, "retried")
        append(client, topic, b"before")
        producer_id = new_producer_id(client)
        batches = [sequenced(producer_id, index) for index in range(6)]
        for batch in batches:
            assert produce(client, topic, batch).error_code == NONE
    if ending == "kill -9":
        broker.kill9()
    broker.restart()
    kept = 1 if broker.kind == "apache" else 5
    with RawClient(broker.address) as client:
        wait_for_leaders(client, topic)
        for index in range(6 - kept, 6):
            answer = produce(client, topic, batches[index])
            assert (answer.error_code, answer.base_offset) == (NONE, 1 + index)
        assert produce(client, topic, batches[0]).error_code == OUT_OF_ORDER
        assert end_offset(client, topic) == 7
        assert produce(client, topic, sequenced(producer_id, 6)).base_offset == 7


def test_a_retry_shows_the_original_append_time(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """On a topic with LogAppendTime."""
    topic = new_topic(message_timestamp_type="LogAppendTime")
    batch = sequenced(new_producer_id(client), 0)
    first = produce(client, topic, bytes(batch))
    again = produce(client, topic, bytes(batch))
    assert first.log_append_time_ms > 0
    assert (again.error_code, again.base_offset) == (NONE, 0)
    assert again.log_append_time_ms == first.log_append_time_ms


def test_a_retry_shows_the_timestamp_of_its_batch(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """On a topic with CreateTime, where the first answer has no append time."""
    topic = new_topic()
    batch = sequenced(new_producer_id(client), 0)
    assert produce(client, topic, bytes(batch)).log_append_time_ms == -1
    again = produce(client, topic, bytes(batch))
    assert again.log_append_time_ms == next(iter_headers(batch)).max_timestamp


def test_a_producers_mistake_comes_with_the_start_of_the_log(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """As what was written does."""
    topic, producer_id = new_topic(), new_producer_id(client)
    assert produce(client, topic, sequenced(producer_id, 0, epoch=1)).error_code == NONE
    for wrong, code in (
        (sequenced(producer_id, 9, epoch=1), OUT_OF_ORDER),
        (sequenced(producer_id, 1, epoch=0), ErrorCode.INVALID_PRODUCER_EPOCH),
    ):
        answer = produce(client, topic, wrong)
        assert (answer.error_code, answer.log_start_offset) == (code, 0)


def test_an_unknown_producer_may_begin_anywhere(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Its state may have expired; from then on its sequences must follow."""
    topic, producer_id = new_topic(), new_producer_id(client)
    assert produce(client, topic, sequenced(producer_id, 17)).error_code == NONE
    assert produce(client, topic, sequenced(producer_id, 19)).error_code == OUT_OF_ORDER
    assert produce(client, topic, sequenced(producer_id, 18)).error_code == NONE


def test_a_recreated_topic_knows_no_producers(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """The state went with the old topic."""
    topic, producer_id = new_topic(), new_producer_id(client)
    assert produce(client, topic, sequenced(producer_id, 0)).error_code == NONE
    delete_topic(client, topic)
    create_topic(client, topic)
    answer = produce(client, topic, sequenced(producer_id, 0))
    assert (answer.error_code, answer.base_offset) == (NONE, 0)
    assert end_offset(client, topic) == 1


def test_a_new_epoch_begins_with_sequence_zero(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """A newer epoch fences the older one."""
    topic, producer_id = new_topic(), new_producer_id(client)
    assert produce(client, topic, sequenced(producer_id, 0)).error_code == NONE
    assert produce(client, topic, sequenced(producer_id, 3, epoch=1)).error_code == OUT_OF_ORDER
    assert produce(client, topic, sequenced(producer_id, 0, epoch=1)).error_code == NONE
    answer = produce(client, topic, sequenced(producer_id, 1, epoch=0))
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert end_offset(client, topic) == 2


def test_sequences_wrap_to_zero(client: RawClient, new_topic: Callable[..., str]) -> None:
    """After 2147483647, also within a batch."""
    topic, producer_id = new_topic(), new_producer_id(client)
    last = 2**31 - 1
    assert produce(client, topic, sequenced(producer_id, last - 1, b"a", b"b")).error_code == NONE
    assert produce(client, topic, sequenced(producer_id, 0)).error_code == NONE
    other = new_producer_id(client)
    assert produce(client, topic, sequenced(other, last, b"a", b"b", b"c")).error_code == NONE
    assert produce(client, topic, sequenced(other, 2)).error_code == NONE
    again = produce(client, topic, sequenced(other, last, b"a", b"b", b"c"))
    assert (again.error_code, again.base_offset) == (NONE, 3)


def test_negative_sequence_with_a_producer_id(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """There is no such sequence."""
    topic = new_topic()
    answer = produce(client, topic, sequenced(new_producer_id(client), -1))
    assert answer.error_code == INVALID_RECORD


def test_producer_ids_are_never_given_twice(
    make_broker: Callable[..., Broker],
) -> None:
    """Nor after a crash."""
    broker = make_broker()
    given: list[int] = []
    for _ in range(3):
        with RawClient(broker.address) as client:
            given += [new_producer_id(client) for _ in range(20)]
        broker.kill9()
        broker.start()
    assert len(set(given)) == len(given) == 60


# Headers


def test_sender_without_max_timestamp(client: RawClient, new_topic: Callable[..., str]) -> None:
    """sarama leaves it -1: the log gets the true one, and the producer's state is kept."""
    topic, producer_id = new_topic(), new_producer_id(client)
    times = []
    for index in range(3):
        batch = sequenced(producer_id, index)
        times.append(struct.unpack_from(">q", batch, MAX_TIMESTAMP_POS)[0])
        answer = produce(client, topic, sealed(batch, MAX_TIMESTAMP_POS, ">q", -1))
        assert answer.error_code == NONE
    assert [one.max_timestamp for one in stored_headers(client, topic)] == times


def test_leader_epoch_of_the_sender_is_overwritten(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Whatever it is, the log gets its own, and the checksum stays right."""
    topic = new_topic()
    epoch = list_offset(client, topic, -1).leader_epoch
    for count, claimed in enumerate((-1, 0, 99)):
        batch = batch_of(b"v")
        struct.pack_into(">i", batch, EPOCH_POS, claimed)
        answer = produce(client, topic, batch)
        assert (answer.error_code, answer.base_offset) == (NONE, count)
    headers = stored_headers(client, topic)
    assert [one.partition_leader_epoch for one in headers] == [epoch] * 3
    assert [one.base_offset for one in headers] == [0, 1, 2]


@pytest.mark.parametrize("codec", list(Compression))
def test_compressed_batches_are_stored_as_they_came(
    client: RawClient, new_topic: Callable[..., str], codec: Compression
) -> None:
    """With compression.type=producer, which is the default."""
    topic = new_topic()
    batch = batch_of(*[b"value %d" % index for index in range(100)], compression=codec)
    assert produce(client, topic, batch).error_code == NONE
    stored = fetch(client, topic, 0).records
    assert bytes(stored)[CRC_POS:] == bytes(batch)[CRC_POS:]  # type: ignore[arg-type]
    assert len(records_in(stored)) == 100


@pytest.mark.parametrize("version", [3, 6])
def test_old_versions_may_not_send_zstd(
    client: RawClient, new_topic: Callable[..., str], version: int
) -> None:
    """Their consumers could not read it (KIP-110)."""
    topic = new_topic()
    batch = batch_of(b"x" * 100, compression=Compression.ZSTD)
    answer = produce(client, topic, batch, version=version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert end_offset(client, topic) == 0


# Refusals of a batch


def flipped(batch: bytearray) -> bytearray:
    batch[-1] ^= 0xFF
    return batch


REFUSED: dict[str, tuple[Callable[[bytearray], bytes | bytearray], ErrorCode]] = {
    "an incomplete batch": (lambda batch: batch[:-1], INVALID_RECORD),
    "a cut header": (lambda batch: batch[:30], INVALID_RECORD),
    "an impossible length": (
        lambda batch: sealed(batch, LENGTH_POS, ">i", 48),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "a flipped byte": (flipped, ErrorCode.CORRUPT_MESSAGE),
    "two batches": (lambda batch: batch + batch, INVALID_RECORD),
    "a control batch": (lambda batch: sealed(batch, ATTRIBUTES_POS, ">h", 0x20), INVALID_RECORD),
    "a base offset": (lambda batch: sealed(batch, 0, ">q", 3), INVALID_RECORD),
    "no records by its count": (lambda batch: sealed(batch, COUNT_POS, ">i", 0), INVALID_RECORD),
    "more records by its count": (lambda batch: sealed(batch, COUNT_POS, ">i", 9), INVALID_RECORD),
    "another last offset": (
        lambda batch: sealed(batch, LAST_OFFSET_DELTA_POS, ">i", 9),
        INVALID_RECORD,
    ),
    "negative offsets": (
        lambda batch: sealed(batch, LAST_OFFSET_DELTA_POS, ">i", -1),
        INVALID_RECORD,
    ),
}


@pytest.mark.parametrize(("spoil", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_faulty_batch_is_refused_for_its_partition_alone(
    client: RawClient,
    new_topic: Callable[..., str],
    spoil: Callable[[bytearray], bytes | bytearray],
    code: ErrorCode,
) -> None:
    """The other partition of the request takes its batch."""
    topic = new_topic(partitions=2)
    bad, good = spoil(batch_of(b"a", b"b", timestamp=now_ms())), batch_of(b"good")
    first, second = produce_two(client, topic, bad, good)
    assert (first.error_code, first.base_offset) == (code, -1), first
    assert (second.error_code, second.base_offset) == (NONE, 0)
    assert end_offset(client, topic, 0) == 0
    assert end_offset(client, topic, 1) == 1


def produce_two(
    client: RawClient, topic: str, first: bytes | bytearray, second: bytes | bytearray
) -> list[PartitionProduceResponse]:
    """Produce to partitions 0 and 1 of a topic in one request."""
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=index, records=memoryview(records))
                    for index, records in enumerate((first, second))
                ],
            )
        ],
    )
    (answered,) = client.call(request, 9).responses
    answers: list[PartitionProduceResponse] = answered.partition_responses
    return sorted(answers, key=lambda one: one.index)


def test_transactional_batch_without_a_transactional_id(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Nobody may write to a transaction without naming it: the whole request is refused."""
    topic = new_topic(partitions=2)
    batch = sealed(batch_of(b"v"), ATTRIBUTES_POS, ">h", 0x10)
    for answer in produce_two(client, topic, batch_of(b"plain"), batch):
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert end_offset(client, topic) == 0


def test_batch_of_a_transaction_that_no_coordinator_knows(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """It is refused: taken, it would hold up read_committed consumers for ever.

    Apache Kafka first finds a coordinator for the id, and asks to be patient until then.
    """
    topic = new_topic()
    batch = batch_of(
        b"v", producer_id=987_654, producer_epoch=0, base_sequence=0, transactional=True
    )
    data = PartitionProduceData(index=0, records=memoryview(batch))
    request = ProduceRequest(
        transactional_id="nobody-began-this",
        acks=-1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    codes = set()
    for version in (3, 8, 11):
        (answered,) = client.call(request, version).responses
        codes.add(answered.partition_responses[0].error_code)
    codes.discard(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert codes <= {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert end_offset(client, topic) == 0


def test_append_time_of_a_producer(client: RawClient, new_topic: Callable[..., str]) -> None:
    """Only brokers set it. (On topics with CreateTime Apache Kafka clears the bit instead.)"""
    topic = new_topic(message_timestamp_type="LogAppendTime")
    batch = sealed(batch_of(b"v"), ATTRIBUTES_POS, ">h", 0x08)
    assert produce(client, topic, batch).error_code == ErrorCode.INVALID_TIMESTAMP


def test_unknown_codec(client: RawClient, new_topic: Callable[..., str], broker: Broker) -> None:
    """Apache Kafka's answer is UNKNOWN_SERVER_ERROR, which says nothing to a producer."""
    topic = new_topic()
    answer = produce(client, topic, sealed(batch_of(b"v"), ATTRIBUTES_POS, ">h", 0x07))
    assert answer.error_code == (
        ErrorCode.UNKNOWN_SERVER_ERROR
        if broker.kind == "apache"
        else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )


def legacy_message(magic: int, *, spoiled: bool = False) -> bytes:
    """Build a message set of one message of the formats before record batches."""
    body = struct.pack(">bb", magic, 0)
    if magic:
        body += struct.pack(">q", now_ms())
    body += struct.pack(">ii", -1, 1) + b"v"
    crc = zlib.crc32(body) ^ spoiled
    message = struct.pack(">I", crc) + body
    return struct.pack(">qi", 0, len(message)) + message


@pytest.mark.parametrize("spoiled", [False, True])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused(
    client: RawClient, new_topic: Callable[..., str], magic: int, spoiled: bool
) -> None:
    """Produce from version 3 on takes record batches of magic 2 only."""
    topic = new_topic(partitions=2)
    first, second = produce_two(
        client, topic, legacy_message(magic, spoiled=spoiled), batch_of(b"good")
    )
    assert (first.error_code, second.error_code) == (INVALID_RECORD, NONE)


def test_no_records_at_all(client: RawClient, new_topic: Callable[..., str]) -> None:
    """Every partition of a Produce brings one batch."""
    topic = new_topic()
    assert produce(client, topic, b"").error_code == INVALID_RECORD
    assert end_offset(client, topic) == 0


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_unknown_acks(client: RawClient, new_topic: Callable[..., str], acks: int) -> None:
    """There are 0, 1 and all."""
    topic = new_topic()
    answer = produce(client, topic, batch_of(b"v"), acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert end_offset(client, topic) == 0


def test_more_in_sync_replicas_wanted_than_there_are_replicas(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """min.insync.replicas counts no further than the topic's replicas (KIP-966)."""
    topic = new_topic(min_insync_replicas=2)
    assert produce(client, topic, batch_of(b"v")).error_code == NONE


def test_only_records_and_transactions_are_refused_in_words(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Clients have sentences of their own for the codes, and show those."""
    topic, producer_id = new_topic(max_message_bytes=1000), new_producer_id(client)
    assert produce(client, topic, sequenced(producer_id, 0, epoch=1)).error_code == NONE
    damaged = batch_of(b"v")
    damaged[-1] ^= 1
    for wrong, code in (
        (batch_of(b"v" * 2000), ErrorCode.MESSAGE_TOO_LARGE),
        (sequenced(producer_id, 9, epoch=1), OUT_OF_ORDER),
        (sequenced(producer_id, 1, epoch=0), ErrorCode.INVALID_PRODUCER_EPOCH),
        (damaged, ErrorCode.CORRUPT_MESSAGE),
        (batch_of(b"v") + batch_of(b"v"), INVALID_RECORD),
        (b"", INVALID_RECORD),
        (sealed(batch_of(b"v"), COUNT_POS, ">i", 2), INVALID_RECORD),
    ):
        answer = produce(client, topic, wrong)
        assert (answer.error_code, answer.error_message) == (code, None)


# Single records


def keyed_batch(*keys: bytes | None, **options: Any) -> bytearray:
    return build_batch([Record(0, now_ms(), key, b"v") for key in keys], **options)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_records_without_keys_on_a_compacted_topic(
    client: RawClient, new_topic: Callable[..., str], codec: Compression
) -> None:
    """The answer names all of them, from version 8 on; the whole batch is refused."""
    topic = new_topic(cleanup_policy="compact")
    batch = keyed_batch(None, b"k", None, compression=codec)
    answer = produce(client, topic, batch)
    assert answer.error_code == INVALID_RECORD
    assert [one.batch_index for one in answer.record_errors] == [0, 2]
    assert (answer.base_offset, answer.log_start_offset) == (-1, 0)
    reason = f"Compacted topic cannot accept message without key in topic partition {topic}-0"
    assert [one.batch_index_error_message for one in answer.record_errors] == [reason, reason]
    assert answer.error_message == (
        "One or more records have been rejected due to 2 record errors in total, and only showing "
        f"the first three errors at most: [RecordError(batchIndex=0, message='{reason}'), "
        f"RecordError(batchIndex=2, message='{reason}')]"
    )
    old = produce(client, topic, batch, version=7)
    assert (old.error_code, old.record_errors) == (INVALID_RECORD, [])
    assert end_offset(client, topic) == 0
    assert produce(client, topic, keyed_batch(b"k", b"")).error_code == NONE


def test_timestamps_out_of_range(client: RawClient, new_topic: Callable[..., str]) -> None:
    """Too far ahead by default, too old where the topic says so; each such record is named."""
    topic = new_topic(message_timestamp_before_max_ms=86_400_000)
    now = now_ms()
    for strange in (now + 2 * 86_400_000, now - 2 * 86_400_000):
        batch = build_batch([Record(0, at, b"k", b"v") for at in (now, strange, now, strange)])
        answer = produce(client, topic, batch)
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [one.batch_index for one in answer.record_errors] == [1, 3]
    assert end_offset(client, topic) == 0


def test_a_bad_timestamp_wins_over_a_missing_key(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """One code for the batch."""
    topic = new_topic(cleanup_policy="compact")
    later = now_ms() + 2 * 86_400_000
    batch = build_batch([Record(0, now_ms(), None, b"v"), Record(0, later, b"k", b"v")])
    assert produce(client, topic, batch).error_code == ErrorCode.INVALID_TIMESTAMP


def test_negative_timestamps_are_taken(client: RawClient, new_topic: Callable[..., str]) -> None:
    """-1 says that there is none."""
    topic = new_topic()
    assert produce(client, topic, batch_of(b"v", timestamp=-1)).error_code == NONE
    assert list_offset(client, topic, EARLIEST).offset == 0


# Size


def sized_batch(size: int) -> bytearray:
    batch = batch_of(b"x" * (size - BATCH_OVERHEAD - 10))
    batch = batch_of(b"x" * (2 * size - len(batch) - BATCH_OVERHEAD - 10))
    assert len(batch) == size
    return batch


def test_max_message_bytes_bounds_the_batch_as_sent(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Compressed, to the byte, by the topic's setting, which may change while it is used."""
    topic = new_topic(max_message_bytes=2000)
    assert produce(client, topic, sized_batch(2000)).error_code == NONE
    too_large = produce(client, topic, sized_batch(2001))
    assert too_large.error_code == ErrorCode.MESSAGE_TOO_LARGE
    small = batch_of(b"x" * 100_000, compression=Compression.GZIP)
    assert len(small) < 2000
    assert produce(client, topic, small).error_code == NONE
    assert alter_config(client, topic, ("max.message.bytes", SET, "2001")) == (NONE, None)
    wait_for_size(client, topic, 2001)


def wait_for_size(client: RawClient, topic: str, size: int) -> None:
    """A change of settings is in force soon after it was answered."""
    deadline = time.monotonic() + 5
    while produce(client, topic, sized_batch(size)).error_code != NONE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_too_large_a_batch_leaves_the_connection_open(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """By the default of about a megabyte."""
    topic = new_topic()
    answer = produce(client, topic, batch_of(b"x" * (1 << 20)))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert append(client, topic, b"fits") == 0


# Time


def test_log_append_time(client: RawClient, new_topic: Callable[..., str]) -> None:
    """The broker's clock in the answer, in the batch and so in every record."""
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = now_ms()
    answer = produce(client, topic, batch_of(b"a", b"b", timestamp=1000))
    assert before <= answer.log_append_time_ms <= now_ms()
    (header,) = stored_headers(client, topic)
    assert header.max_timestamp == answer.log_append_time_ms
    assert header.attributes & 0x08
    records = records_in(fetch(client, topic, 0).records)
    assert {one.timestamp for one in records} == {answer.log_append_time_ms}
    found = list_offset(client, topic, before)
    assert (found.offset, found.timestamp) == (0, answer.log_append_time_ms)


def test_create_time_is_the_producers(client: RawClient, new_topic: Callable[..., str]) -> None:
    """However old."""
    topic = new_topic()
    assert produce(client, topic, batch_of(b"a", timestamp=1000)).log_append_time_ms == -1
    (record,) = records_in(fetch(client, topic, 0).records)
    assert record.timestamp == 1000
