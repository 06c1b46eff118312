"""TxnOffsetCommit and what OffsetFetch shows of it, in all versions, down to the log."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.coordinator.groups import offset_commit
from kraftrio.broker.coordinator.outcome import ProducerOfBatch
from kraftrio.broker.ports import VerificationResult
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kraftrio.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import parse_header
from kraftrio.wire.records.control import EndTransactionMarker
from kraftrio.wire.topic_names import CONSUMER_OFFSETS
from tests.support.sliced import finish_counting, finish_timing
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn, FakeLog, ask

TOPIC_ID = b"t" * 16
PRODUCER = ProducerOfBatch(77, 3)
VERSIONS = range(6)
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def broker() -> BrokerStandIn:
    broker = BrokerStandIn()
    broker.metadata.add_topic("topic", TOPIC_ID, 2)
    return broker


def request(*partitions: int, topic: str = "topic", **kwargs: Any) -> TxnOffsetCommitRequest:
    values = {"transactional_id": "id", "group_id": "group", **PRODUCER._asdict(), **kwargs}
    return TxnOffsetCommitRequest(
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=p, committed_offset=10 + p)
                    for p in partitions
                ],
            )
        ],
        **values,
    )


def codes(response: Any) -> list[int]:
    return [p.error_code for topic in response.topics for p in topic.partitions]


def commit_plainly(broker: BrokerStandIn, offset: int) -> None:
    partition = OffsetCommitRequestPartition(committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name="topic", partitions=[partition])]
    assert codes(ask(broker, OffsetCommitRequest(group_id="group", topics=topics), 8)) == [NONE]


def partition_of(broker: BrokerStandIn) -> TopicPartition:
    return TopicPartition(CONSUMER_OFFSETS, broker.coordinator.partition_for("group"))


def log_of(broker: BrokerStandIn) -> FakeLog:
    return broker.replicas.logs[partition_of(broker)]


def end(broker: BrokerStandIn, *, commit: bool = True) -> ErrorCode:
    ended = broker.coordinator.end_transaction(
        partition_of(broker).partition,
        PRODUCER,
        EndTransactionMarker(commit, 0),
        transaction_version=2,
    )
    return ended.value


def fetched(broker: BrokerStandIn, version: int, *, require_stable: bool = False) -> Any:
    """(error, offset) of partition 0."""
    if version >= 8:
        topic = OffsetFetchRequestTopics(name="topic", topic_id=TOPIC_ID, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id="group", topics=[topic])
        asked = OffsetFetchRequest(groups=[group], require_stable=require_stable)
        (answer,) = ask(broker, asked, version).groups
    else:
        old_topic = OffsetFetchRequestTopic(name="topic", partition_indexes=[0])
        asked = OffsetFetchRequest(
            group_id="group", topics=[old_topic], require_stable=require_stable
        )
        answer = ask(broker, asked, version)
    assert answer.error_code == NONE
    (partition,) = answer.topics[0].partitions
    return partition.error_code, partition.committed_offset


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_in_every_version(broker: BrokerStandIn, version: int) -> None:
    """It is verified, then written as a batch of the producer; each partition has its error."""
    response = ask(broker, request(0, 5, 1), version)
    assert codes(response) == [NONE, UNKNOWN, NONE]
    assert [p.partition_index for p in response.topics[0].partitions] == [0, 5, 1]
    ((asked, _),) = broker.verifier.asked
    assert asked == {
        "topic_partition": partition_of(broker),
        "transactional_id": "id",
        **PRODUCER._asdict(),
        "adds_partition": version == 5,
        "knows_abortable": version >= 4,
    }
    (batch,) = log_of(broker).batches
    header = parse_header(batch)
    assert (header.producer_id, header.producer_epoch) == PRODUCER
    assert (header.is_transactional, header.base_sequence, header.record_count) == (True, 0, 2)


@pytest.mark.parametrize("version", range(1, 11))
@pytest.mark.parametrize("commit", [True, False])
def test_what_a_fetch_shows_of_it(broker: BrokerStandIn, version: int, commit: bool) -> None:
    """88 until the end where the client asks for stable offsets (7 on), else the one before."""
    commit_plainly(broker, 1)
    ask(broker, request(0), 5)
    assert fetched(broker, version) == (NONE, 1)
    if version >= 7:
        assert fetched(broker, version, require_stable=True) == (UNSTABLE, -1)
    assert end(broker, commit=commit) is NONE
    assert fetched(broker, version) == (NONE, 10 if commit else 1)
    if version >= 7:
        assert fetched(broker, version, require_stable=True) == (NONE, 10 if commit else 1)


def test_a_stable_fetch_waits_until_the_marker_is_committed(broker: BrokerStandIn) -> None:
    """It is what a consumer begins with: it must not be taken back."""
    ask(broker, request(0), 5)
    broker.replicas.auto_commit = False
    ended = broker.coordinator.end_transaction(
        partition_of(broker).partition,
        PRODUCER,
        EndTransactionMarker(True, 0),
        transaction_version=2,
    )
    topic = OffsetFetchRequestTopics(name="topic", partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id="group", topics=[topic])
    waiting = broker.call(OffsetFetchRequest(groups=[group], require_stable=True), 8)
    assert isinstance(waiting, Deferred)
    assert fetched(broker, 8) == (NONE, -1)
    assert not waiting.done
    broker.replicas.commit(partition_of(broker))
    assert ended.value is NONE
    assert waiting.value.groups[0].topics[0].partitions[0].committed_offset == 10
    assert fetched(broker, 8) == (NONE, 10)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("verified", "code"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_what_is_not_verified_is_refused(
    broker: BrokerStandIn, version: int, verified: ErrorCode, code: ErrorCode
) -> None:
    """With a code that clients of a coordinator know, for all that exists; nothing is written."""
    broker.verifier.result = VerificationResult(verified)
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < 2:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(ask(broker, request(0, 7), version)) == [code, UNKNOWN]
    assert log_of(broker).log_end_offset == 0


@pytest.mark.parametrize(
    ("kwargs", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"producer_id": -1}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_epoch": -1}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"topic": "ghost"}, UNKNOWN),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_errors_that_need_no_coordinator(
    broker: BrokerStandIn, version: int, kwargs: dict[str, Any], code: ErrorCode
) -> None:
    """The transaction's coordinator is not asked."""
    assert codes(ask(broker, request(0, 1, **kwargs), version)) == [code, code]
    assert ask(broker, request(0, **{**kwargs, "topic": "ghost"}), version).topics[0].name
    assert not broker.verifier.asked
    assert log_of(broker).log_end_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_without_partitions_has_an_empty_answer(
    broker: BrokerStandIn, version: int
) -> None:
    """With topics that name none as well."""
    assert codes(ask(broker, request(), version)) == []
    empty = request()
    empty.topics = []
    assert ask(broker, empty, version).topics == []
    assert not broker.verifier.asked


