"""Runs the commands of traces/*.txt: one request each to a consumer group in a known state.

A command is a state and a request. The state is made again for each of them, so that the order of
commands does not matter:

    Absent      the group does not exist
    One         m1 has all four partitions of t
    Two         m2 has joined, and m1 has not heard of it
    Revoking    Two, and m1 was told to give up partitions
    Settled     m1 and m2 have two partitions each
    Static      s1 has all partitions, with the instance id i1; StaticLeft: it is to come back
    Emptied     One, and m1 has left
    Mixed       One, and the classic member c1 has joined
    Classic     a stable classic group of c1; ClassicEmpty: without it; Connect: of another type

The request names who sends it, and the epoch in relation to the one that the member was told:
`current`, `previous`, `next`, or a number (0 joins, -1 and -2 leave):

    beat MEMBER EPOCH [v0] [topics=t,u] [regex=...] [assignor=...] [instance=...] [timeout=...]
        [owned=0,1|none] [rack=...]          ConsumerGroupHeartbeat
    commit VERSION MEMBER EPOCH PARTITION   OffsetCommit
    fetch MEMBER EPOCH                      OffsetFetch
    join MEMBER|new [instance=...] [protocol=...] [type=...] [v3]    JoinGroup
    sync MEMBER EPOCH, heart MEMBER EPOCH   SyncGroup, Heartbeat
    part MEMBER [instance=...]              LeaveGroup
    describe, delete, remove                ConsumerGroupDescribe, DeleteGroups, OffsetDelete

The trace is what the answer says, and then the group: its state, epochs, and what each member has
(and is to have). Names that are made (of groups, members, topics) are replaced.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import count
from typing import Any

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.classic import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from kraftrio.wire.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

Words = dict[str, str]


class ConsumerScript(ABC):
    """A coordinator, and the group of the command at hand.

    Attributes:
        topics: the real names of `t` (four partitions) and `u` (one).
        topic_ids: their ids.
    """

    topics: dict[str, str]
    topic_ids: dict[str, bytes]

    def __init__(self) -> None:
        self._numbers = count(1)
        self._group = ""
        self._epochs: dict[str, int] = {}
        self._ids: dict[str, str] = {}

    @abstractmethod
    def ask(self, request: Any, version: int) -> Any:
        """Send a request; its response."""

    def new_group(self) -> str:
        """A group id that was not used before."""
        return f"group-{next(self._numbers)}"

    def run(self, command: str) -> Iterator[str]:
        """Run a command; yield its trace."""
        state, name, *words = command.split()
        self._group, self._epochs, self._ids = self.new_group(), {}, {}
        getattr(self, f"_make_{state.lower()}")()
        yield self._plain(getattr(self, f"_{name}")(*words))
        yield f"-> {self._plain(self._described())}"

    def _plain(self, text: str) -> str:
        for made, name in [(self._group, "GROUP"), *((i, n) for n, i in self._ids.items())]:
            text = text.replace(made, name)
        for name, made in self.topics.items():
            text = text.replace(made, name)
        return text

    # --- states ---

    def _make_absent(self) -> None:
        self._epochs.clear()

    def _make_one(self) -> None:
        self._join_all("m1")

    def _make_two(self) -> None:
        self._join_all("m1", "m2")

    def _make_revoking(self) -> None:
        self._make_two()
        self._beat("m1", "current")

    def _make_settled(self) -> None:
        self._make_revoking()
        self._beat("m1", "current", "owned=0,1")
        self._beat("m2", "current")

    def _make_static(self) -> None:
        self._beat("s1", "0", "instance=i1")

    def _make_staticleft(self) -> None:
        self._make_static()
        self._beat("s1", "-2", "instance=i1")

    def _make_emptied(self) -> None:
        self._make_one()
        self._beat("m1", "-1")

    def _make_mixed(self) -> None:
        self._make_one()
        self._join("c1")

    def _make_classic(self) -> None:
        self._join("c1")
        topic = AssignmentTopicPartition(topic=self.topics["t"], partitions=[0, 1, 2, 3])
        assignment = encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[topic]))
        self._sync("c1", "current", assignment)

    def _make_classicempty(self) -> None:
        self._make_classic()
        self._part("c1")

    def _make_connect(self) -> None:
        self._join("c1", "type=connect")
        self._sync("c1", "current", b"", "connect")

    def _join_all(self, *members: str) -> None:
        for member in members:
            self._beat(member, "0")

    # --- requests ---

    def _epoch(self, member: str, epoch: str) -> int:
        steps = {"current": 0, "previous": -1, "next": 1}
        if epoch in steps:
            return self._epochs.get(member, 5) + steps[epoch]
        return int(epoch)

    def _beat(self, member: str, epoch: str, *words: str) -> str:
        given = dict(word.partition("=")[::2] for word in words)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._ids.get(member, "" if member == "nobody" else member),
            member_epoch=self._epoch(member, epoch),
        )
        if request.member_epoch == 0:
            given = {"topics": "t", "timeout": "60000", "owned": "none"} | given
            if "regex" in given and given["topics"] == "t":
                del given["topics"]
        self._fill(request, {name: value for name, value in given.items() if value != "-"})
        answer = self.ask(request, 0 if "v0" in given else 1)
        if answer.error_code != ErrorCode.NONE:
            return f"{ErrorCode(answer.error_code).name} {answer.error_message}"
        if answer.member_id not in (member, ""):
            self._ids[member] = answer.member_id
        self._epochs[member] = answer.member_epoch
        assigned = ""
        if answer.assignment is not None:
            assigned = f" assignment={self._named(answer.assignment.topic_partitions)}"
        return f"NONE {answer.member_id} epoch={answer.member_epoch}{assigned}"

    def _fill(self, request: ConsumerGroupHeartbeatRequest, given: Words) -> None:
        request.instance_id = given.get("instance")
        request.rack_id = given.get("rack")
        request.server_assignor = given.get("assignor")
        request.subscribed_topic_regex = given.get("regex")
        request.rebalance_timeout_ms = int(given.get("timeout", -1))
        if "topics" in given:
            names = [name for name in given["topics"].split(",") if name]
            request.subscribed_topic_names = [self.topics.get(name, name) for name in names]
        if "owned" in given:
            request.topic_partitions = []
            if given["owned"] != "none":
                partitions = [int(index) for index in given["owned"].split(",")]
                request.topic_partitions = [
                    ConsumerGroupHeartbeatTopicPartitions(
                        topic_id=self.topic_ids["t"], partitions=partitions
                    )
                ]

    def _named(self, topic_partitions: Any) -> str:
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        parts = sorted(
            f"{names[one.topic_id]}-{index}" for one in topic_partitions for index in one.partitions
        )
        return f"[{' '.join(parts)}]"

    def _commit(self, version: str, member: str, epoch: str, partition: str) -> str:
        offset = OffsetCommitRequestPartition(partition_index=int(partition), committed_offset=7)
        topic = OffsetCommitRequestTopic(
            name=self.topics["t"], topic_id=self.topic_ids["t"], partitions=[offset]
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            member_id="" if member == "nobody" else self._ids.get(member, member),
            generation_id_or_member_epoch=self._epoch(member, epoch),
            topics=[topic],
        )
        (answer,) = self.ask(request, int(version)).topics
        return ErrorCode(answer.partitions[0].error_code).name

    def _fetch(self, member: str, epoch: str) -> str:
        group = OffsetFetchRequestGroup(
            group_id=self._group,
            member_id=None if member == "nobody" else self._ids.get(member, member),
            member_epoch=self._epoch(member, epoch),
            topics=[OffsetFetchRequestTopics(name=self.topics["t"], partition_indexes=[0])],
        )
        (answer,) = self.ask(OffsetFetchRequest(groups=[group]), 9).groups
        return ErrorCode(answer.error_code).name

    def _join(self, member: str, *words: str) -> str:
        given = dict(word.partition("=")[::2] for word in words)
        version = 3 if "v3" in given else 9
        request = JoinGroupRequest(
            group_id=self._group,
            member_id=self._ids.get(member, ""),
            group_instance_id=given.get("instance"),
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            protocol_type=given.get("type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(
                    name=given.get("protocol", "range"),
                    metadata=encode_subscription(
                        ConsumerProtocolSubscription(topics=[self.topics["t"]])
                    ),
                )
            ],
        )
        answer = self.ask(request, version)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED and member != "new":
            self._ids[member] = answer.member_id
            return self._join(member, *words)
        if answer.member_id:
            self._ids[member] = answer.member_id
        if answer.error_code != ErrorCode.NONE:
            return ErrorCode(answer.error_code).name
        self._epochs[member] = answer.generation_id
        leads = " leads" if answer.leader == answer.member_id else ""
        return f"NONE generation={answer.generation_id} {answer.protocol_name}{leads}"

    def _sync(
        self, member: str, epoch: str, assignment: bytes = b"", protocol_type: str = "consumer"
    ) -> str:
        member_id = self._ids.get(member, member)
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._epoch(member, epoch),
            member_id=member_id,
            protocol_type=protocol_type,
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)],
        )
        answer = self.ask(request, 5)
        return f"{ErrorCode(answer.error_code).name} {len(answer.assignment)} bytes"

    def _heart(self, member: str, epoch: str) -> str:
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self._epoch(member, epoch),
            member_id=self._ids.get(member, member),
        )
        return ErrorCode(self.ask(request, 4).error_code).name

    def _part(self, member: str, *words: str) -> str:
        given = dict(word.partition("=")[::2] for word in words)
        identity = MemberIdentity(
            member_id="" if member == "nobody" else self._ids.get(member, member),
            group_instance_id=given.get("instance"),
        )
        answer = self.ask(LeaveGroupRequest(group_id=self._group, members=[identity]), 5)
        codes = [answer.error_code, *(one.error_code for one in answer.members)]
        return " ".join(ErrorCode(code).name for code in codes)

    def _describe(self) -> str:
        (group,) = self.ask(ConsumerGroupDescribeRequest(group_ids=[self._group]), 1).groups
        return f"{ErrorCode(group.error_code).name} {group.error_message}"

    def _delete(self) -> str:
        (one,) = self.ask(DeleteGroupsRequest(groups_names=[self._group]), 2).results
        return ErrorCode(one.error_code).name

    def _remove(self) -> str:
        partition = OffsetDeleteRequestPartition(partition_index=0)
        topic = OffsetDeleteRequestTopic(name=self.topics["t"], partitions=[partition])
        answer = self.ask(OffsetDeleteRequest(group_id=self._group, topics=[topic]), 0)
        codes = [answer.error_code]
        codes += [one.error_code for topic in answer.topics for one in topic.partitions]
        return " ".join(ErrorCode(code).name for code in codes)

    # --- what came of it ---

    def _described(self) -> str:
        (group,) = self.ask(ConsumerGroupDescribeRequest(group_ids=[self._group]), 1).groups
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            (classic,) = self.ask(DescribeGroupsRequest(groups=[self._group]), 6).groups
            if classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return "absent"
            members = sorted(member.member_id for member in classic.members)
            return f"classic {classic.group_state} {' '.join(members)}".rstrip()
        members = [
            f"{member.member_id}@{member.member_epoch}"
            f"{self._named(member.assignment.topic_partitions)}"
            f"{self._named(member.target_assignment.topic_partitions)}"
            for member in sorted(group.members, key=lambda one: self._plain(one.member_id))
        ]
        epochs = f"{group.group_epoch}/{group.assignment_epoch}"
        return " ".join([group.group_state, epochs, group.assignor_name, *members])
