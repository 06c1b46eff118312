"""The group coordinator as clients meet it: elections, loading, commits, sessions, expiry."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.base.deferred import Deferred, run_waiting
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.classic import encode_offset_key
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import Record, build_batch
from kraftrio.wire.topic_names import CONSUMER_OFFSETS
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn, ReadResult

TOPIC_ID = b"t" * 16


@pytest.fixture
def broker() -> BrokerStandIn:
    broker = BrokerStandIn()
    broker.metadata.add_topic("topic", TOPIC_ID, 2)
    return broker


def partition_of(broker: BrokerStandIn, group_id: str = "group") -> TopicPartition:
    return TopicPartition(CONSUMER_OFFSETS, broker.coordinator.partition_for(group_id))


def value_of(response: Any) -> Any:
    """The response, which must be there."""
    run_waiting()
    return response.value if isinstance(response, Deferred) else response


def commit(broker: BrokerStandIn, offset: int = 7, group_id: str = "group") -> Any:
    return broker.call(
        OffsetCommitRequest(
            group_id=group_id,
            topics=[
                OffsetCommitRequestTopic(
                    name="topic",
                    partitions=[OffsetCommitRequestPartition(committed_offset=offset)],
                )
            ],
        ),
        9,
    )


def commit_error(response: Any) -> int:
    value = value_of(response)
    assert isinstance(value, OffsetCommitResponse)
    return next(iter(value.topics[0].partitions)).error_code


def fetch(broker: BrokerStandIn, *, require_stable: bool = False, group_id: str = "group") -> Any:
    return broker.call(
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group_id,
                    topics=[OffsetFetchRequestTopics(name="topic", partition_indexes=[0])],
                )
            ],
            require_stable=require_stable,
        ),
        9,
    )


def fetched(response: Any) -> tuple[int, int]:
    """(error of the group, offset)."""
    value = value_of(response)
    assert isinstance(value, OffsetFetchResponse)
    (group,) = value.groups
    if group.error_code:
        return group.error_code, -1
    return 0, group.topics[0].partitions[0].committed_offset


def join(broker: BrokerStandIn, member_id: str = "") -> Any:
    return broker.call(
        JoinGroupRequest(
            group_id="group",
            member_id=member_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
        ),
        9,
    )


def stable_member(broker: BrokerStandIn) -> str:
    member_id = value_of(join(broker)).member_id
    joined = join(broker, member_id)
    broker.timers.advance(0)
    assert value_of(joined).error_code == 0
    synced = broker.call(
        SyncGroupRequest(
            group_id="group",
            generation_id=1,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"a")],
        ),
        5,
    )
    assert value_of(synced).assignment == b"a"
    return str(member_id)


def heartbeat(
    broker: BrokerStandIn, member_id: str, generation_id: int = 1, group_id: str = "group"
) -> int:
    request = HeartbeatRequest(group_id=group_id, generation_id=generation_id, member_id=member_id)
    response = broker.call(request, 4)
    assert isinstance(response, HeartbeatResponse)
    return response.error_code


# --- partitions of groups ---


def test_existing_partition_count_wins(broker: BrokerStandIn) -> None:
    """Once the offsets topic exists its partition count decides, whatever is configured."""
    before = broker.coordinator.partition_for("group")
    broker.properties.offsets_topic_num_partitions = 50
    broker.start()
    assert broker.coordinator.partition_count() == 4
    assert broker.coordinator.partition_for("group") == before
    broker.metadata.remove_topic(CONSUMER_OFFSETS)
    assert broker.coordinator.partition_count() == 50


# --- elections and loading ---


def test_not_coordinator() -> None:
    """Without the group's partition every request is sent away with 16."""
    broker = BrokerStandIn(lead=False)
    broker.metadata.add_topic("topic", TOPIC_ID)
    assert value_of(join(broker)).error_code == ErrorCode.NOT_COORDINATOR
    assert commit_error(commit(broker)) == ErrorCode.NOT_COORDINATOR
    assert fetched(fetch(broker))[0] == ErrorCode.NOT_COORDINATOR
    assert fetched(fetch(broker, require_stable=True))[0] == ErrorCode.NOT_COORDINATOR
    assert heartbeat(broker, "m") == ErrorCode.NOT_COORDINATOR


