"""A member of a classic group, one connection each: a waiting join blocks only its own."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.conformance.cases.raw_client import TIMEOUT_S, RawClient

JOIN_DEADLINE_S = 30.0


def subscription(*topics: str) -> bytes:
    """Encode the subscription of a consumer of some topics, which Apache Kafka reads, too."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


@dataclass
class Member:
    """What one consumer sends to its coordinator, and what that answered last."""

    client: RawClient
    group: str
    instance: str | None = None
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 10_000
    protocol_type: str = "consumer"
    protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("topic")),)
    member_id: str = ""
    generation: int = -1
    _asked: list[tuple[object, int, int]] = field(default_factory=list)

    # Joining

    def join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in self.protocols
            ],
        )

    def begin_join(self, version: int = 9) -> None:
        """Send a join without waiting for its answer."""
        request = self.join_request()
        self._asked.append((request, version, self.client.send(request, version)))

    def end_join(self, timeout_s: float = TIMEOUT_S) -> JoinGroupResponse:
        """Wait for the answer to the oldest join that has none yet, and take note of it."""
        request, version, correlation_id = self._asked.pop(0)
        response = self.client.receive(request, version, correlation_id, timeout_s)
        assert isinstance(response, JoinGroupResponse)
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = response.member_id
        if response.error_code == ErrorCode.NONE:
            self.generation = response.generation_id
        return response

    def try_join(self, version: int = 9) -> JoinGroupResponse:
        """Join once, whatever the answer."""
        self.begin_join(version)
        return self.end_join()

    def get_member_id(self) -> None:
        """Get an id for a dynamic member, which is then pending (KIP-394)."""
        response = self.try_join()
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED

    def join(self, version: int = 9) -> JoinGroupResponse:
        """Join until it succeeds; a coordinator that is loading is asked again."""
        deadline = time.monotonic() + JOIN_DEADLINE_S
        while True:
            response = self.try_join(version)
            if response.error_code == ErrorCode.NONE:
                return response
            assert response.error_code in (
                ErrorCode.MEMBER_ID_REQUIRED,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            ), response
            assert time.monotonic() < deadline
            time.sleep(0.02)

    # Being a member

    def sync_request(self, assignments: dict[str, bytes] | None = None) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocol_name=self.protocols[0][0],
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )

    def sync(
        self, assignments: dict[str, bytes] | None = None, version: int = 5
    ) -> SyncGroupResponse:
        """Send the assignments (as leader), or wait for its own."""
        response = self.client.call(self.sync_request(assignments), version)
        assert isinstance(response, SyncGroupResponse)
        return response

    def heartbeat(self, version: int = 4) -> int:
        """Return the error code of a heartbeat."""
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return int(self.client.call(request, version).error_code)

    def leave(self) -> LeaveGroupResponse:
        """Leave, by member id and instance id."""
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        response = self.client.call(LeaveGroupRequest(group_id=self.group, members=[identity]))
        assert isinstance(response, LeaveGroupResponse)
        return response

    def commit(self, topic: str, offset: int) -> int:
        """Commit the offset of partition 0; return the error code."""
        request = commit_request(self.group, topic, offset)
        request.generation_id_or_member_epoch = self.generation
        request.member_id = self.member_id
        request.group_instance_id = self.instance
        return commit_code(self.client, request)


def alone(client: RawClient, group: str, **options: object) -> Member:
    """Make a member that has joined and synced as the only one of its group."""
    member = Member(client, group, **options)  # type: ignore[arg-type]
    response = member.join()
    assert response.leader == member.member_id
    synced = member.sync({member.member_id: b"all of it"})
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"all of it")
    return member


def together(first: Member, *others: Member) -> list[JoinGroupResponse]:
    """Bring members into one generation, the second of their group; nobody has synced."""
    first.join()
    for member in others:
        if member.instance is None:
            member.get_member_id()
    for member in others:
        member.begin_join()
    wait_for_heartbeat(first, ErrorCode.REBALANCE_IN_PROGRESS)
    first.begin_join()
    responses = [member.end_join() for member in (first, *others)]
    assert {(one.error_code, one.generation_id) for one in responses} == {(ErrorCode.NONE, 2)}
    return responses


def wait_for_heartbeat(member: Member, code: ErrorCode) -> None:
    """Send heartbeats until one has this answer."""
    deadline = time.monotonic() + JOIN_DEADLINE_S
    while (found := member.heartbeat()) != code:
        assert found == ErrorCode.NONE
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Offsets


def commit_request(
    group: str, topic: str, offset: int, partition: int = 0, metadata: str | None = "m"
) -> OffsetCommitRequest:
    """Make a commit from outside of any generation."""
    part = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])]
    )


def commit_code(client: RawClient, request: OffsetCommitRequest, version: int = 9) -> int:
    """Return the error code of a commit of one partition."""
    ((answer,),) = [topic.partitions for topic in client.call(request, version).topics]
    return int(answer.error_code)


def fetch_offset(
    client: RawClient, group: str, topic: str, partition: int = 0
) -> OffsetFetchResponsePartitions:
    """Return what a group has committed for a partition: offset -1 when nothing."""
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])],
            )
        ]
    )
    (found,) = client.call(request, 9).groups
    assert found.error_code == ErrorCode.NONE
    ((answer,),) = [one.partitions for one in found.topics]
    assert isinstance(answer, OffsetFetchResponsePartitions)
    return answer
