"""Members of a consumer group (classic protocol): join, read what they own, commit, leave, crash.

Owns: `GroupMember`. Each member is one client; the leader among them assigns partitions by range.
They tell the history who owned what in which generation, and what was committed: a member starts
where the group committed, reads on and commits in steps, so commits only grow.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import trio

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kraftrio.wire.primitives import TopicPartition
from tests.sim.client import SimClient, Unavailable
from tests.sim.history import History
from tests.sim.producers import Reader

_REJOIN = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
)


_CHANCE_OF_VANISHING = 0.04


class _Rejoin(Exception):
    """The member has to join again."""


class GroupMember:
    """See the module.

    Args:
        instance_id: of a static member (KIP-345): it does not leave, and comes again as the same.
    """

    def __init__(
        self,
        client: SimClient,
        history: History,
        group: str,
        topic: str,
        partitions: Sequence[int],
        session_timeout_ms: int = 6_000,
        instance_id: str | None = None,
    ) -> None:
        self._client = client
        self._history = history
        self._group = group
        self._topic = topic
        self._partitions = list(partitions)
        self._session_timeout_ms = session_timeout_ms
        self._instance_id = instance_id
        self._member_id = ""
        self._generation_id = -1
        self._coordinator = -1
        self.owned: dict[TopicPartition, Reader] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.commit_count = 0

    async def run(self) -> None:
        """Be a member until cancelled."""
        while True:
            try:
                await self._be_member()
            except (_Rejoin, Unavailable) as error:
                self._client.note(f"group {self._group} again: {error}")
                if isinstance(error, Unavailable):
                    self._coordinator = -1
                    self._client.forget(self._topic)
                    await self._client.pause()

    async def _be_member(self) -> None:
        rng = self._client.rng
        self.owned.clear()
        assigned = await self._join()
        await self._start_at_committed(assigned)
        for _ in range(rng.randrange(20, 200)):
            await self._heartbeat()
            for reader in self.owned.values():
                await reader.read(50)
            if rng.random() < 0.5:
                await self._commit()
            await trio.sleep(rng.uniform(0.05, 0.6))
        if self._instance_id is not None:
            self._member_id = ""  # another process, the same instance
        elif rng.random() < 0.5:
            await self._leave()

    # -- membership -----------------------------------------------------------------------------

    async def _call(
        self, request: object, version: int | None = None, extra_s: float = 0
    ) -> object:
        if self._coordinator < 0:
            self._coordinator = await self._client.coordinator(self._group)
        return await self._client.call_node(self._coordinator, request, version, extra_s)

    def _check(self, code: int, what: str) -> None:
        if code == ErrorCode.NONE:
            return
        name = ErrorCode(code).name
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code in _REJOIN:
            raise _Rejoin(f"{what}: {name}")
        if ErrorCode(code).retriable:
            raise Unavailable(f"{what}: {name}")
        raise SimulationFailure(f"{what} of group {self._group} was answered {name}")

    async def _join(self) -> list[TopicPartition]:
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=self._session_timeout_ms,
                rebalance_timeout_ms=5_000,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            joined = await self._call(request, extra_s=8)
            assert isinstance(joined, JoinGroupResponse)
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
            self._member_id = joined.member_id
        self._check(joined.error_code, "join")
        self._member_id, self._generation_id = joined.member_id, joined.generation_id
        if self._client.rng.random() < _CHANCE_OF_VANISHING:
            await self._vanish()
        assignments = []
        if joined.leader == self._member_id:
            members = sorted(member.member_id for member in joined.members)
            if self._member_id not in members:
                raise SimulationFailure(
                    f"the leader of group {self._group} is not listed as its member"
                )
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=member,
                    assignment=json.dumps(self._partitions[i :: len(members)]).encode(),
                )
                for i, member in enumerate(members)
            ]
        synced = await self._call(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation_id,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            ),
            extra_s=8,
        )
        self._check(synced.error_code, "sync")  # type: ignore[attr-defined]
        partitions = json.loads(synced.assignment or b"[]")  # type: ignore[attr-defined]
        assigned = [TopicPartition(self._topic, partition) for partition in partitions]
        self._client.note(f"group {self._group} generation {self._generation_id} owns {partitions}")
        for topic_partition in assigned:
            owner = self._instance_id or self._member_id
            self._history.own(self._group, self._generation_id, topic_partition, owner)
        return assigned

    async def _vanish(self) -> None:
        """Die between JoinGroup and SyncGroup, and come again after a while."""
        self._client.note(f"group {self._group}: gone before SyncGroup")
        self._client.close()
        self._member_id = ""
        await trio.sleep(self._client.rng.uniform(0.1, 8.0))
        raise _Rejoin("vanished")

    async def _heartbeat(self) -> None:
        beat = await self._call(
            HeartbeatRequest(
                group_id=self._group,
                generation_id=self._generation_id,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
            )
        )
        self._check(beat.error_code, "heartbeat")  # type: ignore[attr-defined]

    async def _leave(self) -> None:
        member = MemberIdentity(member_id=self._member_id)
        left = await self._call(LeaveGroupRequest(group_id=self._group, members=[member]))
        self._check(left.error_code, "leave")  # type: ignore[attr-defined]
        self._member_id = ""

    # -- offsets --------------------------------------------------------------------------------

    async def _start_at_committed(self, assigned: list[TopicPartition]) -> None:
        known = self._history.committed(self._group, assigned)
        topic = OffsetFetchRequestTopic(
            name=self._topic, partition_indexes=[tp.partition for tp in assigned]
        )
        request = OffsetFetchRequest(group_id=self._group, topics=[topic], require_stable=True)
        response = await self._call(request)
        self._check(response.error_code, "offset fetch")  # type: ignore[attr-defined]
        for answer in response.topics[0].partitions:  # type: ignore[attr-defined]
            self._check(answer.error_code, "offset fetch")
            tp = TopicPartition(self._topic, answer.partition_index)
            offset = max(answer.committed_offset, 0)
            self._history.check_committed(self._group, tp, known[tp], offset)
            reader = Reader(self._client, self._history, tp)
            reader.position = offset
            self.owned[tp] = reader
            self.committed[tp] = offset

    async def _commit(self) -> None:
        wanted = {tp: reader.position for tp, reader in self.owned.items()}
        if not wanted:
            return
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=tp.partition, committed_offset=offset, committed_metadata=""
            )
            for tp, offset in wanted.items()
        ]
        newest = self._history.newest_generation(self._group)
        response = await self._call(
            OffsetCommitRequest(
                group_id=self._group,
                generation_id_or_member_epoch=self._generation_id,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                topics=[OffsetCommitRequestTopic(name=self._topic, partitions=partitions)],
            )
        )
        for answer in response.topics[0].partitions:  # type: ignore[attr-defined]
            self._check(answer.error_code, "commit")
        self._history.check_generation(self._group, self._generation_id, newest)
        for tp, offset in wanted.items():
            self._history.commit(self._group, tp, offset)
            self.committed[tp] = offset
        self.commit_count += 1