async def test_restart_loads_what_was_committed(broker: BrokerStandIn) -> None:
    """A new coordinator answers 14 until its partition is replayed, then knows everything."""
    commit(broker, 41)
    commit(broker, 42)
    broker.start()
    for partition in range(4):
        broker.coordinator.elect(partition, 1)
    assert fetched(fetch(broker))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert value_of(join(broker)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert heartbeat(broker, "m") == ErrorCode.NONE, "members live on while loading"
    await broker.load()
    assert fetched(fetch(broker)) == (0, 42)


async def test_restart_keeps_a_stable_group(broker: BrokerStandIn) -> None:
    """Members go on after a restart without a rebalance, and expire if they do not."""
    member_id = stable_member(broker)
    broker.start()
    broker.coordinator.elect(partition_of(broker).partition, 1)
    await broker.load()
    assert heartbeat(broker, member_id) == ErrorCode.NONE
    broker.timers.advance(10_000)
    assert heartbeat(broker, member_id) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_loading_waits_for_the_high_watermark(broker: BrokerStandIn) -> None:
    """What the log holds at the election must be committed before it is shown."""
    commit(broker, 1)
    broker.replicas.auto_commit = False
    pending = commit(broker, 2)
    assert not pending.done
    tp = partition_of(broker)
    broker.replicas.logs[tp].waiters.clear()
    broker.start()
    broker.coordinator.elect(tp.partition, 1)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.coordinator.run)
        await trio.testing.wait_all_tasks_blocked()
        assert fetched(fetch(broker))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        broker.replicas.commit(tp)
        await trio.testing.wait_all_tasks_blocked()
        assert fetched(fetch(broker)) == (0, 2)
        nursery.cancel_scope.cancel()


async def test_loading_needs_no_more_replicas_than_hold_the_log(broker: BrokerStandIn) -> None:
    """What the high watermark has passed is loaded, though too few replicas are in sync by now."""
    commit(broker, 1)
    broker.replicas.auto_commit = False
    commit(broker, 2)
    tp = partition_of(broker)
    broker.replicas.logs[tp].waiters.clear()
    broker.start()
    broker.coordinator.elect(tp.partition, 1)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.coordinator.run)
        broker.replicas.auto_commit = True
        log = broker.replicas.logs[tp]
        log.high_watermark = log.log_end_offset
        broker.replicas.lose(tp, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        await trio.testing.wait_all_tasks_blocked()
        assert fetched(fetch(broker)) == (0, 2)
        nursery.cancel_scope.cancel()


async def test_uncommitted_partition_keeps_no_other_from_loading(broker: BrokerStandIn) -> None:
    """A partition whose followers are away waits alone."""
    other = next(
        f"g{i}" for i in range(99) if partition_of(broker, f"g{i}") != partition_of(broker)
    )
    commit(broker, 1, other)
    commit(broker, 1)
    broker.replicas.auto_commit = False
    commit(broker, 2)
    broker.replicas.logs[partition_of(broker)].waiters.clear()
    broker.start()
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.coordinator.run)
        broker.coordinator.elect(partition_of(broker).partition, 1)
        broker.coordinator.elect(partition_of(broker, other).partition, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert fetched(fetch(broker))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert heartbeat(broker, "m", group_id=other) == ErrorCode.UNKNOWN_MEMBER_ID
        nursery.cancel_scope.cancel()


async def test_big_partition_lets_others_run(broker: BrokerStandIn) -> None:
    """Loading thousands of records yields to other tasks, and may be overtaken by a resignation."""
    for i in range(2_000):
        commit(broker, i)
    broker.properties.offsets_load_buffer_size = 1_000
    broker.start()
    tp = partition_of(broker)
    broker.coordinator.elect(tp.partition, 1)
    turns = 0
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.coordinator.run)
        while turns < 3:
            turns += 1
            await trio.lowlevel.checkpoint()
        assert fetched(fetch(broker))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        broker.coordinator.resign(tp.partition)
        await trio.testing.wait_all_tasks_blocked()
        assert fetched(fetch(broker))[0] == ErrorCode.NOT_COORDINATOR
        broker.coordinator.elect(tp.partition, 2)
        await trio.testing.wait_all_tasks_blocked()
        assert fetched(fetch(broker)) == (0, 1_999)
        nursery.cancel_scope.cancel()


