"""Fetch: limits, waiting, errors of single partitions, and incremental sessions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import MetadataRequest
from kraftrio.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from kraftrio.wire.records.batch import Compression, iter_headers
from tests.conformance.cases.calls import (
    FETCH_BY_NAME,
    append,
    batch_of,
    create_topic,
    delete_records,
    delete_topic,
    fetch,
    fetch_request,
    list_offset,
    produce,
    produce_request,
    records_in,
    topic_id,
)
from tests.conformance.cases.raw_client import RawClient

NONE = ErrorCode.NONE
BIG = 1 << 20


def asked(partition: int = 0, offset: int = 0, limit: int = BIG, epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=limit,
        current_leader_epoch=epoch,
    )


def partitions_of(response: FetchResponse) -> dict[int, PartitionData]:
    """Index the partitions of a response about one topic, which must be named once."""
    assert response.error_code == NONE
    assert len(response.responses) <= 1
    found = [one for topic in response.responses for one in topic.partitions]
    assert len({one.partition_index for one in found}) == len(found)
    return {one.partition_index: one for one in found}


def size_of(partition: PartitionData) -> int:
    return len(partition.records) if partition.records else 0


# One partition


@pytest.mark.parametrize("version", range(4, 13))
def test_the_end_of_a_log_has_empty_records(
    client: RawClient, new_topic: Callable[..., str], version: int
) -> None:
    """Not null, and the offsets are given: nothing is wrong."""
    topic = new_topic()
    append(client, topic, b"a", b"b")
    answer = fetch(client, topic, 2, version=version)
    assert answer.error_code == NONE
    assert answer.records is not None
    assert size_of(answer) == 0
    assert (answer.high_watermark, answer.last_stable_offset) == (2, 2)
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert answer.aborted_transactions is None
    assert answer.preferred_read_replica == -1
    assert answer.diverging_epoch is None


def test_read_committed_names_aborted_transactions(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """An empty list where there are none, as opposed to null for read_uncommitted."""
    topic = new_topic()
    append(client, topic, b"a")
    for offset in (0, 1):
        answer = fetch(client, topic, offset, isolation_level=1)
        assert answer.aborted_transactions == []
        assert answer.last_stable_offset == 1


def test_offsets_outside_of_the_log(client: RawClient, new_topic: Callable[..., str]) -> None:
    """Below its start and above its end; the end itself is fine."""
    topic = new_topic()
    for _ in range(4):
        append(client, topic, b"v")
    assert delete_records(client, topic, 2).low_watermark == 2
    for offset in (0, 1, 5, 100, -5):
        answer = fetch(client, topic, offset)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE, offset
        assert (answer.high_watermark, answer.log_start_offset) == (-1, -1)
        assert size_of(answer) == 0
    for offset in (2, 3, 4):
        answer = fetch(client, topic, offset)
        assert (answer.error_code, answer.log_start_offset) == (NONE, 2)


def test_unknown_topic_and_partition(
    client: RawClient, new_topic: Callable[..., str], unique_topic: Callable[[], str]
) -> None:
    """Alone they are answered at once; beside others they fail alone, when the others are answered.

    An answer at once, whatever else the fetch waits for, would make a client spin.
    """
    topic = new_topic()
    append(client, topic, b"v")
    begin = time.monotonic()
    answer = fetch(client, unique_topic(), 0, max_wait_ms=5000)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert time.monotonic() - begin < 2
    request = fetch_request(topic, asked(0), asked(7), max_wait_ms=300, min_bytes=BIG)
    begin = time.monotonic()
    found = partitions_of(client.call(request, FETCH_BY_NAME))
    assert time.monotonic() - begin > 0.28
    assert found[7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(records_in(found[0].records)) == 1


def test_leader_epochs_are_checked(client: RawClient, new_topic: Callable[..., str]) -> None:
    """An older one is fenced, a newer one not known yet, -1 is not a check (KIP-320)."""
    topic = new_topic()
    append(client, topic, b"v")
    epoch = list_offset(client, topic, -1).leader_epoch
    assert fetch(client, topic, 0, current_leader_epoch=epoch).error_code == NONE
    newer = fetch(client, topic, 0, current_leader_epoch=epoch + 1)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    if epoch > 0:
        older = fetch(client, topic, 0, current_leader_epoch=epoch - 1)
        assert older.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_reader_ahead_of_the_log_is_told_where_it_diverges(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Its last epoch ends earlier here (KIP-595); a plain reader is out of range."""
    topic = new_topic()
    append(client, topic, b"v")
    epoch = list_offset(client, topic, -1).leader_epoch
    answer = fetch(client, topic, 5, last_fetched_epoch=epoch)
    assert answer.error_code == NONE
    assert answer.diverging_epoch is not None
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (epoch, 1)
    assert size_of(answer) == 0
    assert fetch(client, topic, 1, last_fetched_epoch=epoch).diverging_epoch is None