@pytest.mark.parametrize("version", VERSIONS)
def test_a_generation_counts_from_version_3_on(broker: BrokerStandIn, version: int) -> None:
    """Before, a request has none."""
    if version < 3:
        assert codes(ask(broker, request(0), version)) == [NONE]
        return
    refused = ask(broker, request(0, 7, member_id="m", generation_id=1), version)
    assert codes(refused) == [ErrorCode.ILLEGAL_GENERATION, UNKNOWN]
    assert log_of(broker).log_end_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_where_the_group_is_not_served(broker: BrokerStandIn, version: int) -> None:
    """Its coordinator is elsewhere, or loads still; nobody is asked to verify."""
    commit_plainly(broker, 1)
    broker.start()
    assert codes(ask(broker, request(0), version)) == [ErrorCode.NOT_COORDINATOR]
    broker.coordinator.elect(partition_of(broker).partition, 1)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if version < 2:
        loading = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(ask(broker, request(0), version)) == [loading]
    assert not broker.verifier.asked
    await broker.load()
    assert codes(ask(broker, request(0), version)) == [NONE]


def test_a_group_that_moves_during_the_verification(broker: BrokerStandIn) -> None:
    """The client is to look for its coordinator again."""
    broker.verifier.result = None
    waiting = broker.call(request(0), 5)
    assert isinstance(waiting, Deferred)
    broker.coordinator.resign(partition_of(broker).partition)
    ((_, answer),) = broker.verifier.asked
    answer.complete(VerificationResult(ErrorCode.NONE))
    assert codes(waiting.value) == [ErrorCode.NOT_COORDINATOR]


