"""Runs the commands of traces/*.txt: heartbeats of members of one streams group after the other.

    group [NAME=VALUE ...]         begin a new group, with settings of its own; delays are 0 else
    set NAME=VALUE                 change a setting of the group
    topic NAME PARTITIONS          make a topic; in traces its name stands without the group's
    grow NAME PARTITIONS           add partitions to one
    join MEMBER TOPOLOGY [OPTION ...]
    beat MEMBER [OPTION ...]       a heartbeat in the member's epoch, with nothing new
    leave MEMBER [OPTION ...]
    settle                         wait until all internal topics are made that are missing
    describe
    records                        what was written about the group since the last time

Topologies are those of `_TOPOLOGIES`; `NAME@1` is one of topology epoch 1. Options of heartbeats:

    epoch=N, epoch=+N, epoch=-N    another member epoch, or relative to the member's
    owns=all, owns=none, owns=ROLES    tasks that the member has: `0:0,1/1:2` are active tasks,
                                   standby ones follow after a semicolon
    process=ID, rack=ID, instance=ID, endpoint=HOST:PORT, tag=KEY:VALUE, timeout=MS
    seen=N                         the endpoint epoch that the member has seen; else the last one
    shutdown, offsets, warmup, pattern, changelog=N, without=FIELD

The trace of a heartbeat: the code with its message; the member's epoch; assigned tasks, if the
response has them; the endpoint epoch, and what is at each endpoint; each status. Of records hashes
of topics stand as h1, h2 and so on, in the order in which they come.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.keys import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
    decode_key,
)
from kraftrio.wire.messages.group_records.streams import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyValue,
)
from kraftrio.wire.messages.group_records.values import decode_value, encode_value
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestCopartitionGroup,
    StreamsGroupHeartbeatRequestEndpoint,
    StreamsGroupHeartbeatRequestKeyValue,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTaskIds,
    StreamsGroupHeartbeatRequestTaskOffset,
    StreamsGroupHeartbeatRequestTopicInfo,
    StreamsGroupHeartbeatRequestTopology,
)

DELAYS = ("streams.initial.rebalance.delay.ms", "streams.assignment.interval.ms")

_Tasks = dict[str, list[int]]


class _Member:
    """What a member remembers between heartbeats."""

    def __init__(self) -> None:
        self.epoch = 0
        self.endpoint_epoch = -1
        self.tasks: list[_Tasks] = [{}, {}, {}]


class StreamsScript(ABC):
    """A coordinator, and the group of the commands at hand."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.group_id = ""
        self._members: dict[str, _Member] = {}
        self._shown = 0
        self._hashes: dict[int, str] = {0: "0"}

    @abstractmethod
    def ask(self, request: Any) -> Any:
        """Send a request in version 0; its response."""

    @abstractmethod
    def configure(self, settings: dict[str, str]) -> None:
        """Set settings of the group."""

    @abstractmethod
    def make_topic(self, name: str, partitions: int) -> None: ...

    @abstractmethod
    def grow_topic(self, name: str, partitions: int) -> None: ...

    @abstractmethod
    def settle(self) -> Iterable[str]:
        """Wait until the missing internal topics exist; say which there are now."""

    @abstractmethod
    def read_records(self) -> list[tuple[bytes, bytes | None]]:
        """The keys and values of everything that was written about groups, in order."""

    def new_group_id(self) -> str:
        """The id of a group that there was not before."""
        return f"streams-{next(self._numbers)}"

    def run(self, command: str) -> Iterator[str]:
        """Run a command; yield its trace."""
        name, *words = command.split()
        send: Callable[..., Iterable[str]] = getattr(self, f"_{name}")
        for line in send(*words):
            yield line.replace(f"{self.group_id}-", "").replace(self.group_id, "GROUP")

    def _group(self, *words: str) -> Iterable[str]:
        self.group_id = self.new_group_id()
        self._members = {}
        self._shown = 0
        self._hashes = {0: "0"}
        self.configure({**dict.fromkeys(DELAYS, "0"), **dict(word.split("=") for word in words)})
        return ()

    def _set(self, word: str) -> Iterable[str]:
        self.configure(dict([word.split("=")]))
        return ()

    def _topic(self, name: str, partitions: str) -> Iterable[str]:
        self.make_topic(f"{self.group_id}-{name}", int(partitions))
        return ()

    def _grow(self, name: str, partitions: str) -> Iterable[str]:
        self.grow_topic(f"{self.group_id}-{name}", int(partitions))
        return ()

    def _settle(self) -> Iterable[str]:
        return sorted(self.settle())

    # --- heartbeats ---

    def _join(self, name: str, topology: str, *words: str) -> Iterable[str]:
        member = self._members[name] = self._members.get(name) or _Member()
        member.epoch = 0
        kind, _, epoch = topology.partition("@")
        request = self._request(name, member)
        request.rebalance_timeout_ms = 60_000
        request.topology = self._topology_of(kind, int(epoch or 0))
        request.process_id = f"process-{name}"
        request.client_tags = []
        request.active_tasks, request.standby_tasks, request.warmup_tasks = [], [], []
        return self._send(member, request, words)

    def _beat(self, name: str, *words: str) -> Iterable[str]:
        member = self._members.setdefault(name, _Member())
        return self._send(member, self._request(name, member), words)

    def _leave(self, name: str, *words: str) -> Iterable[str]:
        member = self._members.setdefault(name, _Member())
        request = self._request(name, member)
        request.member_epoch = -1
        return self._send(member, request, words)

    def _request(self, name: str, member: _Member) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=name,
            member_epoch=member.epoch,
            endpoint_information_epoch=member.endpoint_epoch,
        )

    def _send(
        self, member: _Member, request: StreamsGroupHeartbeatRequest, words: Iterable[str]
    ) -> Iterable[str]:
        for word in words:
            name, _, value = word.partition("=")
            _apply(request, member, name, value)
        response = self.ask(request)
        yield _headline(response)
        if response.error_code is not ErrorCode.NONE:
            return
        member.epoch = response.member_epoch
        if request.member_epoch >= 0:
            member.endpoint_epoch = response.endpoint_information_epoch
        roles = (response.active_tasks, response.standby_tasks, response.warmup_tasks)
        if response.active_tasks is not None:
            member.tasks = [{one.subtopology_id: one.partitions for one in role} for role in roles]
        for endpoint in sorted(
            response.partitions_by_user_endpoint or (), key=lambda one: one.user_endpoint.port
        ):
            yield (
                f"{endpoint.user_endpoint.host}:{endpoint.user_endpoint.port}"
                f" active {_topic_partitions(endpoint.active_partitions)}"
                f" standby {_topic_partitions(endpoint.standby_partitions)}"
            )
        for status in response.status:
            yield f"status {status.status_code}: {status.status_detail}"

    def _topology_of(self, kind: str, epoch: int) -> StreamsGroupHeartbeatRequestTopology:
        return StreamsGroupHeartbeatRequestTopology(
            epoch=epoch,
            subtopologies=[
                self._subtopology(name, **parts) for name, parts in _TOPOLOGIES[kind].items()
            ],
        )

    def _subtopology(
        self,
        name: str,
        reads: str = "",
        writes: str = "",
        repartitioned: str = "",
        keeps: str = "",
        together: str = "",
    ) -> StreamsGroupHeartbeatRequestSubtopology:
        external, internal = reads.split(), repartitioned.split()
        names = [topic.partition(":")[0] for topic in internal]
        groups = [group.split("+") for group in together.split()]
        return StreamsGroupHeartbeatRequestSubtopology(
            subtopology_id=name,
            source_topics=[self._named(topic) for topic in external],
            repartition_sink_topics=[self._named(topic) for topic in writes.split()],
            repartition_source_topics=[self._info(topic) for topic in internal],
            state_changelog_topics=[self._info(topic) for topic in keeps.split()],
            copartition_groups=[
                StreamsGroupHeartbeatRequestCopartitionGroup(
                    source_topics=[external.index(one) for one in group if one in external],
                    repartition_source_topics=[names.index(one) for one in group if one in names],
                )
                for group in groups
            ],
        )

    def _named(self, topic: str) -> str:
        return topic if topic.startswith("__") else f"{self.group_id}-{topic}"

    def _info(self, text: str) -> StreamsGroupHeartbeatRequestTopicInfo:
        name, _, partitions = text.partition(":")
        return StreamsGroupHeartbeatRequestTopicInfo(
            name=self._named(name),
            partitions=int(partitions or 0),
            topic_configs=[
                StreamsGroupHeartbeatRequestKeyValue(key="cleanup.policy", value="compact")
            ],
        )

    # --- records ---

    def _records(self) -> Iterable[str]:
        of_group = [
            (key, value)
            for encoded, value in self.read_records()
            if getattr(key := decode_key(encoded), "group_id", None) == self.group_id
        ]
        for key, value in of_group[self._shown :]:
            name = type(key).__name__.removeprefix("StreamsGroup").removesuffix("Key")
            member = f" {key.member_id}" if hasattr(key, "member_id") else ""
            yield f"{name}{member}: {self._value_text(type(key), value)}"
        self._shown = len(of_group)

    def _value_text(self, key_class: type, value: bytes | None) -> str:
        if value is None:
            return "tombstone"
        read = decode_value(_VALUES[key_class], value)
        assert encode_value(read) == value
        if isinstance(read, StreamsGroupMetadataValue):
            label = self._hashes.setdefault(read.metadata_hash, f"h{len(self._hashes)}")
            return repr(read).replace(f"metadata_hash={read.metadata_hash}", f"hash={label}")
        if isinstance(read, StreamsGroupTargetAssignmentMetadataValue):
            assert read.assignment_timestamp > 1_600_000_000_000
            return f"epoch={read.assignment_epoch}"
        return repr(read).replace("StreamsGroup", "")

    # --- descriptions ---

    def _describe(self) -> Iterable[str]:
        (group,) = self.ask(StreamsGroupDescribeRequest(group_ids=[self.group_id])).groups
        if group.error_code is not ErrorCode.NONE:
            yield f"{group.error_code.name}: {group.error_message}"
            return
        yield (
            f"{group.group_state} epoch {group.group_epoch}"
            f" assignment epoch {group.assignment_epoch} topology epoch {group.topology.epoch}"
        )
        for subtopology in group.topology.subtopologies:
            yield (
                f"subtopology {subtopology.subtopology_id}"
                f" reads {' '.join(subtopology.source_topics) or '-'}"
                f" repartitioned {_infos(subtopology.repartition_source_topics)}"
                f" writes {' '.join(subtopology.repartition_sink_topics) or '-'}"
                f" keeps {_infos(subtopology.state_changelog_topics)}"
            )
        for member in sorted(group.members, key=lambda member: str(member.member_id)):
            endpoint = member.user_endpoint
            yield (
                f"{member.member_id} epoch {member.member_epoch} process {member.process_id}"
                f" topology epoch {member.topology_epoch} rack {member.rack_id}"
                f" endpoint {f'{endpoint.host}:{endpoint.port}' if endpoint else '-'}"
                f" tags {' '.join(f'{tag.key}:{tag.value}' for tag in member.client_tags) or '-'}"
            )
            for title, tasks in (("has", member.assignment), ("gets", member.target_assignment)):
                yield f"    {title} {_roles(tasks.active_tasks, tasks.standby_tasks)}"


