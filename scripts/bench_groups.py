"""What groups cost a broker: heartbeats, memory, rebalances, of each protocol.

Called by `bench.py --groups`. 5,000 members in 500 groups of ten, which are frames on a few
connections here, not processes: what is measured is the broker. Assignments of these are computed
at once (assignment intervals of 0), so that the time of a rebalance is that of the work in it;
those of the large group as by default, once a second at most. Brokers have turns of ten groups, or
of a heartbeat of each member: between them the others do nothing.

- joined: from the first member's join to the last one's assignment, over all groups
- heartbeats: of members to whom nothing happens, pipelined on ten connections
- rebalance: a member more joins a group of ten, until all have what they are to have
- all rebalance: one joins each of the 500 groups at once (not of the classic protocol, in which a
  join holds up what follows on its connection)
- 1,000 members: one group of them on 1,000 partitions, and one of them leaves
"""

from __future__ import annotations

import selectors
import sys
import time
import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import Metrics, RunningBroker, Turns, running

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import FindCoordinatorRequest
from kraftrio.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kraftrio.wire.messages.share_groups import ShareGroupHeartbeatRequest
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTaskIds,
    StreamsGroupHeartbeatRequestTopology,
)
from tests.integration.wire_client import WireClient, frame_of

GROUPS, MEMBERS = 500, 10
LARGE = 1_000  # members of the large group, and partitions of its topic
LAPS = 10  # heartbeats of each member
REBALANCES = 300  # groups that one more member joins
_GROUPS_A_TURN = 10
_INTERVAL_S = 1.0  # between assignments of the large group
_CONNECTIONS = 10
_WINDOW = 50  # requests in flight on a connection
_PATIENCE_S = 0.05  # how long a join waits for the others before those who are through join again
_DEADLINE_S = 120.0
_LOOK_S = 0.5
_IDLE = 0.1  # of a processor
_GROUP_RESOURCE = 32
_TOPIC, _LARGE_TOPIC = "groups", "large"
SETTINGS = (
    "group.share.max.size=1000",
    "group.streams.initial.rebalance.delay.ms=0",
    *(
        f"group.{kind}.{setting}"
        for kind in ("consumer", "share", "streams")
        for setting in (
            "assignment.interval.ms=0",
            "max.session.timeout.ms=600000",
            "session.timeout.ms=600000",  # no member heartbeats while the others join
        )
    ),
)


class BenchGroup(Protocol):
    """A group of some protocol, whose members are all here."""

    def settle(self) -> None:
        """Have every member join, or rejoin, until all have what they are to have."""

    def add_member(self) -> None: ...

    def remove_member(self) -> None: ...

    def heartbeats(self) -> list[bytes]:
        """A heartbeat of each member that changes nothing."""


def measure_groups(kind: str, scale: float, metrics: Metrics) -> Turns:
    """One round of one kind of broker, which is started again for each protocol."""
    for protocol in ("classic", "consumer", "share", "streams"):
        with running(kind, metrics, SETTINGS) as broker:
            yield from _ProtocolBench(protocol, broker, metrics).run(scale)