async def test_unreadable_record_is_passed_over(broker: BrokerStandIn) -> None:
    """A record that cannot be read does not take the partition away."""
    commit(broker, 5)
    tp = partition_of(broker)
    key = encode_offset_key("group", "topic", 1)
    for record in (Record(0, 0, key, b"\x00\x63junk"), Record(0, 0, b"\x00\x02", b"")):
        broker.replicas.logs[tp].batches.append(
            bytes(build_batch([record], base_offset=broker.replicas.logs[tp].log_end_offset))
        )
        broker.replicas.logs[tp].log_end_offset += 1
    broker.replicas.commit(tp)
    broker.start()
    broker.coordinator.elect(tp.partition, 1)
    await broker.load()
    assert fetched(fetch(broker)) == (0, 5)


async def test_failed_load_is_not_coordinator(broker: BrokerStandIn) -> None:
    """A partition that cannot be loaded has no coordinator here until the next election."""
    commit(broker, 5)
    tp = partition_of(broker)
    broker.start()
    log = broker.replicas.logs.pop(tp)
    broker.coordinator.elect(tp.partition, 1)
    await broker.load()
    assert fetched(fetch(broker))[0] == ErrorCode.NOT_COORDINATOR
    broker.replicas.logs[tp] = log
    broker.coordinator.elect(tp.partition, 2)
    await broker.load()
    assert fetched(fetch(broker)) == (0, 5)