_TOPOLOGIES: dict[str, dict[str, dict[str, str]]] = {
    "empty": {},
    "stateless": {"0": {"reads": "in"}},
    "stateful": {"0": {"reads": "in", "keeps": "store"}},
    "counting": {
        "0": {"reads": "in", "writes": "repartition"},
        "1": {"repartitioned": "repartition", "keeps": "changelog"},
    },
    "joining": {"0": {"reads": "in other", "keeps": "store", "together": "in+other"}},
    "rekeyed": {
        "0": {"reads": "in", "writes": "rekeyed"},
        "1": {"reads": "other", "repartitioned": "rekeyed", "together": "other+rekeyed"},
    },
    "fixed": {
        "0": {"reads": "in", "writes": "three"},
        "1": {"reads": "other", "repartitioned": "three:3", "together": "other+three"},
    },
    "unequal": {
        "0": {"reads": "in", "writes": "three four"},
        "1": {"repartitioned": "three:3 four:4", "together": "three+four"},
    },
    "flexible": {
        "0": {"reads": "in", "writes": "a"},
        "1": {"reads": "other", "writes": "b"},
        "2": {"repartitioned": "a b", "together": "a+b", "keeps": "store"},
    },
    "looping": {
        "0": {"repartitioned": "a", "writes": "b"},
        "1": {"repartitioned": "b", "writes": "a"},
    },
    "unwritten": {"0": {"reads": "in", "repartitioned": "a"}},
    "sourceless": {"0": {"writes": "a"}, "1": {"reads": "in"}},
    "storing": {"0": {"reads": "in", "keeps": "s1 s2 s3 s4 s5"}},
    "internal": {"0": {"reads": "__consumer_offsets"}},
    "two": {"0": {"reads": "in"}, "1": {"reads": "other", "keeps": "store"}},
}