def test_a_batch_is_returned_whole_from_within(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Also when the log starts within it, and when it is compressed."""
    topic = new_topic()
    for codec in (Compression.NONE, Compression.GZIP):
        batch = batch_of(*[b"%d" % index for index in range(10)], compression=codec)
        assert produce(client, topic, batch).error_code == NONE
    records = records_in(fetch(client, topic, 15).records)
    assert [one.offset for one in records] == list(range(10, 20))
    assert delete_records(client, topic, 5).low_watermark == 5
    records = records_in(fetch(client, topic, 5).records)
    assert [one.offset for one in records] == list(range(20))
    assert fetch(client, topic, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_fetch_as_an_unknown_follower(client: RawClient, new_topic: Callable[..., str]) -> None:
    """A replica id that the partition does not have is not served, but is given the leader."""
    topic = new_topic()
    append(client, topic, b"v")
    by_field = fetch_request(topic, asked())
    by_field.replica_id = 77
    found = partitions_of(client.call(by_field, FETCH_BY_NAME))
    assert found[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    by_tag = by_id_request(topic_id(client, topic), asked())
    by_tag.replica_state = ReplicaState(replica_id=77)
    (node,) = client.call(MetadataRequest(topics=[])).brokers
    for version in (15, 16, 17, 18):
        found = partitions_of(client.call(by_tag, version))
        assert found[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert found[0].aborted_transactions is None
        leader = found[0].current_leader
        assert (leader.leader_id if leader else None) == (node.node_id if version >= 16 else None)


# Limits


def test_the_first_batch_is_whole_however_small_the_limits(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Else its reader would never get past it (KIP-74)."""
    topic = new_topic()
    append(client, topic, b"x" * 500_000)
    append(client, topic, b"y")
    for limits in ((1, 1), (0, 0), (1, BIG), (BIG, 1)):
        answer = fetch(client, topic, 0, max_bytes=limits[0], partition_max_bytes=limits[1])
        assert [one.offset for one in records_in(answer.records)] == [0], limits


def test_the_limit_of_a_partition(client: RawClient, new_topic: Callable[..., str]) -> None:
    """Only whole batches that fit are of use to the reader."""
    topic = new_topic()
    sizes = []
    for _ in range(5):
        batch = batch_of(b"x" * 1000)
        sizes.append(len(batch))
        produce(client, topic, batch)
    answer = fetch(client, topic, 0, partition_max_bytes=sum(sizes[:3]))
    assert len(records_in_whole_batches(answer)) == 3
    assert size_of(answer) <= sum(sizes[:3])


def records_in_whole_batches(answer: PartitionData) -> list[int]:
    """Return the base offsets of the batches that are whole."""
    data = answer.records
    assert data is not None
    headers = iter_headers(data, allow_partial=True)  # type: ignore[arg-type]
    return [one.base_offset for one in headers]


def test_what_one_partition_took_is_missing_for_the_others(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """max_bytes bounds the response; a partition without records still has its offsets."""
    topic = new_topic(partitions=5)
    for partition in range(5):
        append(client, topic, b"x" * 100_000, partition=partition)
    request = fetch_request(topic, *[asked(one) for one in range(5)], max_bytes=150_000)
    found = partitions_of(client.call(request, FETCH_BY_NAME))
    assert sorted(found) == list(range(5))
    total = sum(size_of(one) for one in found.values())
    assert 100_000 < total <= 150_000
    assert all((one.error_code, one.high_watermark) == (NONE, 1) for one in found.values())


def test_partitions_of_one_topic_are_together(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """The topic is named once and each of its partitions once."""
    topic = new_topic(partitions=50)
    for partition in range(0, 50, 7):
        append(client, topic, b"v", partition=partition)
    request = fetch_request(topic, *[asked(one) for one in range(50)])
    found = partitions_of(client.call(request, FETCH_BY_NAME))
    assert sorted(found) == list(range(50))
    assert {one for one, data in found.items() if size_of(data)} == set(range(0, 50, 7))


# Waiting


def test_an_idle_fetch_waits_and_ends_without_an_error(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """With several partitions, too."""
    topic = new_topic(partitions=3)
    request = fetch_request(topic, asked(0), asked(1), asked(2), max_wait_ms=300)
    begin = time.monotonic()
    found = partitions_of(client.call(request, FETCH_BY_NAME))
    assert 0.28 <= time.monotonic() - begin < 3
    assert [one.error_code for one in found.values()] == [NONE] * 3


def test_a_waiting_fetch_is_woken_by_data(
    connect: Callable[[], RawClient], new_topic: Callable[..., str]
) -> None:
    """As soon as there is enough."""
    reader, writer = connect(), connect()
    topic = new_topic(partitions=2)
    request = fetch_request(topic, asked(0), asked(1), max_wait_ms=10_000)
    begin = time.monotonic()
    correlation_id = reader.send(request, FETCH_BY_NAME)
    time.sleep(0.05)
    append(writer, topic, b"v", partition=1)
    found = partitions_of(reader.receive(request, FETCH_BY_NAME, correlation_id))
    assert time.monotonic() - begin < 5
    assert len(records_in(found[1].records)) == 1


def test_min_bytes_counts_over_partitions(
    connect: Callable[[], RawClient], new_topic: Callable[..., str]
) -> None:
    """One batch is not enough, the second one is."""
    reader, writer = connect(), connect()
    topic = new_topic(partitions=2)
    size = len(batch_of(b"x" * 1000))
    request = fetch_request(topic, asked(0), asked(1), max_wait_ms=10_000, min_bytes=2 * size)
    correlation_id = reader.send(request, FETCH_BY_NAME)
    append(writer, topic, b"x" * 1000, partition=0)
    assert reader.is_silent(0.2)
    append(writer, topic, b"x" * 1000, partition=1)
    found = partitions_of(reader.receive(request, FETCH_BY_NAME, correlation_id, timeout_s=5))
    assert [len(records_in(one.records)) for one in found.values()] == [1, 1]


@pytest.mark.parametrize("min_bytes", [0, -1])
def test_without_min_bytes_there_is_no_wait(
    client: RawClient, new_topic: Callable[..., str], min_bytes: int
) -> None:
    """Nothing is enough."""
    topic = new_topic()
    begin = time.monotonic()
    answer = fetch(client, topic, 0, max_wait_ms=5000, min_bytes=min_bytes)
    assert answer.error_code == NONE
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize("min_bytes", [0, 1])
def test_a_fetch_of_nothing_does_not_wait(client: RawClient, min_bytes: int) -> None:
    """There is nothing to wait for."""
    begin = time.monotonic()
    request = fetch_request("unused", max_wait_ms=5000, min_bytes=min_bytes)
    response = client.call(request, FETCH_BY_NAME)
    assert (response.error_code, response.session_id, response.responses) == (NONE, 0, [])
    assert time.monotonic() - begin < 2


def test_deletion_ends_a_wait(
    connect: Callable[[], RawClient], new_topic: Callable[..., str]
) -> None:
    """The reader learns at once that there is nothing to wait for any more."""
    reader, admin = connect(), connect()
    topic = new_topic()
    request = fetch_request(topic, asked(), max_wait_ms=10_000)
    correlation_id = reader.send(request, FETCH_BY_NAME)
    time.sleep(0.05)
    delete_topic(admin, topic)
    found = partitions_of(reader.receive(request, FETCH_BY_NAME, correlation_id, timeout_s=5))
    assert found[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Sessions


class Session:
    """A consumer's side of an incremental fetch session."""

    def __init__(self, client: RawClient, version: int = FETCH_BY_NAME) -> None:
        self.client = client
        self.version = version
        self.id = 0
        self.epoch = 0

    def call(self, request: FetchRequest) -> FetchResponse:
        """Send a request as the session's next one."""
        request.session_id, request.session_epoch = self.id, self.epoch
        response = self.client.call(request, self.version)
        assert isinstance(response, FetchResponse)
        if response.error_code == NONE:
            assert self.epoch == 0 or response.session_id == self.id
            self.id, self.epoch = response.session_id, self.epoch + 1
        return response


def test_a_session_returns_only_changes(client: RawClient, new_topic: Callable[..., str]) -> None:
    """First everything, then only partitions with records or changed offsets."""
    topic = new_topic(partitions=3)
    session = Session(client)
    first = session.call(fetch_request(topic, asked(0), asked(1), asked(2)))
    assert session.id > 0
    assert sorted(partitions_of(first)) == [0, 1, 2]
    assert partitions_of(session.call(fetch_request(topic))) == {}
    append(client, topic, b"v", partition=1)
    found = partitions_of(session.call(fetch_request(topic)))
    assert list(found) == [1]
    assert len(records_in(found[1].records)) == 1
    found = partitions_of(session.call(fetch_request(topic, asked(1, offset=1))))
    assert found == {}
    delete_records(client, topic, 1, partition=1)
    found = partitions_of(session.call(fetch_request(topic)))
    assert {one: data.log_start_offset for one, data in found.items()} == {1: 1}


def test_partitions_leave_and_join_a_session(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """By the forgotten topics, and by being named."""
    topic = new_topic(partitions=2)
    session = Session(client)
    session.call(fetch_request(topic, asked(0)))
    found = partitions_of(session.call(fetch_request(topic, asked(1))))
    assert list(found) == [1]
    forget = fetch_request(topic)
    forget.forgotten_topics_data = [ForgottenTopic(topic=topic, partitions=[0])]
    session.call(forget)
    append(client, topic, b"a", partition=0)
    append(client, topic, b"b", partition=1)
    assert list(partitions_of(session.call(fetch_request(topic)))) == [1]


def test_wrong_session_id_and_epoch(client: RawClient, new_topic: Callable[..., str]) -> None:
    """Top-level errors without partitions; the session itself goes on."""
    topic = new_topic()
    session = Session(client)
    session.call(fetch_request(topic, asked()))
    unknown = client.call(fetch_request(topic, session_id=session.id ^ 1, session_epoch=1), 12)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for epoch in (2, 17):
        early = client.call(fetch_request(topic, session_id=session.id, session_epoch=epoch), 12)
        assert early.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert (early.session_id, early.responses) == (0, [])
    assert session.call(fetch_request(topic)).error_code == NONE


def test_a_closed_session_is_gone(client: RawClient, new_topic: Callable[..., str]) -> None:
    """Epoch -1 with its id ends it, and still fetches."""
    topic = new_topic()
    append(client, topic, b"v")
    session = Session(client)
    session.call(fetch_request(topic, asked()))
    last = client.call(fetch_request(topic, asked(), session_id=session.id, session_epoch=-1), 12)
    assert last.session_id == 0
    assert len(records_in(partitions_of(last)[0].records)) == 1
    gone = session.call(fetch_request(topic))
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epoch_zero_replaces_a_session(client: RawClient, new_topic: Callable[..., str]) -> None:
    """A client that starts over gets a new one."""
    topic = new_topic()
    session = Session(client)
    session.call(fetch_request(topic, asked()))
    old = session.id
    session.epoch = 0
    answer = session.client.call(
        fetch_request(topic, asked(), session_id=old, session_epoch=0), FETCH_BY_NAME
    )
    assert answer.session_id not in (0, old)
    gone = client.call(fetch_request(topic, session_id=old, session_epoch=1), FETCH_BY_NAME)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_forgot_everything_is_over(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Its last answer has no session id."""
    topic = new_topic()
    session = Session(client)
    session.call(fetch_request(topic, asked()))
    forget = fetch_request(topic, session_id=session.id, session_epoch=1)
    forget.forgotten_topics_data = [ForgottenTopic(topic=topic, partitions=[0])]
    answer = client.call(forget, FETCH_BY_NAME)
    assert (answer.error_code, answer.session_id, answer.responses) == (NONE, 0, [])


def test_every_partition_of_a_session_gets_its_turn(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """A partition that was served goes to the end of the queue, however many records it has."""
    topic = new_topic(partitions=10)
    for _ in range(5):
        append(client, topic, b"x" * 20_000, partition=0)
    for partition in range(1, 10):
        append(client, topic, b"x" * 20_000, partition=partition)
    session, offsets = Session(client), dict.fromkeys(range(10), 0)
    answer = session.call(fetch_request(topic, *[asked(one) for one in range(10)], max_bytes=1))
    for _ in range(30):
        changed = []
        for partition, data in partitions_of(answer).items():
            count = len(records_in(data.records))
            if count:
                offsets[partition] += count
                changed.append(asked(partition, offset=offsets[partition]))
        if min(offsets.values()) > 0:
            break
        answer = session.call(fetch_request(topic, *changed, max_bytes=1))
    assert min(offsets.values()) > 0
    assert offsets[0] < 5


def test_a_session_remembers_the_leader_epoch(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """It is checked on each fetch, also if only the epoch was changed; errors are repeated."""
    topic = new_topic()
    epoch = list_offset(client, topic, -1).leader_epoch
    session = Session(client)
    found = partitions_of(session.call(fetch_request(topic, asked(epoch=epoch))))
    assert found[0].error_code == NONE
    for changes in ([asked(epoch=epoch + 1)], [], []):
        found = partitions_of(session.call(fetch_request(topic, *changes)))
        assert found[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    found = partitions_of(session.call(fetch_request(topic, asked(epoch=epoch))))
    assert found[0].error_code == NONE


# Topic ids


def by_id_request(identity: bytes, *parts: FetchPartition, **options: int) -> FetchRequest:
    request = fetch_request("", **options)
    request.topics = [FetchTopic(topic_id=identity, partitions=list(parts))] if parts else []
    return request


@pytest.mark.parametrize("version", range(13, 19))
def test_fetch_by_topic_id(client: RawClient, new_topic: Callable[..., str], version: int) -> None:
    """The answer names the id; an unknown one is UNKNOWN_TOPIC_ID."""
    topic = new_topic()
    append(client, topic, b"v")
    identity = topic_id(client, topic)
    response = client.call(by_id_request(identity, asked()), version)
    assert [one.topic_id for one in response.responses] == [identity]
    assert len(records_in(partitions_of(response)[0].records)) == 1
    for unknown in (b"\x01" * 16, bytes(16)):
        response = client.call(by_id_request(unknown, asked()), version)
        assert [one.topic_id for one in response.responses] == [unknown]
        assert partitions_of(response)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_an_unknown_id_fails_on_every_fetch_of_a_session(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Until it is forgotten."""
    topic, unknown = new_topic(), b"\x02" * 16
    session = Session(client, 17)
    request = by_id_request(topic_id(client, topic), asked())
    request.topics.append(FetchTopic(topic_id=unknown, partitions=[asked()]))
    first = session.call(request)
    assert len(first.responses) == 2
    for _ in range(3):
        (only,) = session.call(by_id_request(unknown)).responses
        assert only.topic_id == unknown
        assert only.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    forget = by_id_request(unknown)
    forget.forgotten_topics_data = [ForgottenTopic(topic_id=unknown, partitions=[0])]
    assert session.call(forget).responses == []


def test_sessions_over_a_deleted_and_recreated_topic(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """By id or by name, each fetch has an error: the reader never stalls without one."""
    topic = new_topic()
    append(client, topic, b"v")
    by_id, by_name = Session(client, 17), Session(client)
    by_id.call(by_id_request(topic_id(client, topic), asked(offset=1)))
    by_name.call(fetch_request(topic, asked(offset=1)))
    delete_topic(client, topic)
    codes = []
    for _ in range(2):
        (one,) = by_id.call(by_id_request(b"")).responses
        codes.append(one.partitions[0].error_code)
        found = partitions_of(by_name.call(fetch_request(topic)))
        codes.append(found[0].error_code)
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4
    create_topic(client, topic)
    (one,) = by_id.call(by_id_request(b"")).responses
    assert one.partitions[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    found = partitions_of(by_name.call(fetch_request(topic)))
    assert found[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_session_uses_ids_or_names_not_both(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Whichever it began with."""
    topic = new_topic()
    session = Session(client, 17)
    session.call(by_id_request(topic_id(client, topic), asked()))
    session.version = FETCH_BY_NAME
    answer: Any = session.call(fetch_request(topic))
    assert answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


# Whole requests


def test_what_was_acknowledged_can_be_fetched_at_once(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """With acks=all the high watermark has passed it before the answer."""
    topic = new_topic()
    for count in range(50):
        client.call(produce_request(topic, batch_of(b"%d" % count)), 12)
        answer = fetch(client, topic, count)
        assert [one.value for one in records_in(answer.records)] == [b"%d" % count]
        assert answer.high_watermark == count + 1