def test_resignation_answers_everyone(broker: BrokerStandIn) -> None:
    """Parked joins and uncommitted commits get NOT_COORDINATOR when the leadership goes."""
    broker.properties.group_initial_rebalance_delay_ms = 3_000
    member_id = value_of(join(broker)).member_id
    parked = join(broker, member_id)
    broker.replicas.auto_commit = False
    waiting = commit(broker, group_id="group")
    other = commit(broker, 9, group_id="simple")
    tp = partition_of(broker)
    assert not parked.done
    assert value_of(waiting).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    broker.coordinator.resign(tp.partition)
    assert value_of(parked).error_code == ErrorCode.NOT_COORDINATOR
    simple = partition_of(broker, "simple")
    broker.replicas.lose(simple, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    broker.coordinator.resign(simple.partition)
    assert commit_error(other) == ErrorCode.NOT_COORDINATOR
    broker.timers.advance(3_600_000)


async def test_election_after_another_leader_loads_again(broker: BrokerStandIn) -> None:
    """The next epoch of the same leader goes on; after a gap another broker may have written."""
    broker.properties.group_initial_rebalance_delay_ms = 3_000
    parked = join(broker, value_of(join(broker)).member_id)
    partition = partition_of(broker).partition
    broker.coordinator.elect(partition, 1)
    assert not parked.done
    broker.coordinator.elect(partition, 3)
    assert value_of(parked).error_code == ErrorCode.NOT_COORDINATOR
    assert fetched(fetch(broker))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await broker.load()
    assert fetched(fetch(broker)) == (0, -1)


def test_old_elections_and_resignations_are_ignored(broker: BrokerStandIn) -> None:
    """The same or an older leader epoch changes nothing."""
    commit(broker, 5)
    partition = partition_of(broker).partition
    broker.coordinator.elect(partition, 0)
    assert fetched(fetch(broker)) == (0, 5)
    broker.coordinator.resign(partition, leader_epoch=-1)
    assert fetched(fetch(broker)) == (0, 5)
    broker.coordinator.resign(partition, leader_epoch=0)
    assert fetched(fetch(broker))[0] == ErrorCode.NOT_COORDINATOR


# --- appends and commits ---


def test_commit_waits_for_the_replicas(broker: BrokerStandIn) -> None:
    """A commit is answered when its record is committed; until then a fetch shows the former."""
    commit(broker, 1)
    broker.replicas.auto_commit = False
    pending = commit(broker, 2)
    assert not pending.done
    assert fetched(fetch(broker)) == (0, 1)
    stable = fetch(broker, require_stable=True)
    assert not stable.done, "a stable fetch waits for what was written before"
    broker.replicas.commit(partition_of(broker))
    assert commit_error(pending) == ErrorCode.NONE
    assert fetched(stable) == (0, 2)
    assert fetched(fetch(broker)) == (0, 2)


def test_commit_that_times_out_may_still_count(broker: BrokerStandIn) -> None:
    """A commit that is too slow is 15; when its record is committed later it shows."""
    broker.replicas.auto_commit = False
    pending = commit(broker, 2)
    stable = fetch(broker, require_stable=True)
    broker.timers.advance(5_000)
    assert commit_error(pending) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fetched(stable)[0] == ErrorCode.NOT_COORDINATOR, "never a timeout to a fetching client"
    assert fetched(fetch(broker)) == (0, -1)
    broker.replicas.commit(partition_of(broker))
    assert fetched(fetch(broker)) == (0, 2)


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_a_log_that_commits_nothing_is_no_timeout_to_a_fetch(
    broker: BrokerStandIn, version: int
) -> None:
    """In every layout it is NOT_COORDINATOR, on which clients look for another (KAFKA-17267)."""
    asked = OffsetFetchRequestTopics(name="topic", topic_id=TOPIC_ID, partition_indexes=[0])
    request = OffsetFetchRequest(
        group_id="group",
        topics=[OffsetFetchRequestTopic(name="topic", partition_indexes=[0])],
        groups=[OffsetFetchRequestGroup(group_id="group", topics=[asked])],
        require_stable=True,
    )
    broker.replicas.auto_commit = False
    pending = commit(broker)
    fetching = broker.call(request, version)
    broker.timers.advance(5_000)
    assert commit_error(pending) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    response = value_of(fetching)
    found = [response] if version < 8 else response.groups
    assert {one.error_code for one in found} == {ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_append_that_fails(broker: BrokerStandIn, failure: ErrorCode, reported: ErrorCode) -> None:
    """A failed append is a coordinator's error, and nothing of the commit remains."""
    broker.replicas.append_error = failure
    assert commit_error(commit(broker, 2)) == reported
    broker.replicas.append_error = None
    assert fetched(fetch(broker, require_stable=True)) == (0, -1)


def test_assignment_waits_for_the_replicas(broker: BrokerStandIn) -> None:
    """A generation's assignment is given out when its record is committed."""
    member_id = value_of(join(broker)).member_id
    joined = join(broker, member_id)
    broker.timers.advance(0)
    assert isinstance(value_of(joined), JoinGroupResponse)
    broker.replicas.auto_commit = False
    synced = broker.call(
        SyncGroupRequest(
            group_id="group",
            generation_id=1,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"a")],
        ),
        5,
    )
    assert isinstance(synced, Deferred)
    assert not synced.done
    broker.replicas.commit(partition_of(broker))
    assert isinstance(synced.value, SyncGroupResponse)
    assert synced.value.assignment == b"a"


# --- time ---


