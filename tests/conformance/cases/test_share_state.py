"""The state of share partitions: what is kept of it, and the error for each mistake."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages import share_state
from kraftrio.wire.messages.cluster import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from kraftrio.wire.messages.share_state import StateBatch
from kraftrio.wire.primitives import uuid_to_text
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import NOT_SERVED_YET, SETTLE_DEADLINE_S, wait_for_leaders
from tests.conformance.cases.raw_client import RawClient

NONE = ErrorCode.NONE
SHARE = 2
WITH_SHARE_KEYS = 6

AVAILABLE, ACKNOWLEDGED = 0, 2


class SharePartition:
    """Asks for the state of partition 0 of a topic, as a share group sees it."""

    def __init__(self, client: RawClient, group: str, topic_id: bytes) -> None:
        self.client = client
        self.group = group
        self.topic_id = topic_id

    def ask(self, kind: str, partition: int = 0, **fields: Any) -> Any:
        """Make one call about one partition; return its part of the response."""
        name = f"{kind.removesuffix('Summary')}ShareGroupState"
        name += "Summary" if kind.endswith("Summary") else ""
        about = getattr(share_state, f"{name}Partition")(partition=partition, **fields)
        topic = getattr(share_state, f"{name}Topic")(topic_id=self.topic_id, partitions=[about])
        request = getattr(share_state, f"{name}Request")(group_id=self.group, topics=[topic])
        (result,) = self.client.call(request).results
        assert result.topic_id == self.topic_id
        (answer,) = result.partitions
        assert answer.partition == partition
        return answer

    def code(self, kind: str, partition: int = 0, **fields: Any) -> ErrorCode:
        """Return the error of a call."""
        code: ErrorCode = self.ask(kind, partition, **fields).error_code
        return code

    def start(self, state_epoch: int = 0, start_offset: int = 0) -> None:
        """Initialize the state."""
        code = self.code("Initialize", state_epoch=state_epoch, start_offset=start_offset)
        assert code == NONE

    def write(self, *batches: StateBatch, code: ErrorCode = NONE, **fields: Any) -> None:
        """Write batches, in the first epochs and from offset 0 unless others are given."""
        fields = {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, **fields}
        assert self.code("Write", state_batches=list(batches), **fields) == code

    def batches(self, leader_epoch: int = 0) -> list[tuple[int, int, int, int]]:
        """Return the batches of the state."""
        answer = self.ask("Read", leader_epoch=leader_epoch)
        assert answer.error_code == NONE
        return [
            (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in answer.state_batches
        ]


def batch(first: int, last: int, state: int = AVAILABLE, count: int = 1) -> StateBatch:
    """Build a batch of a state."""
    return StateBatch(
        first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
    )


def find_code(client: RawClient, key: str, version: int = WITH_SHARE_KEYS) -> ErrorCode:
    """Look up the coordinator of a share partition."""
    request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])
    (found,) = client.call(request, version).coordinators
    code: ErrorCode = found.error_code
    return code


@pytest.fixture(scope="module", autouse=True)
def coordinator(broker: Broker) -> None:
    """Have the topic of share states before the first request."""
    with RawClient(broker.address) as client:
        deadline = time.monotonic() + SETTLE_DEADLINE_S
        while (code := find_code(client, f"any:{uuid_to_text(bytes(15) + b'x')}:0")) != NONE:
            assert code in NOT_SERVED_YET and time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def partition(
    client: RawClient, new_topic: Callable[..., str], unique_group: Callable[[], str]
) -> SharePartition:
    """The one partition of a new topic, whose state is loaded and not there."""
    found = SharePartition(client, unique_group(), topic_id_of(client, new_topic()))
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while (code := found.code("Delete")) != NONE:
        assert code in NOT_SERVED_YET and time.monotonic() < deadline
        time.sleep(0.05)
    return found


def topic_id_of(client: RawClient, name: str) -> bytes:
    """Return the id of a topic."""
    wait_for_leaders(client, name)
    (topic,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics
    topic_id: bytes = topic.topic_id
    return topic_id


# Coordinators


@pytest.mark.parametrize("key", ["x", "", ":{topic}:0", "group:{topic}:x", "group:{topic}"])
def test_keys_that_are_none(client: RawClient, key: str) -> None:
    """A key is a group, a topic id and a partition."""
    topic = uuid_to_text(bytes(15) + b"x")
    assert find_code(client, key.format(topic=topic)) == ErrorCode.INVALID_REQUEST


def test_share_coordinators_before_version_6(client: RawClient) -> None:
    """Older versions know of no coordinators of share partitions."""
    key = f"group:{uuid_to_text(bytes(15) + b'x')}:0"
    assert find_code(client, key, version=5) == ErrorCode.INVALID_REQUEST


# Life


def test_a_state_that_was_never_initialized(partition: SharePartition) -> None:
    """It can neither be read nor written; its summary is empty, and deleting it does nothing."""
    assert partition.code("Read", leader_epoch=0) == ErrorCode.INVALID_REQUEST
    partition.write(code=ErrorCode.INVALID_REQUEST)
    summary = partition.ask("ReadSummary", leader_epoch=0)
    assert (summary.error_code, summary.state_epoch, summary.start_offset) == (NONE, 0, -1)
    assert partition.code("Delete") == NONE


def test_a_state_is_kept(partition: SharePartition) -> None:
    """What was written is read, and summed up."""
    partition.start(state_epoch=2, start_offset=5)
    partition.write(
        batch(10, 12), batch(14, 15, ACKNOWLEDGED), state_epoch=2, start_offset=10,
        delivery_complete_count=2,
    )  # fmt: skip
    assert partition.batches() == [(10, 12, AVAILABLE, 1), (14, 15, ACKNOWLEDGED, 1)]
    summary = partition.ask("ReadSummary", leader_epoch=0)
    assert (summary.state_epoch, summary.leader_epoch) == (2, 0)
    assert (summary.start_offset, summary.delivery_complete_count) == (10, 2)


def test_a_deleted_state_is_gone(partition: SharePartition) -> None:
    """It is as if it had never been there: its epochs may begin again."""
    partition.start(state_epoch=4)
    assert partition.code("Delete") == NONE
    assert partition.code("Read", leader_epoch=0) == ErrorCode.INVALID_REQUEST
    partition.start(state_epoch=1)
    assert partition.batches() == []


def test_a_state_that_is_initialized_again_begins_empty(partition: SharePartition) -> None:
    """Its batches are dropped, its leader epoch is kept."""
    partition.start()
    partition.batches(leader_epoch=3)
    partition.write(batch(0, 9), leader_epoch=3)
    partition.start(state_epoch=1, start_offset=20)
    assert partition.code("Read", leader_epoch=2) == ErrorCode.FENCED_LEADER_EPOCH
    answer = partition.ask("Read", leader_epoch=3)
    assert (answer.state_epoch, answer.start_offset, answer.state_batches) == (1, 20, [])


# Batches


def test_later_batches_win_by_count_and_state(partition: SharePartition) -> None:
    """Where they overlap, the higher count and then the higher state is kept."""
    partition.start()
    for step in range(5):
        partition.write(batch(10 + step, 12 + step, 2 * (step % 2), 1 + step // 2))
    assert partition.batches() == [
        (10, 10, AVAILABLE, 1),
        (11, 11, ACKNOWLEDGED, 1),
        (12, 12, AVAILABLE, 2),
        (13, 13, ACKNOWLEDGED, 2),
        (14, 16, AVAILABLE, 3),
    ]


def test_the_start_offset_cuts_batches(partition: SharePartition) -> None:
    """What lies before it is dropped."""
    partition.start()
    partition.write(batch(0, 4), batch(5, 9, ACKNOWLEDGED))
    partition.write(start_offset=7)
    assert partition.batches() == [(7, 9, ACKNOWLEDGED, 1)]


def test_many_writes_add_up(partition: SharePartition) -> None:
    """None is lost of more writes than one snapshot covers."""
    partition.start()
    for step in range(600):
        partition.write(batch(2 * step, 2 * step, ACKNOWLEDGED), start_offset=max(0, 2 * step - 20))
    assert partition.batches() == [(at, at, ACKNOWLEDGED, 1) for at in range(1178, 1199, 2)]


# Epochs


def test_older_state_epochs_are_fenced(partition: SharePartition) -> None:
    """Neither do they initialize nor write."""
    partition.start(state_epoch=2)
    fenced = ErrorCode.FENCED_STATE_EPOCH
    assert partition.code("Initialize", state_epoch=1, start_offset=0) == fenced
    partition.write(state_epoch=1, code=fenced)


def test_a_read_fences_older_leaders(partition: SharePartition) -> None:
    """A leader that read the state is the newest; a summary, and -1, do not fence."""
    partition.start()
    partition.batches(leader_epoch=4)
    assert partition.code("Read", leader_epoch=3) == ErrorCode.FENCED_LEADER_EPOCH
    partition.write(leader_epoch=3, code=ErrorCode.FENCED_LEADER_EPOCH)
    assert partition.ask("ReadSummary", leader_epoch=0).leader_epoch == 4
    assert partition.batches(leader_epoch=-1) == []
    partition.write(batch(0, 1), leader_epoch=4)


# Mistakes

FIELDS: dict[str, dict[str, int]] = {
    "Initialize": {"state_epoch": 1, "start_offset": 0},
    "Read": {"leader_epoch": 0},
    "ReadSummary": {"leader_epoch": 0},
    "Write": {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0},
    "Delete": {},
}


@pytest.mark.parametrize("kind", FIELDS)
def test_partitions_that_are_none(partition: SharePartition, kind: str) -> None:
    """No number may be negative; what is not there is unknown, or first of all has no state."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if kind in ("Read", "Write"):
        unknown = ErrorCode.INVALID_REQUEST
    assert partition.code(kind, -1, **FIELDS[kind]) == ErrorCode.INVALID_REQUEST
    assert partition.code(kind, 7, **FIELDS[kind]) == unknown
    partition.topic_id = bytes(15) + b"x"
    assert partition.code(kind, **FIELDS[kind]) == unknown


def test_requests_about_nothing(client: RawClient, partition: SharePartition) -> None:
    """Without a group, a topic or a partition the answer is empty."""
    about = share_state.ReadShareGroupStatePartition()
    topic_id = partition.topic_id
    for group, topics in (
        ("group", []),
        ("group", [share_state.ReadShareGroupStateTopic(topic_id=topic_id)]),
        ("", [share_state.ReadShareGroupStateTopic(topic_id=topic_id, partitions=[about])]),
    ):
        request = share_state.ReadShareGroupStateRequest(group_id=group, topics=topics)
        assert client.call(request).results == []