@dataclass
class _Taken:
    """What turns of a broker took, together."""

    broker: RunningBroker
    wall_ms: float = 0.0
    cpu_ms: float = 0.0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Count what is done in the block."""
        began, cpu_s = time.perf_counter(), self.broker.cpu_s()
        yield
        self.wall_ms += (time.perf_counter() - began) * 1e3
        self.cpu_ms += (self.broker.cpu_s() - cpu_s) * 1e3


class _ProtocolBench:
    """All that is measured of one protocol at one broker; `run` yields where a turn ends."""

    def __init__(self, protocol: str, broker: RunningBroker, metrics: Metrics) -> None:
        host, port = broker.address.split(":")
        self._address = (host, int(port))
        self._protocol = protocol
        self._broker = broker
        self._metrics = metrics
        self._clients = [
            WireClient(self._address, timeout_s=_DEADLINE_S) for _ in range(_CONNECTIONS + 1)
        ]

    def _add(self, name: str, value: float) -> None:
        self._metrics.add(f"{self._protocol}: {name}", value)

    def _add_taken(self, name: str, taken: _Taken, count: int, per: str = "") -> None:
        self._add(f"{name}, ms{per}", taken.wall_ms / count)
        self._add(f"{name}, broker CPU ms{per}", taken.cpu_ms / count)

    def run(self, scale: float) -> Turns:
        """Have the groups join, heartbeat and rebalance; then the large one."""
        names = [f"group-{number}" for number in range(int(GROUPS * scale))]
        self._clients[0].create_topic(_TOPIC, MEMBERS)
        self._clients[0].create_topic(_LARGE_TOPIC, LARGE)
        _wait_for_coordinator(self._clients[0], ["warm-up", "large", *names])
        self._group("warm-up", _TOPIC, MEMBERS).settle()
        _wait_until_idle(self._broker)
        memory_before_mb = self._broker.memory_mb()
        yield
        groups = [self._group(name, _TOPIC, MEMBERS) for name in names]
        joined = yield from self._settle(groups)
        self._add_taken("joined", joined, len(groups), " a group")
        yield from self._heartbeat(groups)
        grown_kb = (self._broker.memory_mb() - memory_before_mb) * 1024
        self._add("memory, MB", self._broker.memory_mb())
        self._add("memory, KB a member", grown_kb / (len(groups) * MEMBERS))
        some = groups[:REBALANCES]
        rebalanced = yield from self._settle(some, one_joins=True)
        self._add_taken("rebalance", rebalanced, len(some))
        if self._protocol != "classic":
            yield from self._rebalance_all(groups)
        yield from self._measure_large(int(LARGE * max(scale, 0.2)))
        for client in self._clients:
            client.close()

    def _settle(
        self, groups: Sequence[BenchGroup], *, one_joins: bool = False
    ) -> Generator[None, None, _Taken]:
        """Settle groups, some a turn; before that one more member may join each."""
        taken = _Taken(self._broker)
        for start in range(0, len(groups), _GROUPS_A_TURN):
            with taken.turn():
                for group in groups[start : start + _GROUPS_A_TURN]:
                    if one_joins:
                        group.add_member()
                    group.settle()
            yield
        return taken

    def _heartbeat(self, groups: Sequence[BenchGroup]) -> Turns:
        frames = [frame for group in groups for frame in group.heartbeats()]
        lanes = [frames[lane::_CONNECTIONS] for lane in range(_CONNECTIONS)]
        _send_all(self._clients, lanes)
        taken = _Taken(self._broker)
        for _ in range(LAPS):
            with taken.turn():
                _send_all(self._clients, lanes)
            yield
        sent = len(frames) * LAPS
        self._add("heartbeats/s", sent / taken.wall_ms * 1e3)
        self._add("heartbeat, broker CPU us", taken.cpu_ms * 1e3 / sent)

    def _rebalance_all(self, groups: Sequence[Any]) -> Turns:
        for group in groups:
            group.add_member()
        all_members = [member for group in groups for member in group.members]
        everybody = HeartbeatBenchGroup(all_members, self._clients[:_CONNECTIONS])
        taken = _Taken(self._broker)
        is_settled = False
        while not is_settled:
            with taken.turn():
                is_news = everybody.lap()
                is_settled = not is_news and all(group.is_settled() for group in groups)
            assert taken.wall_ms < _DEADLINE_S * 1e3, "the groups do not settle"
            yield
        self._add_taken("all rebalance", taken, len(groups), " a group")

    def _measure_large(self, size: int) -> Turns:
        clients = [*self._clients, *_connect(self._address, size - len(self._clients))]
        _have_default_interval(clients[0], "large")
        large = _group(self._protocol, "large", _LARGE_TOPIC, size, clients)
        yield
        for name in ("join", "one leaves"):
            if name != "join":
                # Or the interval passes in the turns of one broker, and not of another.
                time.sleep(_INTERVAL_S)
                large.remove_member()
            taken = _Taken(self._broker)
            with taken.turn():
                large.settle()
            yield
            self._add(f"{size} members, {name}, s", taken.wall_ms / 1e3)
            self._add(f"{size} members, {name}, broker CPU s", taken.cpu_ms / 1e3)
        for client in clients[len(self._clients) :]:
            client.close()

    def _group(self, name: str, topic: str, size: int) -> BenchGroup:
        return _group(self._protocol, name, topic, size, self._clients)


def _wait_until_idle(broker: RunningBroker) -> None:
    """Let a broker do what set-up has left to it: make the partitions of the large topic, say."""
    end = time.perf_counter() + _DEADLINE_S
    while True:
        cpu_s = broker.cpu_s()
        time.sleep(_LOOK_S)
        if broker.cpu_s() - cpu_s < _IDLE * _LOOK_S:
            return
        assert time.perf_counter() < end, "the broker does not come to rest"


def _connect(address: tuple[str, int], count: int) -> list[WireClient]:
    """Connections that the broker has taken, so that this is not counted as a group's work."""
    clients = [WireClient(address, timeout_s=_DEADLINE_S) for _ in range(count)]
    for client in clients:
        client.call(FindCoordinatorRequest(key="large", key_type=0), 3)
    return clients