_VALUES: dict[type, type[Any]] = {
    StreamsGroupMetadataKey: StreamsGroupMetadataValue,
    StreamsGroupMemberMetadataKey: StreamsGroupMemberMetadataValue,
    StreamsGroupTargetAssignmentMetadataKey: StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTargetAssignmentMemberKey: StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupCurrentMemberAssignmentKey: StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupTopologyKey: StreamsGroupTopologyValue,
}


def _apply(request: StreamsGroupHeartbeatRequest, member: _Member, name: str, value: str) -> None:
    """Change a request by an option."""
    match name:
        case "epoch":
            is_relative = value[0] == "+" or (value[0] == "-" and request.member_epoch >= 0)
            request.member_epoch = int(value) + (member.epoch if is_relative else 0)
        case "owns":
            active, standby, warmup = _owned(value, member)
            request.active_tasks, request.standby_tasks = _ids(active), _ids(standby)
            request.warmup_tasks = _ids(warmup)
        case "process":
            request.process_id = value
        case "rack":
            request.rack_id = value
        case "instance":
            request.instance_id = value
        case "timeout":
            request.rebalance_timeout_ms = int(value)
        case "endpoint":
            host, port = value.split(":")
            request.user_endpoint = StreamsGroupHeartbeatRequestEndpoint(host=host, port=int(port))
        case "tag":
            key, tag = value.split(":")
            request.client_tags = [StreamsGroupHeartbeatRequestKeyValue(key=key, value=tag)]
        case "seen":
            request.endpoint_information_epoch = int(value)
        case "shutdown":
            request.shutdown_application = True
        case "offsets":
            request.task_offsets = [StreamsGroupHeartbeatRequestTaskOffset(subtopology_id="0")]
        case "endoffsets":
            request.task_end_offsets = [StreamsGroupHeartbeatRequestTaskOffset(subtopology_id="0")]
        case "warmup":
            request.warmup_tasks = _ids({"0": [0]})
        case "pattern":
            assert request.topology is not None
            request.topology.subtopologies[0].source_topic_regex = ["a.*"]
        case "changelog":
            assert request.topology is not None
            request.topology.subtopologies[0].state_changelog_topics[0].partitions = int(value)
        case "without":
            setattr(request, value, None)
        case "empty":
            setattr(request, value, " ")
        case _:
            raise ValueError(name)


