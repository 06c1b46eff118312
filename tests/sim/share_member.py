"""A member of a share group (KIP-932): joins, acquires, acknowledges, leaves, crashes, pauses.

Owns: `ShareMember`, one consumer, as process after process. It keeps a share session with each
leader, and says of the records that it gets that they are accepted, released or rejected, that it
needs longer, or nothing. It reports to the model what it sends and is answered.

Called by: `share_groups`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import trio

from kraftrio.broker.share.state.acknowledgement import AcknowledgeCode
from kraftrio.testing.simulation.world import SimulationFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
    ShareForgottenTopic,
)
from kraftrio.wire.messages.share_groups import ShareGroupHeartbeatRequest
from kraftrio.wire.records.batch import iter_headers, iter_records
from tests.sim.client import SimClient, Unavailable
from tests.sim.lifetimes import Lifetimes
from tests.sim.share_group_model import Hold, Place, Server, ShareGroupModel

_FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
_NO_SESSION = (
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
)
_LEAVES = _ENDS_SESSION = -1
_LIFETIMES = Lifetimes(end=0.02, pause=0.02)
_ANSWERS = (
    *((AcknowledgeCode.ACCEPT,) * 10),
    *((AcknowledgeCode.RELEASE,) * 4),
    AcknowledgeCode.REJECT,
    AcknowledgeCode.RENEW,
    None,  # it is forgotten: its lock has to end
)


class _Fenced(Exception):
    """The coordinator does not know the member any more."""


@dataclass(slots=True)
class _Session:
    """What a member and a leader know of each other.

    Attributes:
        acquired: what it has to say something about, with the delivery that it was.
    """

    server: Server
    epoch: int = 0
    partitions: set[int] = field(default_factory=set)
    acquired: dict[Place, int] = field(default_factory=dict)


class _Sent(NamedTuple):
    """What one request says of records.

    Attributes:
        counts: the deliveries that it is about.
        holds: what its sender had then, by partition.
    """

    kinds: dict[Place, AcknowledgeCode]
    counts: dict[Place, int]
    holds: dict[int, dict[Place, Hold]]
    sent_s: float


class ShareMember:
    """See the module.

    Args:
        client: makes a client on a machine of its own, by its name.
        life_of: how often a broker was started, by its id.

    Attributes:
        is_calm: it stays, and accepts whatever it gets.
        epoch, assigned: of the process that runs; -1, nothing: there is none, or it has not joined.
    """

    def __init__(
        self,
        name: str,
        group: str,
        topic: str,
        model: ShareGroupModel,
        client: Callable[[str], SimClient],
        life_of: Callable[[int], int],
        rng: Random,
        lock_s: float,
    ) -> None:
        self.name = name
        self.group = group
        self.topic = topic
        self.model = model
        self.new_client = client
        self.life_of = life_of
        self.rng = rng
        self.lock_s = lock_s
        self.is_calm = False
        self.epoch = -1
        self.assigned: set[int] = set()

    async def run(self) -> None:
        """Be one process after the other, until cancelled."""
        number = 0
        while True:
            number += 1
            process = _Process(self, f"{self.name}.{number}")
            try:
                await process.run()
            finally:
                self.epoch, self.assigned = -1, set()
                self.model.part_with_all(process.name)
                process.close()
            await trio.sleep(self.rng.uniform(0.1, 3.0))


class _Process:
    """One process, from its start to its end."""

    def __init__(self, member: ShareMember, name: str) -> None:
        self.name = name
        self.client = member.new_client(name)
        self._membership = member.new_client(f"{name}c")  # no fetch holds up its heartbeats
        self._member = member
        self._model = member.model
        self._rng = member.rng
        self._member_id = f"{name}-{self._rng.getrandbits(32):x}"
        self._coordinator = -1
        self._epoch = 0
        self._pauses_until_s = 0.0
        self._topic_id = b""
        self._sessions: dict[int, _Session] = {}

    @property
    def _now_s(self) -> float:
        return self.client.world.now_s

    async def run(self) -> None:
        """Live until it leaves or crashes."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stay_in_group)
            await self._live()
            nursery.cancel_scope.cancel()

    def close(self) -> None:
        """It is no more."""
        self.client.close()
        self._membership.close()

    async def _stay_in_group(self) -> None:
        """Heartbeat, whatever the leaders do meanwhile."""
        while True:
            if self._now_s >= self._pauses_until_s:
                try:
                    await self._heartbeat()
                except _Fenced as error:
                    self.client.note(f"{self._member.group}: {error}")
                    self._epoch, self._member.epoch = 0, -1
                    self._member.assigned = set()
                except Unavailable as error:
                    self.client.note(f"{self._member.group} again: {error}")
                    self._coordinator = -1
                    self._membership.addresses.clear()  # of dead ones, maybe: ask any
            await trio.sleep(self._rng.uniform(0.1, 0.5))

    async def _live(self) -> None:
        while True:
            try:
                await self._visit_leaders()
            except Unavailable as error:
                self.client.note(f"leaders of {self._member.topic} again: {error}")
                self.client.addresses.clear()
                self.client.forget(self._member.topic)
                await self.client.pause()
            await trio.sleep(self._rng.uniform(0.05, 0.3))
            if not self._member.is_calm and await _LIFETIMES.ends(
                self._rng, self.client, self._leave, self._pause
            ):
                return

    async def _pause(self) -> None:
        self._pauses_until_s = self._now_s + self._rng.uniform(0.3, 2.0) * self._member.lock_s
        await trio.sleep(self._pauses_until_s - self._now_s)

    # -- membership -------------------------------------------------------------------------------

    async def _to_coordinator(self, request: ShareGroupHeartbeatRequest) -> Any:
        if self._coordinator < 0:
            self._coordinator = await self._membership.coordinator(self._member.group)
        return await self._membership.call_node(self._coordinator, request)

    async def _heartbeat(self) -> None:
        member = self._member
        topics = [member.topic] if self._epoch == 0 else None
        response = await self._to_coordinator(
            ShareGroupHeartbeatRequest(
                group_id=member.group,
                member_id=self._member_id,
                member_epoch=self._epoch,
                subscribed_topic_names=topics,
            )
        )
        code = ErrorCode(response.error_code)
        if code in _FENCED:
            raise _Fenced(code.name)
        if code is not ErrorCode.NONE:
            if not code.retriable:
                raise SimulationFailure(f"a heartbeat of {self.name} was answered {code.name}")
            raise Unavailable(code.name)
        self._epoch = member.epoch = response.member_epoch
        if response.assignment is not None:
            topics = response.assignment.topic_partitions
            member.assigned = {index for topic in topics for index in topic.partitions}
            self._topic_id = topics[0].topic_id if topics else self._topic_id
            self.client.note(f"epoch {self._epoch} has {sorted(member.assigned)}")

    async def _leave(self) -> None:
        for node_id in list(self._sessions):
            await self._end_session(node_id)
        self._pauses_until_s = float("inf")
        await self._to_coordinator(
            ShareGroupHeartbeatRequest(
                group_id=self._member.group, member_id=self._member_id, member_epoch=_LEAVES
            )
        )

    # -- sessions ---------------------------------------------------------------------------------

    async def _visit_leaders(self) -> None:
        """Say what became of what it has, and ask for more, leader after leader."""
        led: dict[int, set[int]] = defaultdict(set)
        for index in sorted(self._member.assigned):
            leader, _ = await self.client.leader(self._member.topic, index)
            led[leader].add(index)
        for node_id in sorted({*led, *self._sessions}):
            await self._visit(node_id, led.get(node_id, set()))

    async def _visit(self, node_id: int, wanted: set[int]) -> None:
        session = self._sessions.get(node_id)
        if session is None:
            server = Server(node_id, self._member.life_of(node_id))
            session = self._sessions[node_id] = _Session(server)
        kinds = self._choose(session)
        is_renewal = AcknowledgeCode.RENEW in kinds.values()
        if kinds and (is_renewal or self._rng.random() < 0.5):
            await self._acknowledge(session, kinds)
            kinds = {}
        if wanted or session.epoch:
            await self._fetch(session, wanted, kinds)

    async def _end_session(self, node_id: int) -> None:
        session = self._sessions[node_id]
        if session.epoch:
            self._model.part_with_all(self.name, session.server)
            session.epoch = _ENDS_SESSION
            await self._acknowledge(session, {})
        self._sessions.pop(node_id, None)

    async def _call(self, session: _Session, request: Any, sent: _Sent) -> Any:
        """Send a request of a session, which ends when that goes wrong."""
        node_id = session.server.node_id
        try:
            response = await self.client.call_node(node_id, request)
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                session.epoch += 1
                return response
            if code not in _NO_SESSION and not code.retriable:
                raise SimulationFailure(f"{self.name} was answered {code.name} by n{node_id}")
            reason = code.name
        except Unavailable as error:
            reason = str(error)
        self._sessions.pop(node_id, None)
        self._model.part_with_all(self.name, session.server)
        for place in sent.kinds:
            self._model.doubt(place)
        if node_id in self.client.addresses:
            self.client.drop(self.client.addresses[node_id])
        raise Unavailable(reason)

    # -- acknowledgements -------------------------------------------------------------------------

    def _choose(self, session: _Session) -> dict[Place, AcknowledgeCode]:
        """What to say of some of the records that it has, or of all."""
        chosen: dict[Place, AcknowledgeCode] = {}
        kind: AcknowledgeCode | None = AcknowledgeCode.ACCEPT
        for number, place in enumerate(sorted(session.acquired)):
            if not self._member.is_calm and not number % 3:
                kind = self._rng.choice(_ANSWERS)
            if kind is not None:
                chosen[place] = kind
            elif self._rng.random() < 0.5:
                del session.acquired[place]
        return chosen

    def _part_with(self, session: _Session, kinds: dict[Place, AcknowledgeCode]) -> _Sent:
        """Part with what is acknowledged."""
        holds: dict[int, dict[Place, Hold]] = defaultdict(dict)
        counts = {place: session.acquired.pop(place) for place in kinds}
        for place, kind in kinds.items():
            hold = self._model.hold(self.name, place)
            holds[place.partition][place] = hold or Hold(session.server, 0.0)
            if kind is not AcknowledgeCode.RENEW:
                self._model.part(self.name, place)
        return _Sent(kinds, counts, holds, self._now_s)

    def _on_answers(self, session: _Session, sent: _Sent, codes: dict[int, ErrorCode]) -> None:
        for index, held in sent.holds.items():
            code = codes[index]
            if code is ErrorCode.INVALID_RECORD_STATE:
                self._model.refuse(self.name, held, self._now_s)
            elif code is ErrorCode.NONE:
                for place in held:
                    self._on_counted(session, sent, place)
            elif not code.retriable and code is not ErrorCode.UNKNOWN_SERVER_ERROR:
                raise SimulationFailure(f"acknowledgements of {self.name} came to {code.name}")
            else:
                self.client.note(f"acknowledgements for {index}: {code.name}")
                for place in held:
                    self._model.doubt(place)

    def _on_counted(self, session: _Session, sent: _Sent, place: Place) -> None:
        model, kind, count, server = (
            self._model,
            sent.kinds[place],
            sent.counts[place],
            session.server,
        )
        if kind is AcknowledgeCode.RENEW:
            model.renew(self.name, place, server, sent.sent_s)
            session.acquired[place] = count
        elif kind is AcknowledgeCode.RELEASE:
            model.release(place, count, server, self._now_s)
        else:
            model.settle(place, server, self._now_s)

    async def _acknowledge(self, session: _Session, kinds: dict[Place, AcknowledgeCode]) -> None:
        partitions = [
            ShareAcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
            for index, batches in _batches(kinds).items()
        ]
        request = ShareAcknowledgeRequest(
            group_id=self._member.group,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            is_renew_ack=AcknowledgeCode.RENEW in kinds.values(),
            topics=[
                ShareAcknowledgeTopic(topic_id=self._topic_id, partitions=partitions)
                for _ in range(bool(kinds))
            ],
        )
        sent = self._part_with(session, kinds)
        response = await self._call(session, request, sent)
        answers = [one for topic in response.responses for one in topic.partitions]
        self._on_answers(
            session,
            sent,
            {one.partition_index: ErrorCode(one.error_code) for one in answers},
        )

    # -- records ----------------------------------------------------------------------------------

    async def _fetch(
        self, session: _Session, wanted: set[int], kinds: dict[Place, AcknowledgeCode]
    ) -> None:
        batches = _batches(kinds)
        named = sorted({*(wanted - session.partitions), *batches})
        forgotten = sorted(session.partitions - wanted - set(batches))
        request = ShareFetchRequest(
            group_id=self._member.group,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=self._rng.choice((0, 100, 400)),
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=self._rng.choice((1, 5, 500)),
            batch_size=self._rng.choice((1, 3, 100)),
            share_acquire_mode=self._rng.choice((0, 1)),
            topics=[
                ShareFetchTopic(
                    topic_id=self._topic_id,
                    partitions=[
                        ShareFetchPartition(
                            partition_index=index, acknowledgement_batches=batches.get(index, [])
                        )
                        for index in named
                    ],
                )
            ],
            forgotten_topics_data=[
                ShareForgottenTopic(topic_id=self._topic_id, partitions=forgotten)
                for _ in range(bool(forgotten))
            ],
        )
        sent_s = self._now_s
        asked = session.partitions | wanted
        session.partitions = {*wanted, *batches}
        sent = self._part_with(session, kinds)
        try:
            response = await self._call(session, request, sent)
        except Unavailable:
            for index in asked:
                self._model.lose_answer(index)
            raise
        answers = [one for topic in response.responses for one in topic.partitions]
        codes = {one.partition_index: ErrorCode(one.acknowledge_error_code) for one in answers}
        self._on_answers(session, sent, codes)
        for one in answers:
            self._take_records(session, one, sent_s)

    def _take_records(self, session: _Session, answer: Any, sent_s: float) -> None:
        index, code = answer.partition_index, ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            if not code.retriable and code is not ErrorCode.UNKNOWN_SERVER_ERROR:
                raise SimulationFailure(f"{self.name} was answered {code.name} for {index}")
            self.client.note(f"partition {index}: {code.name}")
            self.client.forget(self._member.topic)
        records = memoryview(answer.records or b"")
        values = {
            record.offset: record.value
            for header in iter_headers(records, allow_partial=True)
            for record in iter_records(records, header)
        }
        for taken in answer.acquired_records:
            for offset in range(taken.first_offset, taken.last_offset + 1):
                place = Place(index, offset)
                self._model.acquire(
                    self.name,
                    place,
                    taken.delivery_count,
                    values.get(offset),
                    server=session.server,
                    sent_s=sent_s,
                    now_s=self._now_s,
                )
                session.acquired[place] = taken.delivery_count


def _batches(kinds: dict[Place, AcknowledgeCode]) -> dict[int, list[AcknowledgementBatch]]:
    """The acknowledgements by partition, offset by offset in runs of the same answer."""
    found: dict[int, list[AcknowledgementBatch]] = defaultdict(list)
    for place, kind in sorted(kinds.items()):
        batches = found[place.partition]
        before = batches[-1] if batches else None
        if (
            before is not None
            and before.last_offset == place.offset - 1
            and before.acknowledge_types == [kind]
        ):
            before.last_offset = place.offset
        else:
            batches.append(
                AcknowledgementBatch(
                    first_offset=place.offset, last_offset=place.offset, acknowledge_types=[kind]
                )
            )
    return dict(found)