def _wait_for_coordinator(client: WireClient, group_ids: Iterable[str]) -> None:
    """Have the internal topic made, and its partitions loaded."""
    end = time.perf_counter() + _DEADLINE_S
    for group_id in group_ids:
        client.call(FindCoordinatorRequest(key=group_id, key_type=0), 3)
        heartbeat = HeartbeatRequest(group_id=group_id, generation_id=1, member_id="nobody")
        while client.call(heartbeat, 3).error_code != ErrorCode.UNKNOWN_MEMBER_ID:
            assert time.perf_counter() < end, "there is no coordinator"
            time.sleep(0.1)
            client.call(FindCoordinatorRequest(key=group_id, key_type=0), 3)


def _have_default_interval(client: WireClient, group_id: str) -> None:
    """Compute a group's assignments once a second at most."""
    configs = [
        IncrementalAlterableConfig(
            name=f"{kind}.assignment.interval.ms", value=str(int(_INTERVAL_S * 1000))
        )
        for kind in ("consumer", "share", "streams")
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=group_id, configs=configs
    )
    response = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    _check(response.responses[0])


def _check(response: Any) -> Any:
    assert response.error_code == ErrorCode.NONE, response
    return response


def _send_all(clients: Sequence[WireClient], lanes: Sequence[Sequence[bytes]]) -> None:
    """Send what each connection is to send, some at a time on all of them."""
    for start in range(0, max(map(len, lanes)), _WINDOW):
        windows = [lane[start : start + _WINDOW] for lane in lanes]
        for client, window in zip(clients, windows, strict=False):
            client.socket.sendall(b"".join(window))
        for client, window in zip(clients, windows, strict=False):
            for _ in window:
                client.receive_frame()


def _group(
    protocol: str, group_id: str, topic: str, size: int, clients: list[WireClient]
) -> BenchGroup:
    if protocol == "classic":
        return ClassicBenchGroup(group_id, size, clients)
    member_type = StreamsBenchMember if protocol == "streams" else HeartbeatBenchMember
    members = [member_type(protocol, group_id, topic) for _ in range(size)]
    partitions = LARGE if topic == _LARGE_TOPIC else MEMBERS
    return HeartbeatBenchGroup(members, clients[:_CONNECTIONS], partitions)


# --- groups of the new protocols: a member's heartbeat is all there is ---


@dataclass
class HeartbeatBenchMember:
    """A member of a consumer group or of a share group."""

    protocol: str
    group_id: str
    topic: str
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    assigned: dict[Any, list[int]] = field(default_factory=dict)  # by topic id or subtopology
    is_to_confirm: bool = True  # what it owns is sent with the next heartbeat
    version: ClassVar[int] = 1

    def request(self) -> Any:
        """The next heartbeat."""
        is_first = self.epoch <= 0
        names = [self.topic] if is_first else None
        if self.protocol == "share":
            return ShareGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.epoch,
                subscribed_topic_names=names,
            )
        owned = [
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in self.assigned.items()
        ]
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=300_000 if is_first else -1,
            subscribed_topic_names=names,
            topic_partitions=owned if self.is_to_confirm else None,
        )

    def on_response(self, response: Any) -> bool:
        """Take over what the coordinator says; whether that is news."""
        is_news = response.member_epoch != self.epoch or response.assignment is not None
        self.epoch = response.member_epoch
        self.is_to_confirm = response.assignment is not None
        if response.assignment is not None:
            self.assigned = {
                one.topic_id: list(one.partitions) for one in response.assignment.topic_partitions
            }
        return is_news

    def leave_request(self) -> Any:
        """The last heartbeat."""
        self.epoch, self.is_to_confirm = -1, False
        request = self.request()
        if self.protocol != "streams":
            request.subscribed_topic_names = None
        return request


class StreamsBenchMember(HeartbeatBenchMember):
    """A member of a streams group of one subtopology, which reads the topic and keeps no state."""

    version: ClassVar[int] = 0

    def request(self) -> Any:
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if self.epoch == 0:
            subtopology = StreamsGroupHeartbeatRequestSubtopology(
                subtopology_id="0", source_topics=[self.topic]
            )
            request.topology = StreamsGroupHeartbeatRequestTopology(subtopologies=[subtopology])
            request.rebalance_timeout_ms = 300_000
            request.process_id = self.member_id
            request.client_tags = []
        if self.is_to_confirm:
            request.active_tasks = [
                StreamsGroupHeartbeatRequestTaskIds(subtopology_id=one, partitions=partitions)
                for one, partitions in self.assigned.items()
            ]
            request.standby_tasks = request.warmup_tasks = []
        return request

    def on_response(self, response: Any) -> bool:
        is_news = response.member_epoch != self.epoch or response.active_tasks is not None
        self.epoch = response.member_epoch
        self.is_to_confirm = response.active_tasks is not None
        if response.active_tasks is not None:
            self.assigned = {
                one.subtopology_id: list(one.partitions) for one in response.active_tasks
            }
        return is_news


