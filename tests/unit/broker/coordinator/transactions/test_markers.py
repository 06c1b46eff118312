"""Markers find their leaders, through every change of them, and none is lost or reported twice."""

from __future__ import annotations

import random

import pytest

from kraftrio.broker.coordinator.transactions import markers
from kraftrio.broker.coordinator.transactions.markers import (
    BACKOFF,
    PartitionLeader,
    PendingMarkers,
    SentMarkers,
)
from kraftrio.broker.coordinator.transactions.ports import TransactionEnd
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kraftrio.wire.primitives import TopicPartition

NONE = ErrorCode.NONE
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def an_end(
    *partitions: TopicPartition, name: str = "t", producer_id: int = 7, shard: int = 0
) -> TransactionEnd:
    """Make a decided transaction."""
    return TransactionEnd(
        transactional_id=name,
        coordinator_partition=shard,
        coordinator_epoch=5,
        producer_id=producer_id,
        producer_epoch=3,
        commit=True,
        transaction_version=2,
        partitions=frozenset(partitions),
    )


def answer(
    request: WriteTxnMarkersRequest,
    code: ErrorCode = NONE,
    *,
    other: dict[TopicPartition, ErrorCode] | None = None,
) -> WriteTxnMarkersResponse:
    """Answer a request with one code, but for some partitions."""
    codes = other or {}
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=codes.get(TopicPartition(topic.name, index), code),
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


