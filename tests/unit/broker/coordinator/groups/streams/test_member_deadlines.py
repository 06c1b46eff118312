"""Times of streams groups: sessions, revocations, the wait for first members, the next target."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from uuid import UUID

import pytest

from kraftrio.broker.coordinator.groups.streams.group_state import StreamsGroupState
from kraftrio.broker.coordinator.groups.streams.member import StreamsMemberState
from kraftrio.broker.coordinator.groups.streams.topology.topic_problem import HeartbeatStatus
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTaskIds,
    StreamsGroupHeartbeatRequestTopology,
    StreamsGroupHeartbeatResponse,
)
from tests.support.sliced import finish_timing
from tests.unit.broker.coordinator.groups.streams.streams_context import (
    SENDER,
    StreamsContext,
)

GROUP = "group"
SESSION_MS = 45_000
BOUND_S = 0.020  # on a quiet machine
TOLERATED = 4.0  # times the bound, on a busy one
REBALANCE_MS = 60_000


class Members(StreamsContext):
    """Members of one group that reads a topic of four partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.make_topic("in", 4)

    def join(self, member_id: str) -> StreamsGroupHeartbeatResponse:
        """Have a member join."""
        source = StreamsGroupHeartbeatRequestSubtopology(subtopology_id="0", source_topics=["in"])
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            rebalance_timeout_ms=REBALANCE_MS,
            topology=StreamsGroupHeartbeatRequestTopology(subtopologies=[source]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id=member_id,
        )
        return self.heartbeat(request).response

    def beat(
        self, member_id: str, epoch: int, owned: list[int] | None = None
    ) -> StreamsGroupHeartbeatResponse:
        """Have a member heartbeat with what it has."""
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch
        )
        if owned is not None:
            ids = StreamsGroupHeartbeatRequestTaskIds(subtopology_id="0", partitions=owned)
            request.active_tasks, request.standby_tasks, request.warmup_tasks = [ids], [], []
        return self.heartbeat(request).response

    def active_of(self, member_id: str) -> set[int]:
        """The active tasks that the group has given a member."""
        return set(self.group(GROUP).members[member_id].assigned.active.get("0", ()))


@pytest.fixture
def members() -> Members:
    """No member yet."""
    return Members()


def statuses(response: StreamsGroupHeartbeatResponse) -> list[int]:
    """The codes of a response's statuses."""
    return [one.status_code for one in response.status or ()]


def test_a_silent_member_goes(members: Members) -> None:
    """At the end of its session, and its tasks are for others; heartbeats prolong it."""
    members.join("a")
    members.advance(SESSION_MS - 1)
    members.beat("a", 2)
    members.advance(SESSION_MS - 1)
    assert members.group(GROUP).has_member("a")
    members.advance(1)
    group = members.group(GROUP)
    assert group.state is StreamsGroupState.EMPTY
    assert group.epoch == 3
    assert members.beat("a", 2).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_goes_also_if_the_first_record_fails(members: Members) -> None:
    """The removal is tried again shortly."""
    members.join("a")
    members.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    members.advance(SESSION_MS)
    assert members.group(GROUP).has_member("a")
    members.append_error = ErrorCode.NONE
    members.advance(500)
    assert not members.group(GROUP).has_member("a")


def test_sessions_begin_again_with_a_coordinator(members: Members) -> None:
    """Members that were loaded have a whole session."""
    members.join("a")
    members.advance(SESSION_MS - 1)
    members.load()
    members.advance(SESSION_MS - 1)
    assert members.group(GROUP).has_member("a")
    members.advance(1)
    assert not members.group(GROUP).has_member("a")


