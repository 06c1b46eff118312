"""Very many offsets committed, fetched and deleted: no step takes long; a commit is one batch."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.wire.codec.lazy_arrays import LazyArray
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import parse_header
from kraftrio.wire.topic_names import CONSUMER_OFFSETS
from tests.support.sliced import finish_timing
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn, FakeLog, ask

TOPIC_ID = b"t" * 16
PARTITION_COUNT = 10_000
BOUND_S = 0.020  # on a quiet machine
TOLERATED = 2.5  # times the bound, on a busy one


@pytest.fixture
def broker() -> BrokerStandIn:
    broker = BrokerStandIn()
    broker.metadata.add_topic("topic", TOPIC_ID, PARTITION_COUNT)
    return broker


def commit_request(offset: int, **kwargs: Any) -> OffsetCommitRequest:
    """Commit all partitions of the topic; and one that does not exist."""
    return OffsetCommitRequest(
        group_id="group",
        topics=[
            OffsetCommitRequestTopic(
                name="topic",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=p, committed_offset=offset + p)
                    for p in range(PARTITION_COUNT + 1)
                ],
            )
        ],
        **kwargs,
    )


def working_on(broker: BrokerStandIn, request: object, version: int = 9) -> Any:
    """The steps of a request, none of which was done."""
    steps = broker.start_call(request, version)
    assert isinstance(steps, GeneratorType)
    return steps


def codes(response: Any) -> list[int]:
    if isinstance(response, Deferred):
        response = response.value
    return [p.error_code for topic in response.topics for p in topic.partitions]


def offsets(broker: BrokerStandIn) -> dict[int, int]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=None)])
    topics = ask(broker, request, 8).groups[0].topics
    return {p.partition_index: p.committed_offset for topic in topics for p in topic.partitions}


def log_of(broker: BrokerStandIn) -> FakeLog:
    partition = broker.coordinator.partition_for("group")
    return broker.replicas.logs[TopicPartition(CONSUMER_OFFSETS, partition)]


def test_no_step_of_a_long_commit_takes_long(broker: BrokerStandIn) -> None:
    """One batch holds it all; each partition is answered; what is read back is what was sent."""
    for offset in (5, 7):  # the second one replaces what is there
        response, longest_s = finish_timing(working_on(broker, commit_request(offset)))
        assert longest_s < TOLERATED * BOUND_S
        *known, unknown = codes(response)
        assert (set(known), len(known)) == ({ErrorCode.NONE}, PARTITION_COUNT)
        assert unknown == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert offsets(broker) == {p: offset + p for p in range(PARTITION_COUNT)}
    first, second = log_of(broker).batches
    assert parse_header(first).record_count == parse_header(second).record_count == PARTITION_COUNT


def test_a_long_commit_that_waits_for_replicas_is_shown_in_one_short_step(
    broker: BrokerStandIn,
) -> None:
    """Nothing of it before it is committed, then everything; a smaller one behind it counts."""
    broker.replicas.auto_commit = False
    response, _ = finish_timing(working_on(broker, commit_request(5)))
    later = commit_request(0)
    later.topics[0].partitions = [OffsetCommitRequestPartition(committed_offset=99)]
    behind = broker.call(later, 9)
    assert offsets(broker) == {}

    def commit() -> Any:
        yield
        broker.replicas.commit(log_of(broker).topic_partition, PARTITION_COUNT)

    _, longest_s = finish_timing(commit())
    assert longest_s < TOLERATED * BOUND_S
    assert set(codes(response)[:-1]) == {ErrorCode.NONE}
    assert offsets(broker) == {p: 5 + p for p in range(PARTITION_COUNT)}
    broker.replicas.commit(log_of(broker).topic_partition)
    assert codes(behind) == [ErrorCode.NONE]
    assert offsets(broker)[0] == 99


def test_the_group_is_asked_right_before_the_append(broker: BrokerStandIn) -> None:
    """What a member may commit at the first step it may not after a rebalance in between."""
    join = JoinGroupRequest(
        group_id="group",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    join.member_id = ask(broker, join, 5).member_id
    assert ask(broker, join, 5).generation_id == 1
    steps = working_on(
        broker,
        commit_request(5, member_id=join.member_id, generation_id_or_member_epoch=1),
    )
    written = log_of(broker).log_end_offset
    for _ in range(100):
        next(steps)
    join.protocols[0].metadata = b"changed"
    assert ask(broker, join, 5).generation_id == 2
    response, _ = finish_timing(steps)
    *known, unknown = codes(response)
    assert set(known) == {ErrorCode.ILLEGAL_GENERATION}
    assert unknown == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert log_of(broker).log_end_offset == written
    assert offsets(broker) == {}


def test_a_failover_between_two_steps_ends_a_commit(broker: BrokerStandIn) -> None:
    """Nothing is appended by who leads no longer."""
    steps = working_on(broker, commit_request(5))
    for _ in range(100):
        next(steps)
    broker.coordinator.resign(broker.coordinator.partition_for("group"))
    response, _ = finish_timing(steps)
    assert set(codes(response)[:-1]) == {ErrorCode.NOT_COORDINATOR}
    assert log_of(broker).log_end_offset == 0


@pytest.mark.parametrize("require_stable", [False, True])
def test_no_step_of_a_fetch_of_all_offsets_takes_long(
    broker: BrokerStandIn, require_stable: bool
) -> None:
    """The response shows the offsets of the moment of the request, whatever is committed then."""
    finish_timing(working_on(broker, commit_request(5)))
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="group", topics=None)],
        require_stable=require_stable,
    )

    def fetch() -> Any:
        response = broker.call(request, 8)
        yield
        return response.value if isinstance(response, Deferred) else response

    response, longest_s = finish_timing(fetch())
    assert longest_s < TOLERATED * BOUND_S
    finish_timing(working_on(broker, commit_request(7)))
    (topic,) = response.groups[0].topics
    assert isinstance(topic.partitions, LazyArray), "entries are made while they are encoded"
    shown = {p.partition_index: p.committed_offset for p in topic.partitions}
    assert shown == {p: 5 + p for p in range(PARTITION_COUNT)}


async def test_a_long_commit_is_loaded_as_it_was_applied(broker: BrokerStandIn) -> None:
    """Metadata, leader epochs and refused partitions included."""
    request = commit_request(5)
    request.topics[0].partitions[3].committed_metadata = "x" * 4097
    request.topics[0].partitions[4].committed_metadata = "note"
    request.topics[0].partitions[5].committed_leader_epoch = 6
    response, _ = finish_timing(working_on(broker, request))
    assert codes(response)[2:5] == [0, ErrorCode.OFFSET_METADATA_TOO_LARGE, 0]

    def shown() -> Any:
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=None)])
        return ask(broker, asked, 8).groups

    before = shown()
    assert len(before[0].topics[0].partitions) == PARTITION_COUNT - 1
    broker.start()
    broker.coordinator.elect(broker.coordinator.partition_for("group"), 1)
    await broker.load()
    assert shown() == before


def test_no_step_of_a_long_deletion_takes_long(broker: BrokerStandIn) -> None:
    """Each partition is answered in the request's order; what is left is what was not named."""
    finish_timing(working_on(broker, commit_request(5)))
    request = OffsetDeleteRequest(
        group_id="group",
        topics=[
            OffsetDeleteRequestTopic(
                name="topic",
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=p)
                    for p in range(PARTITION_COUNT, 0, -1)
                ],
            )
        ],
    )
    response, longest_s = finish_timing(working_on(broker, request, 0))
    assert longest_s < TOLERATED * BOUND_S
    unknown, *known = codes(response)
    assert unknown == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (set(known), len(known)) == ({ErrorCode.NONE}, PARTITION_COUNT - 1)
    assert offsets(broker) == {0: 5}
    request.group_id = "ghost"
    refused, _ = finish_timing(working_on(broker, request, 0))
    assert (refused.error_code, refused.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
