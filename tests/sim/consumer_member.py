"""Members of consumer groups (KIP-848) and the like: join, give up, take over, commit, leave,
crash, pause.

Owns: `ConsumerMember`, one consumer, as process after process. What it sends depends on the kind of
group (`group_kinds`). It says what Java's client would:
all of itself when it joins and after an answer that did not come, what it owns once it has let go
of what it lost. It reports to the model what it sends and is answered.

Called by: `consumer_groups`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import trio

from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.sim.client import SimClient, Unavailable
from tests.sim.consumer_group_model import ConsumerGroupModel, Given
from tests.sim.group_kinds import GroupKind, Identity
from tests.sim.lifetimes import Lifetimes

_FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
_NOT_NOW = (*_FENCED, ErrorCode.STALE_MEMBER_EPOCH)
_TRIES = 8
_LIFETIMES = Lifetimes(end=0.03, pause=0.02)
_CHANCE_OF_COMMIT = 0.4


class _Fenced(Exception):
    """The coordinator does not know the member in this epoch any more."""


class ConsumerMember:
    """See the module.

    Args:
        kind: of its group.
        client: makes a client on a machine of its own, by its name.
        instance_id: of a static member.
    """

    def __init__(
        self,
        name: str,
        kind: GroupKind,
        group: str,
        topic: str,
        model: ConsumerGroupModel,
        client: Callable[[str], SimClient],
        rng: Random,
        session_s: float,
        instance_id: str | None = None,
    ) -> None:
        self._name = name
        self._kind = kind
        self._group = group
        self._topic = topic
        self._model = model
        self._new_client = client
        self._rng = rng
        self._session_s = session_s
        self._instance_id = instance_id
        self.is_calm = False  # stays, and does nothing but heartbeat

    async def run(self) -> None:
        """Be one process after the other, until cancelled."""
        number = 0
        while True:
            number += 1
            process = _Process(self, f"{self._name}.{number}")
            self._model.begin(process.name)
            try:
                await process.run()
            finally:
                self._model.end(process.name)
                process.client.close()
            await trio.sleep(self._rng.uniform(0.1, 3.0))


class _Process:
    """One process, from its start to its end."""

    def __init__(self, member: ConsumerMember, name: str) -> None:
        self.name = name
        self.client = member._new_client(name)
        self._member = member
        self._model = member._model
        self._rng = member._rng
        self._member_id = f"{name}-{self._rng.getrandbits(32):x}"
        self._protocol = member._kind.protocol(
            Identity(member._group, member._topic, self._member_id, member._instance_id)
        )
        self._epoch = 0
        self._assigned: set[int] = set()  # what the coordinator says
        self._copies: set[int] = set()
        self._positions: dict[int, int] = {}
        self._coordinator = -1
        self._has_sent_all = False  # the next heartbeat may leave out what did not change
        self._has_news = False  # what it owns is to be sent

    async def run(self) -> None:
        """Live until it leaves or crashes."""
        while True:
            try:
                await self._heartbeat()
                await self._begin_partitions()
                await self._work()
            except _Fenced as error:
                self.client.note(f"{self._member._group}: {error}")
                self._forget()
            except Unavailable as error:
                self.client.note(f"{self._member._group} again: {error}")
                self._coordinator, self._has_sent_all = -1, False
                await self.client.pause()
            await trio.sleep(self._rng.uniform(0.1, 0.5))
            if not self._member.is_calm and await _LIFETIMES.ends(
                self._rng, self.client, self._leave, self._pause
            ):
                return

    def _forget(self) -> None:
        self._model.lose_all(self.name)
        self._epoch, self._has_sent_all, self._has_news = 0, False, False
        self._assigned, self._copies, self._positions = set(), set(), {}

    async def _pause(self) -> None:
        await trio.sleep(self._rng.uniform(0.5, 2.0) * self._member._session_s)
        if self._rng.random() < 0.7:  # it does not know how long it slept
            try:
                await self._work()
            except (_Fenced, Unavailable) as error:
                self.client.note(f"after its pause: {error}")

    # -- membership -------------------------------------------------------------------------------

    async def _call(self, request: object, version: int) -> object:
        tries = 0
        while self._coordinator < 0:
            try:
                self._coordinator = await self.client.coordinator(self._member._group)
            except Unavailable:
                self.client.addresses.clear()  # it knows the dead one alone, maybe: ask any
                tries += 1
                if tries == _TRIES:
                    raise
                await trio.sleep(0.05)
        return await self.client.call_node(self._coordinator, request, version)

    def _check(self, code: int, what: str) -> None:
        if code == ErrorCode.NONE:
            return
        name = ErrorCode(code).name
        if code in _FENCED:
            raise _Fenced(f"{what}: {name}")
        if code == ErrorCode.UNRELEASED_INSTANCE_ID or ErrorCode(code).retriable:
            raise Unavailable(f"{what}: {name}")
        raise SimulationFailure(f"{what} of {self.name} was answered {name}")

    async def _heartbeat(self) -> None:
        owned = set(self._assigned)
        self._positions = {one: at for one, at in self._positions.items() if one in owned}
        self._model.release(self.name, owned)
        is_full = not self._has_sent_all
        has = Given(owned, self._copies) if is_full or self._has_news else None
        request = self._protocol.heartbeat(self._epoch, has, is_full=is_full)
        sent_s = self.client.world.now_s
        response = await self._call(request, self._member._kind.heartbeat_version)
        self._check(response.error_code, "heartbeat")  # type: ignore[attr-defined]
        given = self._protocol.given(response)
        self._epoch = response.member_epoch  # type: ignore[attr-defined]
        added = self._model.on_answer(
            self.name,
            self._epoch,
            given,
            sent_s=sent_s,
            node=self._coordinator,
            now_s=self.client.world.now_s,
        )
        self._has_sent_all, self._has_news = True, given is not None
        if given is not None:
            self._assigned, self._copies = given
            self.client.note(
                f"epoch {self._epoch} has {sorted(given.owned)}, new {sorted(added)},"
                f" copies {sorted(given.copies)}"
            )

    async def _leave(self) -> None:
        self._model.lose_all(self.name)
        await self._call(self._protocol.leave(), self._member._kind.heartbeat_version)

    # -- offsets ----------------------------------------------------------------------------------

    async def _begin_partitions(self) -> None:
        """Ask for what is committed for partitions that are new."""
        new = sorted(self._assigned - set(self._positions))
        if not new:
            return
        topics = [OffsetFetchRequestTopics(name=self._member._topic, partition_indexes=new)]
        group = OffsetFetchRequestGroup(
            group_id=self._member._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            topics=topics,
        )
        sent_s = self.client.world.now_s
        response = await self._call(OffsetFetchRequest(groups=[group], require_stable=True), 9)
        found = response.groups[0]  # type: ignore[attr-defined]
        if found.error_code == ErrorCode.STALE_MEMBER_EPOCH:
            return
        self._check(found.error_code, "offset fetch")
        for one in found.topics[0].partitions:
            self._check(one.error_code, "offset fetch")
            offset = max(one.committed_offset, 0)
            self._model.find(self.name, one.partition_index, offset, sent_s=sent_s)
            self._positions[one.partition_index] = offset

    async def _work(self) -> None:
        """Go on in every partition, and commit now and then."""
        for partition in self._positions:
            self._positions[partition] += self._rng.randrange(5)
        if not self._positions or self._rng.random() > _CHANCE_OF_COMMIT:
            return
        offsets = dict(self._positions)
        request = OffsetCommitRequest(
            group_id=self._member._group,
            member_id=self._member_id,
            generation_id_or_member_epoch=self._epoch,
            topics=[
                OffsetCommitRequestTopic(
                    name=self._member._topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=at, committed_metadata=""
                        )
                        for partition, at in offsets.items()
                    ],
                )
            ],
        )
        sent_s = self.client.world.now_s
        response = await self._call(request, 9)
        for one in response.topics[0].partitions:  # type: ignore[attr-defined]
            if one.error_code in _NOT_NOW:
                continue
            self._check(one.error_code, "commit")
            self._model.commit(
                self.name,
                one.partition_index,
                offsets[one.partition_index],
                sent_s=sent_s,
                now_s=self.client.world.now_s,
            )