@pytest.mark.parametrize("is_loaded", [False, True])
def test_tasks_have_to_be_given_up_in_time(members: Members, is_loaded: bool) -> None:
    """A member that heartbeats, but keeps what it is to give up, is fenced."""
    members.join("a")
    members.join("b")
    members.beat("a", 2, [0, 1, 2, 3])
    member = members.group(GROUP).members["a"]
    assert member.state is StreamsMemberState.UNREVOKED_TASKS
    if is_loaded:
        members.load()
    for _ in range(REBALANCE_MS // 20_000 - 1):
        members.advance(20_000)
        members.beat("a", 2, [0, 1, 2, 3])
        members.beat("b", 3, [])
    members.advance(19_999)
    assert members.group(GROUP).has_member("a")
    members.advance(1)
    assert not members.group(GROUP).has_member("a")
    members.beat("b", 3, [])
    assert members.active_of("b") == {0, 1, 2, 3}


def test_tasks_that_were_given_up_end_the_wait(members: Members) -> None:
    """The time-out is forgotten with the revocation."""
    members.join("a")
    members.join("b")
    members.beat("a", 2, [0, 1, 2, 3])
    members.beat("a", 2, [0, 1])
    for _ in range(4):
        members.advance(20_000)
        members.beat("a", 3, [0, 1])
        members.beat("b", 3, [])
    assert members.active_of("a") == {0, 1}
    assert members.active_of("b") == {2, 3}


def test_first_members_are_waited_for(members: Members) -> None:
    """All that join within the delay share the tasks at once."""
    members.settings.values["streams.initial.rebalance.delay.ms"] = 3_000
    for member_id in ("a", "b"):
        response = members.join(member_id)
        assert statuses(response) == [HeartbeatStatus.ASSIGNMENT_DELAYED]
        assert response.active_tasks == []
    assert members.group(GROUP).state is StreamsGroupState.ASSIGNING
    members.advance(3_000)
    assert members.group(GROUP).state is StreamsGroupState.RECONCILING
    for member_id in ("a", "b"):
        response = members.beat(member_id, 1)
        assert statuses(response) == []
        assert response.active_tasks is not None
    assert members.active_of("a") | members.active_of("b") == {0, 1, 2, 3}
    assert members.group(GROUP).state is StreamsGroupState.STABLE


def test_the_first_target_of_very_many_members_takes_no_long_turn(members: Members) -> None:
    """It is computed, and its records are replayed, in one step of the event loop."""
    count = members.properties.group_streams_max_size = 1_000
    members.make_topic("in", count)
    members.settings.values["streams.initial.rebalance.delay.ms"] = 3_000
    random = Random(1)
    member_ids = [str(UUID(int=random.getrandbits(128))) for _ in range(count)]
    for member_id in member_ids:
        members.join(member_id)

    def compute() -> Generator[None, None, None]:
        yield
        members.advance(3_000)

    _, longest_s = finish_timing(compute())
    assert longest_s < TOLERATED * BOUND_S
    targets = members.group(GROUP).target.members
    assert [len(targets[member_id].active["0"]) for member_id in member_ids] == [1] * count


def test_a_delay_without_a_group(members: Members) -> None:
    """Nothing happens if the first member left, or its records were lost."""
    members.settings.values["streams.initial.rebalance.delay.ms"] = 3_000
    members.join("a")
    request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=-1)
    members.heartbeat(request)
    log = list(members.log)
    members.advance(3_000)
    assert members.log == log


def test_targets_are_not_computed_too_often(members: Members) -> None:
    """The next one waits for the interval (KIP-1263)."""
    members.settings.values["streams.assignment.interval.ms"] = 1_000
    members.join("a")
    response = members.join("b")
    assert statuses(response) == [HeartbeatStatus.ASSIGNMENT_DELAYED]
    assert members.group(GROUP).target.epoch == 2
    members.advance(999)
    assert statuses(members.beat("b", 2)) == [HeartbeatStatus.ASSIGNMENT_DELAYED]
    members.advance(1)
    assert statuses(members.beat("b", 2)) == []
    assert members.group(GROUP).target.epoch == 3


def test_a_deleted_group_is_not_waited_for(members: Members) -> None:
    """Its tombstones end the wait for members; a new group of the name waits again."""
    members.settings.values["streams.initial.rebalance.delay.ms"] = 3_000
    members.join("a")
    members.heartbeat(StreamsGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=-1))
    members.advance(2_000)
    for record in members.groups.tombstones(members.group(GROUP)):
        members.log.append(record)
    members.load()
    members.join("b")
    members.advance(2_999)
    assert members.group(GROUP).target.epoch == 1
    members.advance(1)
    assert members.group(GROUP).target.epoch == 2


def test_a_failed_join_leaves_nothing(members: Members) -> None:
    """The member may join again, as if for the first time."""
    members.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=5)
    outcome = members.groups.heartbeat(request, SENDER, members.now)
    assert outcome.response.response.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    source = StreamsGroupHeartbeatRequestSubtopology(subtopology_id="0", source_topics=["in"])
    members.carry_out(
        members.groups.heartbeat(
            StreamsGroupHeartbeatRequest(
                group_id=GROUP,
                member_id="a",
                rebalance_timeout_ms=1,
                topology=StreamsGroupHeartbeatRequestTopology(subtopologies=[source]),
                process_id="a",
            ),
            SENDER,
            members.now,
        )
    )
    assert members.registry.get(GROUP) is None
    members.append_error = ErrorCode.NONE
    members.advance(SESSION_MS)
    assert members.join("a").member_epoch == 2


def test_a_group_that_is_full(members: Members) -> None:
    """Those that are in it go on; nobody else gets in, nor in again."""
    members.properties.group_streams_max_size = 1
    assert members.join("a").error_code is ErrorCode.NONE
    assert members.join("b").error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert members.join("a").error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert members.beat("a", 2).error_code is ErrorCode.NONE