def test_a_member_is_checked_when_the_verification_is_there(broker: BrokerStandIn) -> None:
    """The group may have been deleted meanwhile, or have got another generation."""
    broker.verifier.result = None
    waiting = broker.call(request(0, member_id="m", generation_id=1), 5)
    assert isinstance(waiting, Deferred)
    ((_, answer),) = broker.verifier.asked
    answer.complete(VerificationResult(ErrorCode.NONE))
    assert codes(waiting.value) == [ErrorCode.ILLEGAL_GENERATION]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_commit_that_the_log_refuses(
    broker: BrokerStandIn, error: ErrorCode, code: ErrorCode
) -> None:
    """Because its transaction has ended in between, say; nothing is pending then."""
    broker.replicas.append_error = error
    assert codes(ask(broker, request(0), 5)) == [code]
    broker.replicas.append_error = None
    assert fetched(broker, 8, require_stable=True) == (NONE, -1)


def test_too_long_metadata_fails_its_partition(broker: BrokerStandIn) -> None:
    """The others are stored; alone, it is all there is to say once the group has agreed."""
    long = request(0, 1)
    long.topics[0].partitions[0].committed_metadata = "x" * 4097
    assert codes(ask(broker, long, 5)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE, NONE]
    del long.topics[0].partitions[1]
    assert codes(ask(broker, long, 5)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert log_of(broker).log_end_offset == 1


def test_no_step_of_a_long_commit_takes_long(broker: BrokerStandIn) -> None:
    """One batch holds it all; neither it nor the end of its transaction keeps others waiting."""
    count = 10_000
    broker.metadata.add_topic("wide", b"w" * 16, count)
    steps = broker.start_call(request(*range(count), topic="wide"), 5)
    assert isinstance(steps, GeneratorType)
    response, longest_s = finish_timing(steps)
    assert longest_s < 0.050  # 20 ms on a quiet machine
    assert set(codes(response)) == {NONE}
    (batch,) = log_of(broker).batches
    assert parse_header(batch).record_count == count

    def end_it() -> Any:
        yield
        assert end(broker) is NONE

    _, longest_s = finish_timing(end_it())
    assert longest_s < 0.050
    group = OffsetFetchRequestGroup(group_id="group", topics=None)
    (answer,) = ask(broker, OffsetFetchRequest(groups=[group], require_stable=True), 8).groups
    found = {p.partition_index: p.committed_offset for p in answer.topics[0].partitions}
    assert found == {p: 10 + p for p in range(count)}


def test_topics_without_partitions_are_gone_through_in_steps(broker: BrokerStandIn) -> None:
    topics = [TxnOffsetCommitRequestTopic(name="topic")] * 10_000
    commit = TxnOffsetCommitRequest(
        transactional_id="id", group_id="group", topics=topics, **PRODUCER._asdict()
    )
    steps = broker.start_call(commit, 5)
    assert isinstance(steps, GeneratorType)
    response, pauses = finish_counting(steps)
    assert codes(response) == []
    assert pauses >= 10_000 / 64


def test_more_than_fits_into_a_batch_is_refused(
    broker: BrokerStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UNKNOWN_SERVER_ERROR for all that exists, as of a plain commit."""
    monkeypatch.setattr(offset_commit, "MAX_PARTITIONS", 40)
    assert set(codes(ask(broker, request(*[0] * 40), 5))) == {NONE}
    broker.verifier.asked.clear()
    *known, unknown = codes(ask(broker, request(*[0] * 41, 99), 5))
    assert (set(known), unknown) == ({ErrorCode.UNKNOWN_SERVER_ERROR}, UNKNOWN)
    assert not broker.verifier.asked
