"""One shard of the share coordinator: who is fenced, what is refused, which records are written."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.coordinator.share_coordinator import ask
from kraftrio.broker.coordinator.share_state.records import read_record
from kraftrio.broker.coordinator.share_state.state import ShareSnapshot, Update
from kraftrio.broker.share_state import (
    SharePartitionKey,
    SharePartitionState,
    ShareStateBatch,
    ShareStateWrite,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.coordinator.groups.group_context import START_WALL_MS
from tests.unit.broker.coordinator.share_state.share_stand_in import (
    KEY,
    TOPIC,
    TOPIC_ID,
    ShareStandIn,
)

OTHER = SharePartitionKey("other", TOPIC_ID, 1)
ACKNOWLEDGED = (0, 9, 2, 1)
NONE = None


def contents(share: ShareStandIn) -> list[Any]:
    """What the records say, by their order."""
    return [read_record(*record)[1] for record in share.records()]  # type: ignore[index]


# --- initialize, read, write ---


def test_a_state_is_initialized_read_and_written() -> None:
    share = ShareStandIn()
    assert share.initialize(state_epoch=3, start_offset=5) is NONE
    assert share.read(leader_epoch=2) == SharePartitionState(3, 0, 5, 0)
    written = share.write(
        (5, 9, 2, 1), state_epoch=3, leader_epoch=2, start_offset=5, delivery_complete_count=5
    )
    assert written is NONE
    batch = ShareStateBatch(5, 9, 2, 1)
    assert share.summary() == SharePartitionState(3, 2, 5, 5, (batch,))
    now = START_WALL_MS
    assert contents(share) == [
        ShareSnapshot(0, 3, 0, 5, 0, (), now, now),
        Update(0, 2, 5, 0, ()),  # the leader's first read
        Update(0, 2, 5, 5, (batch,)),
    ]


def test_a_start_offset_that_is_not_known_has_no_count() -> None:
    share = ShareStandIn()
    share.initialize(start_offset=-1)
    assert share.summary() == SharePartitionState(1, 0, -1, -1)


def test_what_is_not_initialized_is_refused() -> None:
    """But has a summary, without a start offset, and can be deleted."""
    share = ShareStandIn()
    assert share.read() is ErrorCode.INVALID_REQUEST
    assert share.write(ACKNOWLEDGED) is ErrorCode.INVALID_REQUEST
    assert share.summary() == SharePartitionState(0, 0, -1, -1)
    assert share.delete() is NONE
    assert share.records() == []


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("read", "Read operation on uninitialized share partition not allowed."),
        ("write", "Write operation on uninitialized share partition not allowed."),
    ],
)
def test_refusals_have_kafkas_messages(operation: str, message: str) -> None:
    share = ShareStandIn()
    caught: list[KafkaError] = []

    def decide(shard: Any, now: Any) -> Any:
        try:
            if operation == "read":
                return shard.read(KEY, 0, now)
            return shard.write(KEY, _any_write(), now)
        except KafkaError as error:
            caught.append(error)
            raise

    ask(share.coordinator, KEY, decide)
    assert caught[0].message == message


def _any_write() -> ShareStateWrite:
    return ShareStateWrite(1, 0, -1, 0)


@pytest.mark.parametrize("name", ["initialize", "read", "write", "summary", "delete"])
def test_unknown_topics_and_partitions(name: str) -> None:
    share = ShareStandIn()
    share.initialize()
    unknown = KEY._replace(partition=4)
    negative = KEY._replace(partition=-1)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if name in ("read", "write"):
        code = ErrorCode.INVALID_REQUEST  # since it cannot be initialized
    assert getattr(share, name)(key=unknown) is code
    assert getattr(share, name)(key=negative) is ErrorCode.INVALID_REQUEST
    share.metadata.remove_topic(TOPIC)
    assert getattr(share, name)(key=KEY) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(share.records()) == 1


def test_an_older_leader_is_fenced_once_a_newer_one_has_read() -> None:
    share = ShareStandIn()
    share.initialize()
    share.read(leader_epoch=5)
    assert share.read(leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert share.write(ACKNOWLEDGED, leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert share.write(ACKNOWLEDGED, leader_epoch=5) is NONE
    assert share.read(leader_epoch=-1).start_offset == 0  # is not checked
    assert share.write(ACKNOWLEDGED, leader_epoch=-1) is NONE


def test_a_newer_leader_that_writes_without_reading_fences_no_other() -> None:
    """As in Kafka: the epoch of the record is that of the last read."""
    share = ShareStandIn()
    share.initialize()
    share.read(leader_epoch=5)
    share.write(ACKNOWLEDGED, leader_epoch=6)
    assert share.write(ACKNOWLEDGED, leader_epoch=5) is NONE
    assert share.summary().leader_epoch == 5


def test_reading_again_writes_nothing() -> None:
    share = ShareStandIn()
    share.initialize()
    share.read(leader_epoch=5)
    count = len(share.records())
    share.read(leader_epoch=5)
    share.read(leader_epoch=-1)
    assert len(share.records()) == count


def test_a_state_that_is_initialized_again_fences_the_old_state_epoch() -> None:
    """And starts over, but for the leader epoch that older leaders are fenced by."""
    share = ShareStandIn()
    share.initialize(state_epoch=1)
    share.read(leader_epoch=5)
    share.write(ACKNOWLEDGED, leader_epoch=5)
    assert share.initialize(state_epoch=2, start_offset=7) is NONE
    assert share.summary() == SharePartitionState(2, 0, 7, 0)
    assert share.write(ACKNOWLEDGED, leader_epoch=5) is ErrorCode.FENCED_STATE_EPOCH
    assert share.initialize(state_epoch=1) is ErrorCode.FENCED_STATE_EPOCH
    assert share.read(leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert share.read(leader_epoch=5).state_epoch == 2
    assert share.initialize(state_epoch=-1) is NONE
    assert [one.snapshot_epoch for one in contents(share) if isinstance(one, ShareSnapshot)] == [
        0,
        1,
        2,
    ]


# --- snapshots ---


def test_a_snapshot_follows_after_enough_updates() -> None:
    share = ShareStandIn()
    share.initialize()
    for offset in range(9):
        share.write((offset, offset, 2, 1), start_offset=0, delivery_complete_count=offset + 1)
    kinds = [type(one) for one in contents(share)]
    assert kinds == [
        ShareSnapshot,
        *[Update] * 3,
        ShareSnapshot,
        *[Update] * 3,
        ShareSnapshot,
        Update,
    ]
    snapshot = contents(share)[8]
    assert snapshot.snapshot_epoch == 2
    assert snapshot.batches == (ShareStateBatch(0, 7, 2, 1),)
    assert snapshot.delivery_complete_count == 8


def test_batches_below_the_start_offset_go() -> None:
    share = ShareStandIn()
    share.initialize()
    share.write(ACKNOWLEDGED, (10, 12, 0, 1))
    share.write(start_offset=11)
    assert share.summary().batches == (ShareStateBatch(11, 12, 0, 1),)
    share.write(start_offset=-1, delivery_complete_count=1)
    assert share.summary().start_offset == 11


def test_idle_states_are_written_again() -> None:
    """Unless none has changed since that was done; the time of creation stays."""
    share = ShareStandIn()
    share.initialize()
    share.initialize(key=OTHER)
    share.timers.advance(299_000)
    share.write(ACKNOWLEDGED)
    assert len(share.records()) == 3
    share.timers.advance(1_000)
    assert [one.snapshot_epoch for one in contents(share)[3:]] == [1, 1]
    cold = contents(share)[3]
    assert (cold.created_ms, cold.written_ms) == (START_WALL_MS, START_WALL_MS + 300_000)
    assert cold.batches == (ShareStateBatch(*ACKNOWLEDGED),)
    share.timers.advance(600_000)
    assert len(share.records()) == 5
    for _ in range(3):
        share.write(ACKNOWLEDGED)  # the last of them a snapshot
    share.timers.advance(300_000)
    assert contents(share)[-1].snapshot_epoch == 2
    assert read_record(*share.records()[-1])[0] == OTHER  # type: ignore[index]


def test_very_many_cold_states_are_written_in_steps() -> None:
    share = ShareStandIn()
    keys = [KEY._replace(group_id=f"g{index}") for index in range(600)]
    for key in keys:
        share.initialize(key=key)
    batch_count = len(share.log.batches)
    share.timers.advance(300_010)
    assert len(share.records()) == 1200
    assert len(share.log.batches) == batch_count + 3


# --- pruning ---


def test_redundant_records_are_deleted() -> None:
    """What lies below the oldest of the last snapshots, once that is committed."""
    share = ShareStandIn()
    share.initialize()
    share.initialize(key=OTHER)
    for _ in range(4):
        share.write(ACKNOWLEDGED)  # the snapshot is at offset 5
    share.timers.advance(60_000)
    assert share.pruned == [1]
    share.initialize(state_epoch=2, key=OTHER)
    share.timers.advance(60_000)
    assert share.pruned == [1, 5]
    share.timers.advance(60_000)
    assert share.pruned == [1, 5]
    share.delete()
    share.delete(key=OTHER)
    share.timers.advance(60_000)
    assert share.pruned == [1, 5, 8]  # the last tombstone stays


def test_what_is_not_committed_makes_nothing_redundant() -> None:
    share = ShareStandIn()
    share.initialize()
    share.replicas.auto_commit = False
    share.initialize(state_epoch=2)
    share.timers.advance(60_000)
    assert share.pruned == []
    share.replicas.commit(share.log.topic_partition)
    share.timers.advance(1_000)
    assert share.pruned == [1]


def test_a_deletion_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    share = ShareStandIn()
    share.initialize()
    share.initialize(state_epoch=2)
    share.prune_error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    share.timers.advance(60_000)
    assert caplog.messages == ["redundant records not deleted"]
    share.prune_error = None
    share.timers.advance(60_000)
    assert share.pruned == [1]


# --- deleted topics and states ---


def test_states_of_deleted_topics_are_removed() -> None:
    share = ShareStandIn()
    share.initialize()
    share.initialize(key=OTHER)
    share.metadata.add_topic("u", b"u" * 16, 1)
    kept = SharePartitionKey("g", b"u" * 16, 0)
    share.initialize(key=kept)
    share.metadata.remove_topic(TOPIC)
    share.coordinator.on_topics_deleted({TOPIC: TOPIC_ID})
    assert [read_record(*record) for record in share.records()[3:]] == [(KEY, None), (OTHER, None)]
    assert share.shard().statistics() == {"share_partitions": 1}
    assert share.read(key=kept).state_epoch == 1


def test_a_deleted_state_fences_no_leader() -> None:
    share = ShareStandIn()
    share.initialize(state_epoch=9)
    share.read(leader_epoch=9)
    assert share.delete() is NONE
    assert share.initialize(state_epoch=1) is NONE
    assert share.read(leader_epoch=1).state_epoch == 1


# --- commits, failures, restarts ---


def test_answers_wait_for_commits_also_those_of_reads() -> None:
    """A leader must not build on a state that another coordinator may not know."""
    share = ShareStandIn()
    share.replicas.auto_commit = False
    answers = [share.initialize(), share.summary(), share.read(leader_epoch=-1)]
    assert all(isinstance(answer, Deferred) and not answer.done for answer in answers)
    share.replicas.commit(share.log.topic_partition)
    assert [answer.value for answer in answers] == [
        NONE,
        SharePartitionState(1, 0, 0, 0),
        SharePartitionState(1, 0, 0, 0),
    ]


def test_a_failed_append_leaves_nothing() -> None:
    share = ShareStandIn()
    share.initialize()
    share.replicas.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert share.write(ACKNOWLEDGED) is ErrorCode.NOT_COORDINATOR
    assert share.read(leader_epoch=7) is ErrorCode.NOT_COORDINATOR
    assert share.initialize(state_epoch=2) is ErrorCode.NOT_COORDINATOR
    share.replicas.append_error = None
    assert share.summary() == SharePartitionState(1, 0, 0, 0)
    assert share.write(ACKNOWLEDGED, state_epoch=1, leader_epoch=3) is NONE


async def test_a_new_coordinator_finds_the_same_state() -> None:
    share = ShareStandIn()
    share.initialize()
    share.read(leader_epoch=4)
    for offset in range(6):
        share.write((offset, offset, 2, 1), leader_epoch=4)
    share.initialize(key=OTHER)
    share.delete(key=OTHER)
    before, records = share.summary(), share.records()
    await share.restart(leader_epoch=1)
    assert share.summary() == before
    assert share.read(leader_epoch=3) is ErrorCode.FENCED_LEADER_EPOCH
    assert share.summary(key=OTHER) == SharePartitionState(0, 0, -1, -1)
    assert share.records() == records
    share.timers.advance(60_000)
    assert share.pruned == [4]  # the snapshot after three updates


def test_another_broker_coordinates() -> None:
    share = ShareStandIn(lead=False)
    assert share.initialize() is ErrorCode.NOT_COORDINATOR
