"""Records of streams groups, written and read again; records in any order, and of others."""

from __future__ import annotations

import random

import pytest

from kraftrio.broker.coordinator.groups.classic.group_state import ClassicGroup
from kraftrio.broker.coordinator.groups.group import GroupRegistry
from kraftrio.broker.coordinator.groups.modern.target_assignment import DELETED_EPOCH
from kraftrio.broker.coordinator.groups.streams.group_state import (
    StreamsGroup,
    StreamsGroupState,
)
from kraftrio.broker.coordinator.groups.streams.member import (
    StreamsMember,
    StreamsMemberMetadata,
    StreamsMemberState,
    UserEndpoint,
)
from kraftrio.broker.coordinator.groups.streams.records import (
    current_assignment_record,
    group_record,
    group_tombstones,
    member_record,
    member_tombstones,
    target_epoch_record,
    target_record,
    topology_record,
)
from kraftrio.broker.coordinator.groups.streams.replay import StreamsReplay
from kraftrio.broker.coordinator.groups.streams.tasks import AssignedTasks, Tasks
from kraftrio.broker.coordinator.outcome import CoordinatorRecord, Now
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.messages.group_records.keys import decode_key
from kraftrio.wire.messages.group_records.streams import (
    StreamsGroupCurrentAssignmentTaskIds,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupTopologySubtopology,
    StreamsGroupTopologyValue,
)
from kraftrio.wire.messages.group_records.values import encode_value

GROUP = "group"
NOW = Now(0.0, 0)
MEMBER = StreamsMember(
    "m",
    StreamsMemberMetadata(
        "i", "r", "client", "/host", 60_000, 3, "p", UserEndpoint("h", 65_535), (("k", "v"),)
    ),
    member_epoch=7,
    previous_member_epoch=6,
    state=StreamsMemberState.UNREVOKED_TASKS,
    assigned=AssignedTasks({"0": {1: 5, 0: 7}}, {"1": frozenset({2})}, {"1": frozenset({3})}),
    pending_revocation=AssignedTasks({"0": {4: 2}}, {"2": frozenset({1})}, {"2": frozenset({5})}),
)
TARGET = Tasks({"0": frozenset({0, 1})}, {"1": frozenset({2})}, {"1": frozenset({3})})
TOPOLOGY = StreamsGroupTopologyValue(
    epoch=3,
    subtopologies=[StreamsGroupTopologySubtopology(subtopology_id="0", source_topics=["in"])],
)


def all_records() -> list[CoordinatorRecord]:
    """What a group with one member is made of."""
    return [
        member_record(GROUP, MEMBER),
        topology_record(GROUP, TOPOLOGY),
        group_record(GROUP, 8, -5, 3, {"num.standby.replicas": "1"}),
        target_record(GROUP, "m", TARGET),
        target_epoch_record(GROUP, 7, 1_700_000_000_000),
        current_assignment_record(GROUP, MEMBER),
    ]


class Shard:
    """A registry, and what is read into it."""

    def __init__(self) -> None:
        self.registry = GroupRegistry()
        self.replay = StreamsReplay(self.registry, lambda _id: None)

    def read(self, *records: CoordinatorRecord) -> StreamsGroup | None:
        """Apply records; the group, if there is one then."""
        for key, value in records:
            self.replay.apply(decode_key(key), value, NOW)
        return self.registry.find(GROUP, StreamsGroup)


@pytest.mark.parametrize("seed", range(5))
def test_everything_comes_back(seed: int) -> None:
    """In whatever order the records are found: a compacted log has them by age."""
    records = all_records()
    random.Random(seed).shuffle(records)
    group = Shard().read(*records)
    assert group is not None
    assert dict(group.members) == {"m": MEMBER}
    assert group.target.members == {"m": TARGET}
    assert (group.epoch, group.metadata_hash) == (8, -5)
    assert (group.validated_topology_epoch, group.assignment_configs) == (
        3,
        {"num.standby.replicas": "1"},
    )
    assert (group.target.epoch, group.target.timestamp_ms) == (7, 1_700_000_000_000)
    assert group.topology is not None
    assert group.topology.required_topics == {"in"}
    assert group.state is StreamsGroupState.ASSIGNING
    assert group.owners.has_active(("0", 4))
    assert group.owners.is_kept_by(("2", 5), "p")


def test_a_member_goes_with_its_tasks() -> None:
    """Tombstones of a member free its tasks; the group stays."""
    shard = Shard()
    shard.read(*all_records())
    group = shard.read(*member_tombstones(GROUP, "m"))
    assert group is not None
    assert group.state is StreamsGroupState.EMPTY
    assert group.target.members == {}
    assert not group.owners.has_active(("0", 0))
    assert not group.owners.has_active(("0", 4))


def test_a_group_goes() -> None:
    """Its tombstones leave nothing; those of what is not there do nothing."""
    shard = Shard()
    group = shard.read(*all_records())
    assert group is not None
    tombstones = group_tombstones(group)
    assert {type(decode_key(key)) for key, _ in tombstones} == set(shard.replay.record_keys)
    assert shard.read(*tombstones) is None
    assert shard.read(*tombstones) is None


def test_tombstones_one_by_one() -> None:
    """Each takes away what its record said."""
    shard = Shard()
    group = shard.read(*all_records())
    assert group is not None
    for key, value in group_tombstones(group)[:-2]:
        shard.read(CoordinatorRecord(key, value))
    assert group.target.epoch == DELETED_EPOCH
    assert not group.members
    assert group.topology is not None


def test_records_of_a_newer_version_are_not_guessed_at() -> None:
    """A value of another version raises, and changes nothing."""
    shard = Shard()
    key = all_records()[2].key
    with pytest.raises(RemoteProtocolError):
        shard.replay.apply(decode_key(key), b"\0\1" + bytes(20), NOW)
    assert shard.registry.get(GROUP) is None


def test_epochs_of_assignments_that_are_missing() -> None:
    """Kafka 4.1 wrote none: those tasks count as assigned in the member's epoch."""
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=4,
        previous_member_epoch=3,
        state=9,
        active_tasks=[StreamsGroupCurrentAssignmentTaskIds(subtopology_id="0", partitions=[0, 1])],
    )
    key = current_assignment_record(GROUP, MEMBER).key
    group = Shard().read(CoordinatorRecord(key, encode_value(value)))
    assert group is not None
    member = group.members["m"]
    assert member.assigned.active == {"0": {0: 4, 1: 4}}
    assert member.state is StreamsMemberState.UNKNOWN


def test_a_group_of_offsets_gives_way() -> None:
    """Offsets may be read before the group's own records; a group of another kind stays."""
    shard = Shard()
    shard.registry.add(ClassicGroup(GROUP, 0))
    assert shard.read(*all_records()) is not None
    other = Shard()
    classic = ClassicGroup(GROUP, 0)
    classic.protocol_type = "consumer"
    other.registry.add(classic)
    for record in all_records():
        with pytest.raises(RemoteProtocolError, match="is not a streams group"):
            other.read(record)
    assert list(other.registry) == [classic]