class HeartbeatBenchGroup:
    """A group whose members heartbeat in turns until nothing changes any more."""

    def __init__(
        self,
        members: list[HeartbeatBenchMember],
        clients: Sequence[WireClient],
        partitions: int = 0,
    ) -> None:
        self.members = members
        self._partitions = partitions
        self._clients = clients

    def settle(self) -> None:
        end = time.perf_counter() + _DEADLINE_S
        while self.lap() or not self.is_settled():
            assert time.perf_counter() < end, "the group does not settle"

    def is_settled(self) -> bool:
        """Whether all is assigned, and everybody has its part: targets are computed later."""
        epochs = {member.epoch for member in self.members}
        counts = [sum(map(len, member.assigned.values())) for member in self.members]
        least = self._partitions // len(self.members)
        return len(epochs) == 1 and sum(counts) >= self._partitions and min(counts) >= least

    def lap(self) -> bool:
        """A heartbeat of every member, some at a time; whether there was any news."""
        is_news = False
        step = len(self._clients) * _WINDOW
        for start in range(0, len(self.members), step):
            some = self.members[start : start + step]
            for number, member in enumerate(some):
                self._clients[number % len(self._clients)].send(member.request(), member.version)
            answers = [self._clients[n % len(self._clients)].receive() for n in range(len(some))]
            for member, answer in zip(some, answers, strict=True):
                is_news |= member.on_response(_check(answer))
        return is_news

    def add_member(self) -> None:
        first = self.members[0]
        self.members.append(type(first)(first.protocol, first.group_id, first.topic))

    def remove_member(self) -> None:
        member = self.members.pop()
        _check(self._clients[0].call(member.leave_request(), member.version))

    def heartbeats(self) -> list[bytes]:
        return [frame_of(member.request(), member.version)[0] for member in self.members]


# --- groups of the classic protocol: a member that joins waits for the others ---


class ClassicBenchGroup:
    """A group whose members join on a connection each, since a join waits."""

    def __init__(self, group_id: str, size: int, clients: list[WireClient]) -> None:
        self._group_id = group_id
        self._member_ids = [""] * size
        self._clients = clients
        self._generation = 0

    def settle(self) -> None:
        joined = self._join()
        leader_id = joined[0].leader
        assignments = [
            SyncGroupRequestAssignment(member_id=one.member_id, assignment=bytes(16))
            for one in joined
        ]
        for client, response in zip(self._clients, joined, strict=False):
            request = SyncGroupRequest(
                group_id=self._group_id,
                generation_id=response.generation_id,
                member_id=response.member_id,
                assignments=assignments if response.member_id == leader_id else [],
            )
            client.send(request, 3)
        for client in self._clients[: len(joined)]:
            _check(client.receive())
        self._generation = joined[0].generation_id

    def _join(self) -> list[Any]:
        """Join until all are of one generation."""
        size = len(self._member_ids)
        answers: list[Any] = [None] * size
        self._send_joins(range(size))
        waiting = set(range(size))
        with selectors.DefaultSelector() as selector:
            for number in waiting:
                selector.register(self._clients[number].socket, selectors.EVENT_READ, number)
            while True:
                for key, _ in selector.select(_PATIENCE_S if len(waiting) < size else None):
                    answers[key.data] = _check(self._clients[key.data].receive())
                    self._member_ids[key.data] = answers[key.data].member_id
                    waiting.discard(key.data)
                    is_quiet = False
                    break
                else:
                    is_quiet = True
                if not waiting:
                    newest = max(one.generation_id for one in answers)
                    late = [n for n in range(size) if answers[n].generation_id < newest]
                    if not late:
                        return answers
                elif is_quiet:
                    late = [number for number in range(size) if number not in waiting]
                else:
                    continue
                self._send_joins(late)
                waiting.update(late)

    def _send_joins(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            request = JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=300_000,
                rebalance_timeout_ms=300_000,
                member_id=self._member_ids[number],
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(16))],
            )
            self._clients[number].send(request, 3)

    def add_member(self) -> None:
        self._member_ids.append("")

    def remove_member(self) -> None:
        member = MemberIdentity(member_id=self._member_ids.pop())
        request = LeaveGroupRequest(group_id=self._group_id, members=[member])
        _check(self._clients[0].call(request, 3))

    def heartbeats(self) -> list[bytes]:
        requests = [
            HeartbeatRequest(
                group_id=self._group_id, generation_id=self._generation, member_id=member_id
            )
            for member_id in self._member_ids
        ]
        return [frame_of(request, 3)[0] for request in requests]