def _owned(value: str, member: _Member) -> list[_Tasks]:
    if value == "all":
        return member.tasks
    if value == "none":
        return [{}, {}, {}]
    roles: list[_Tasks] = [
        {
            name: [int(one) for one in partitions.split(",")]
            for name, partitions in (part.split(":") for part in role.split("/") if part)
        }
        for role in value.split(";")
    ]
    return roles + [{}] * (3 - len(roles))


def _ids(tasks: _Tasks) -> list[StreamsGroupHeartbeatRequestTaskIds]:
    return [
        StreamsGroupHeartbeatRequestTaskIds(subtopology_id=name, partitions=list(partitions))
        for name, partitions in tasks.items()
    ]


def _headline(response: Any) -> str:
    if response.error_code is not ErrorCode.NONE:
        return f"{response.error_code.name}: {response.error_message}"
    line = f"epoch {response.member_epoch} endpoints {response.endpoint_information_epoch}"
    if response.heartbeat_interval_ms:
        line += f" interval {response.heartbeat_interval_ms}"
    if response.active_tasks is not None:
        line += f" {_roles(response.active_tasks, response.standby_tasks)}"
        assert response.warmup_tasks == []
    return line


def _roles(active: Iterable[Any], standby: Iterable[Any]) -> str:
    return f"active {_task_text(active)} standby {_task_text(standby)}"


def _task_text(tasks: Iterable[Any]) -> str:
    ordered = sorted(tasks, key=lambda one: str(one.subtopology_id))
    return "/".join(f"{one.subtopology_id}:{_numbers(one.partitions)}" for one in ordered) or "-"


def _topic_partitions(topics: Iterable[Any]) -> str:
    ordered = sorted(topics, key=lambda one: str(one.topic))
    return " ".join(f"{one.topic}:{_numbers(one.partitions)}" for one in ordered) or "-"


def _numbers(numbers: Iterable[int]) -> str:
    return ",".join(str(number) for number in sorted(numbers))


def _infos(topics: Iterable[Any]) -> str:
    return " ".join(f"{one.name}:{one.partitions}" for one in topics) or "-"
