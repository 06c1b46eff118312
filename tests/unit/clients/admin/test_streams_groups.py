"""The admin client on streams groups: how they are described."""

from __future__ import annotations

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import StreamsSubtopology, StreamsTasks
from kraftrio.clients.errors import GroupIdNotFoundError
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupDescribeAssignment,
    StreamsGroupDescribeDescribedGroup,
    StreamsGroupDescribeEndpoint,
    StreamsGroupDescribeKeyValue,
    StreamsGroupDescribeMember,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupDescribeSubtopology,
    StreamsGroupDescribeTaskIds,
    StreamsGroupDescribeTopicInfo,
    StreamsGroupDescribeTopology,
)
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import FakeNode, fake_cluster


def described_group() -> StreamsGroupDescribeDescribedGroup:
    tasks = StreamsGroupDescribeAssignment(
        active_tasks=[StreamsGroupDescribeTaskIds(subtopology_id="0", partitions=[0, 1])],
        standby_tasks=[StreamsGroupDescribeTaskIds(subtopology_id="1", partitions=[2])],
    )
    member = StreamsGroupDescribeMember(
        member_id="m",
        member_epoch=2,
        client_id="c",
        client_host="/h",
        topology_epoch=1,
        process_id="p",
        user_endpoint=StreamsGroupDescribeEndpoint(host="host", port=80),
        client_tags=[StreamsGroupDescribeKeyValue(key="zone", value="a")],
        assignment=tasks,
    )
    subtopology = StreamsGroupDescribeSubtopology(
        subtopology_id="0",
        source_topics=["in"],
        repartition_sink_topics=["r"],
        state_changelog_topics=[StreamsGroupDescribeTopicInfo(name="log")],
        repartition_source_topics=[StreamsGroupDescribeTopicInfo(name="s")],
    )
    return StreamsGroupDescribeDescribedGroup(
        group_id="g",
        group_state="Stable",
        group_epoch=2,
        assignment_epoch=2,
        topology=StreamsGroupDescribeTopology(epoch=1, subtopologies=[subtopology]),
        members=[member],
    )


async def test_described() -> None:
    """Topology, members and their tasks; groups of other kinds count as unknown."""

    def answer(
        node: FakeNode, request: StreamsGroupDescribeRequest
    ) -> StreamsGroupDescribeResponse:
        unknown = StreamsGroupDescribeDescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        group = described_group() if request.group_ids == ["g"] else unknown
        return StreamsGroupDescribeResponse(groups=[group])

    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.STREAMS_GROUP_DESCRIBE, answer)
        described = await admin.streams_groups.describe(["g", "other"], raise_errors=False)
    assert isinstance(described.errors["other"], GroupIdNotFoundError)
    group = described["g"]
    assert (group.state, group.coordinator, group.group_epoch) == ("Stable", 1, 2)
    assert group.topology_epoch == 1
    assert group.subtopologies == (StreamsSubtopology("0", ("in",), ("r",), ("log",), ("s",)),)
    [member] = group.members
    assert (member.member_id, member.process_id, member.topology_epoch) == ("m", "p", 1)
    assert (member.user_endpoint, member.client_tags) == (("host", 80), {"zone": "a"})
    assert member.assignment == StreamsTasks({"0": (0, 1)}, {"1": (2,)}, {})
    assert member.target_assignment == StreamsTasks({}, {}, {})


async def test_a_group_without_a_topology() -> None:
    """No member has sent one yet."""
    group = described_group()
    group.topology = None
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(
            ApiKey.STREAMS_GROUP_DESCRIBE,
            lambda node, request: StreamsGroupDescribeResponse(groups=[group]),
        )
        described = (await admin.streams_groups.describe(["g"]))["g"]
    assert (described.topology_epoch, described.subtopologies) == (None, ())