class Cluster:
    """Who leads what, and the markers that are to be written."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, PartitionLeader] = {}
        self.now_ms = 1000.0
        self.core = PendingMarkers(lambda one: self.leaders.get(one))
        for one, leader in ((A0, 1), (A1, 2), (B0, 1)):
            self.lead(one, leader)

    def lead(self, topic_partition: TopicPartition, leader: int, topic_id: str = "") -> None:
        name = topic_id or topic_partition.topic
        self.leaders[topic_partition] = PartitionLeader(leader, name.encode())

    def delete(self, topic_partition: TopicPartition) -> None:
        del self.leaders[topic_partition]

    def add(self, end: TransactionEnd) -> None:
        self.core.add(end)
        self.assign()

    def assign(self) -> None:
        while self.core.assign(self.now_ms):
            pass

    def take(self, broker_id: int) -> SentMarkers:
        sent = self.core.take(broker_id, self.now_ms)
        assert sent is not None
        return sent

    def take_all(self) -> list[SentMarkers]:
        taken = [self.core.take(broker_id, self.now_ms) for broker_id in self.core.brokers()]
        return [sent for sent in taken if sent is not None]

    def respond(self, sent: SentMarkers, code: ErrorCode = NONE) -> None:
        self.core.on_response(sent, answer(sent.request, code), self.now_ms)

    def finished(self) -> list[str]:
        return [end.transactional_id for end in self.core.pop_finished()]

    def pass_back_off(self) -> None:
        due_ms = self.core.next_retry_ms()
        assert due_ms is not None
        assert due_ms > self.now_ms
        self.now_ms = due_ms
        self.assign()


def partitions_of(sent: SentMarkers) -> list[list[TopicPartition]]:
    """The partitions of each marker in a request."""
    return [
        [TopicPartition(topic.name, index) for topic in one.topics
         for index in topic.partition_indexes]
        for one in sent.request.markers
    ]  # fmt: skip


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_markers_go_to_the_leaders_and_the_end_is_reported_when_all_are_written(
    cluster: Cluster,
) -> None:
    cluster.add(an_end(A0, A1, B0))
    assert sorted(cluster.core.brokers()) == [1, 2]
    first, second = cluster.take(1), cluster.take(2)
    assert partitions_of(first) == [[A0, B0]]
    (marker,) = first.request.markers
    assert (marker.producer_id, marker.producer_epoch) == (7, 3)
    assert marker.transaction_result
    assert (marker.coordinator_epoch, marker.transaction_version) == (5, 2)
    cluster.respond(first)
    assert cluster.finished() == []
    cluster.respond(second)
    assert cluster.finished() == ["t"]
    assert cluster.finished() == []
    assert cluster.core.pending_count == 0


def test_transactions_share_one_request_to_a_broker(cluster: Cluster) -> None:
    cluster.add(an_end(A0, name="x", producer_id=1))
    cluster.add(an_end(A0, B0, name="y", producer_id=2))
    sent = cluster.take(1)
    assert partitions_of(sent) == [[A0], [A0, B0]]
    assert cluster.core.take(1, cluster.now_ms) is None
    response = answer(sent.request, other={B0: ErrorCode.NOT_ENOUGH_REPLICAS})
    cluster.core.on_response(sent, response, cluster.now_ms)
    assert cluster.finished() == ["x"]


def test_a_transaction_without_partitions_is_finished_at_once(cluster: Cluster) -> None:
    cluster.add(an_end())
    assert cluster.finished() == ["t"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_what_is_not_written_is_sent_again_after_a_back_off(
    cluster: Cluster, code: ErrorCode
) -> None:
    cluster.add(an_end(A0))
    for failures in range(8):
        cluster.respond(cluster.take(1), code)
        assert cluster.finished() == []
        assert cluster.core.brokers() == []
        assert cluster.core.next_retry_ms() == cluster.now_ms + BACKOFF.after(failures)
        cluster.pass_back_off()
    cluster.respond(cluster.take(1))
    assert cluster.finished() == ["t"]
    assert cluster.core.next_retry_ms() is None


def test_a_partition_that_the_answer_leaves_out_is_not_written(cluster: Cluster) -> None:
    cluster.add(an_end(A0))
    cluster.core.on_response(cluster.take(1), WriteTxnMarkersResponse(), cluster.now_ms)
    assert cluster.finished() == []
    cluster.pass_back_off()
    assert partitions_of(cluster.take(1)) == [[A0]]


def test_only_what_failed_is_sent_again(cluster: Cluster) -> None:
    cluster.add(an_end(A0, B0))
    sent = cluster.take(1)
    response = answer(sent.request, other={B0: ErrorCode.KAFKA_STORAGE_ERROR})
    cluster.core.on_response(sent, response, cluster.now_ms)
    cluster.pass_back_off()
    assert partitions_of(cluster.take(1)) == [[B0]]


def test_a_request_without_an_answer_is_sent_again(cluster: Cluster) -> None:
    cluster.add(an_end(A0, B0))
    cluster.core.on_failed(cluster.take(1), cluster.now_ms)
    cluster.pass_back_off()
    cluster.respond(cluster.take(1))
    assert cluster.finished() == ["t"]


def test_without_a_leader_markers_wait_for_one(cluster: Cluster) -> None:
    cluster.lead(A0, -1)
    cluster.add(an_end(A0))
    assert cluster.core.brokers() == []
    cluster.lead(A0, 3)
    cluster.core.on_metadata(cluster.now_ms)
    assert cluster.core.brokers() == [3]
    cluster.respond(cluster.take(3))
    assert cluster.finished() == ["t"]


def test_a_new_leader_is_asked_at_once_even_if_the_former_one_never_answers(
    cluster: Cluster,
) -> None:
    cluster.add(an_end(A0, B0))
    silent = cluster.take(1)
    cluster.lead(A0, 2)
    cluster.core.on_metadata(cluster.now_ms)
    moved = cluster.take(2)
    assert partitions_of(moved) == [[A0]]
    cluster.respond(moved)
    assert cluster.finished() == []
    cluster.core.on_failed(silent, cluster.now_ms)
    cluster.pass_back_off()
    again = cluster.take(1)
    assert partitions_of(again) == [[B0]]
    cluster.respond(again)
    assert cluster.finished() == ["t"]


def test_the_former_leaders_answer_does_not_count_for_the_new_one(cluster: Cluster) -> None:
    cluster.add(an_end(A0))
    former = cluster.take(1)
    cluster.lead(A0, 2)
    cluster.core.on_metadata(cluster.now_ms)
    cluster.respond(former)
    assert cluster.finished() == []
    cluster.respond(cluster.take(2))
    assert cluster.finished() == ["t"]


def test_a_leader_that_changed_before_the_request_left_is_noticed(cluster: Cluster) -> None:
    cluster.add(an_end(A0))
    cluster.lead(A0, 2)
    assert cluster.core.take(1, cluster.now_ms) is None
    assert partitions_of(cluster.take(2)) == [[A0]]


def test_partitions_of_deleted_topics_need_no_marker(cluster: Cluster) -> None:
    cluster.delete(A0)
    cluster.add(an_end(A0, B0))
    sent = cluster.take(1)
    assert partitions_of(sent) == [[B0]]
    cluster.respond(sent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster.delete(B0)
    cluster.core.on_metadata(cluster.now_ms)
    assert cluster.finished() == ["t"]


def test_a_topic_deleted_while_its_broker_is_silent_holds_nothing_up(cluster: Cluster) -> None:
    cluster.add(an_end(A0))
    sent = cluster.take(1)
    cluster.delete(A0)
    cluster.core.on_metadata(cluster.now_ms)
    assert cluster.finished() == ["t"]
    cluster.core.on_failed(sent, cluster.now_ms)
    assert cluster.core.next_retry_ms() is None


def test_a_topic_of_the_same_name_made_since_the_end_gets_no_marker(cluster: Cluster) -> None:
    cluster.add(an_end(A0))
    cluster.respond(cluster.take(1), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.lead(A0, 1, topic_id="a, made again")
    cluster.pass_back_off()
    assert cluster.core.brokers() == []
    assert cluster.finished() == ["t"]


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
def test_a_fenced_transaction_is_left_to_the_later_coordinator(
    cluster: Cluster, code: ErrorCode
) -> None:
    cluster.add(an_end(A0, A1))
    other = cluster.take(2)
    cluster.respond(cluster.take(1), code)
    cluster.respond(other)
    assert cluster.finished() == []
    assert cluster.core.pending_count == 0
    assert cluster.core.next_retry_ms() is None


def test_what_a_resigned_coordinator_had_decided_is_never_reported(cluster: Cluster) -> None:
    cluster.add(an_end(A0, name="mine", producer_id=1))
    cluster.add(an_end(A0, name="other", producer_id=2, shard=1))
    sent = cluster.take(1)
    cluster.add(an_end(B0, name="queued", producer_id=3))
    cluster.core.drop(0)
    cluster.respond(sent)
    assert cluster.core.take(1, cluster.now_ms) is None
    assert cluster.finished() == ["other"]
    assert cluster.core.pending_count == 0


def test_after_a_new_election_the_former_requests_answer_counts_for_nothing(
    cluster: Cluster,
) -> None:
    cluster.add(an_end(A0))
    former = cluster.take(1)
    cluster.core.drop(0)
    cluster.add(an_end(A0))
    cluster.respond(former)
    assert cluster.finished() == []
    cluster.respond(cluster.take(1))
    assert cluster.finished() == ["t"]


def test_large_transactions_are_looked_at_and_sent_in_parts(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "_MAX_PARTITIONS", 4)
    partitions = [TopicPartition("large", index) for index in range(10)]
    for one in partitions:
        cluster.lead(one, 1)
    cluster.core.add(an_end(*partitions))
    assert cluster.core.assign(cluster.now_ms)
    first = cluster.take(1)
    assert partitions_of(first) == [partitions[:4]]
    cluster.respond(first)
    assert cluster.finished() == []
    cluster.assign()
    written = 4
    while cluster.core.brokers():
        sent = cluster.take(1)
        written += len(partitions_of(sent)[0])
        cluster.respond(sent)
    assert written == 10
    assert cluster.finished() == ["t"]


@pytest.mark.parametrize("seed", range(20))
def test_every_transaction_ends_once_in_any_history(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster()
    names = [f"t{index}" for index in range(8)]
    in_flight: list[SentMarkers] = []
    finished: list[str] = []
    for step in range(400):
        kind = rng.choice(["lead", "take", "respond", "fail", "metadata", "time"])
        if step % 50 == 0:
            name = names[step // 50]
            chosen = rng.sample([A0, A1, B0], rng.randint(1, 3))
            cluster.core.add(an_end(*chosen, name=name, producer_id=step))
        if kind == "lead":
            cluster.lead(rng.choice([A0, A1, B0]), rng.choice([-1, 1, 2, 3]))
        elif kind == "take":
            in_flight += cluster.take_all()
        elif kind == "respond" and in_flight:
            code = rng.choice([NONE, NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
            cluster.respond(in_flight.pop(rng.randrange(len(in_flight))), code)
        elif kind == "fail" and in_flight:
            sent = in_flight.pop(rng.randrange(len(in_flight)))
            cluster.core.on_failed(sent, cluster.now_ms)
        elif kind == "metadata":
            cluster.core.on_metadata(cluster.now_ms)
        else:
            cluster.now_ms += rng.choice([1, 50, 2000])
        cluster.core.assign(cluster.now_ms)
        finished += cluster.finished()
    for one in (A0, A1, B0):
        cluster.lead(one, 1)
    cluster.core.on_metadata(cluster.now_ms)
    for _ in range(5):
        cluster.now_ms += 2000
        cluster.assign()
        for sent in in_flight + cluster.take_all():
            cluster.respond(sent)
        in_flight = []
        finished += cluster.finished()
    assert sorted(finished) == names
    assert cluster.core.pending_count == 0