def test_sessions_expire_by_timer(broker: BrokerStandIn) -> None:
    """Heartbeats prolong the session; without them the member is gone."""
    member_id = stable_member(broker)
    for _ in range(5):
        broker.timers.advance(9_000)
        assert heartbeat(broker, member_id) == ErrorCode.NONE
    broker.timers.advance(10_000)
    assert heartbeat(broker, member_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_initial_delay_by_timer(broker: BrokerStandIn) -> None:
    """The first rebalance is answered by the timer after the initial delay."""
    broker.properties.group_initial_rebalance_delay_ms = 3_000
    member_id = value_of(join(broker)).member_id
    joined = join(broker, member_id)
    broker.timers.advance(2_999)
    assert not joined.done
    broker.timers.advance(1)
    assert value_of(joined).generation_id == 1


def test_expiry_by_timer(broker: BrokerStandIn) -> None:
    """Offsets of a group without members are removed a retention time after the commit."""
    commit(broker, 5)
    broker.timers.advance(10_080 * 60_000 - 600_000)
    assert fetched(fetch(broker)) == (0, 5)
    broker.timers.advance(1_200_000)
    assert fetched(fetch(broker)) == (0, -1)


# --- topics ---


def test_deleted_topic_loses_its_offsets(broker: BrokerStandIn) -> None:
    """Offsets of a deleted topic are gone when it is made again."""
    commit(broker, 100)
    broker.metadata.remove_topic("topic")
    broker.coordinator.on_topics_deleted({"topic": TOPIC_ID})
    broker.metadata.add_topic("topic", b"n" * 16)
    assert fetched(fetch(broker)) == (0, -1)


async def test_topic_deleted_while_loading(broker: BrokerStandIn) -> None:
    """A deletion that comes during loading is not forgotten."""
    commit(broker, 100)
    broker.start()
    broker.coordinator.elect(partition_of(broker).partition, 1)
    broker.coordinator.on_topics_deleted({"topic": TOPIC_ID})
    await broker.load()
    assert fetched(fetch(broker)) == (0, -1)


def test_many_tombstones_are_split(broker: BrokerStandIn) -> None:
    """Deleting a topic with thousands of offsets appends several batches."""
    broker.metadata.add_topic("wide", b"w" * 16, 2_500)
    request = OffsetCommitRequest(
        group_id="group",
        topics=[
            OffsetCommitRequestTopic(
                name="wide",
                partitions=[OffsetCommitRequestPartition(partition_index=i) for i in range(2_500)],
            )
        ],
    )
    assert commit_error(broker.call(request, 9)) == ErrorCode.NONE
    log = broker.replicas.logs[partition_of(broker)]
    assert len(log.batches) == 1
    broker.coordinator.on_topics_deleted({"wide": b"w" * 16})
    assert (len(log.batches), log.log_end_offset) == (4, 5_000)


@pytest.mark.parametrize("at", [8, 16, -1])
async def test_damage_is_not_loaded_but_waited_for(broker: BrokerStandIn, at: int) -> None:
    """What a disk gives back wrong is tried again: in the end it may be right, or elsewhere."""
    commit(broker, 41)
    commit(broker, 42)
    log = broker.replicas.logs[partition_of(broker)]
    sound = log.batches[1]
    damaged = bytearray(sound)
    damaged[at] ^= 2
    log.batches[1] = bytes(damaged)
    read_log = broker.replicas.read_log

    def read_damaged(topic_partition: TopicPartition, start: int, max_bytes: int) -> ReadResult:
        if log.batches[1] == sound or topic_partition != log.topic_partition:
            return read_log(topic_partition, start, max_bytes)
        return ReadResult(b"".join(log.batches[1 if start else 0 :]))

    broker.replicas.read_log = read_damaged  # type: ignore[assignment, method-assign]
    broker.start()
    broker.coordinator.elect(log.topic_partition.partition, 1)
    await broker.load()
    assert fetched(fetch(broker))[0] == ErrorCode.NOT_COORDINATOR
    log.batches[1] = sound
    broker.timers.advance(10_000)
    await broker.load()
    assert fetched(fetch(broker)) == (0, 42)
