"""Requests about streams groups, over the wire's bytes: heartbeats, descriptions, lost topics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraftrio.broker.api.groups.streams_requests import (
    MAX_TASKS,
    MAX_TOPOLOGY_ENTRIES,
    is_long,
    read_in_slices,
)
from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.kraft_meta.metadata.image import STREAMS_VERSION
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestKeyValue,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTaskIds,
    StreamsGroupHeartbeatRequestTopicInfo,
    StreamsGroupHeartbeatRequestTopology,
)
from tests.support.authorizers import Denies
from tests.support.sliced import finish_counting
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn, ask

MISSING = 3


@pytest.fixture
def broker() -> BrokerStandIn:
    """A broker with one topic."""
    broker = BrokerStandIn()
    broker.metadata.set_feature(STREAMS_VERSION, 1)
    broker.metadata.add_topic("in", b"i" * 16, 4)
    return broker


def subtopology(name: str = "0", stores: int = 0, **fields: Any) -> Any:
    """One that reads `in`, with stores."""
    changelogs = [StreamsGroupHeartbeatRequestTopicInfo(name=f"store{n}") for n in range(stores)]
    values: dict[str, Any] = {"source_topics": ["in"], "state_changelog_topics": changelogs}
    return StreamsGroupHeartbeatRequestSubtopology(**values | {"subtopology_id": name} | fields)


def join(*subtopologies: Any, **fields: Any) -> StreamsGroupHeartbeatRequest:
    """The first heartbeat of a member."""
    topology = StreamsGroupHeartbeatRequestTopology(
        subtopologies=list(subtopologies) or [subtopology()]
    )
    values: dict[str, Any] = {"group_id": "group", "member_id": "m", "rebalance_timeout_ms": 60_000}
    tasks: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    return StreamsGroupHeartbeatRequest(
        **values | tasks | {"process_id": "p", "topology": topology} | fields
    )


def test_a_member_joins_and_is_described(broker: BrokerStandIn) -> None:
    """With all tasks; a heartbeat that changes nothing has none."""
    joined = ask(broker, join(), 0)
    assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 2)
    assert [one.partitions for one in joined.active_tasks] == [[0, 1, 2, 3]]
    beat = StreamsGroupHeartbeatRequest(group_id="group", member_id="m", member_epoch=2)
    stayed = ask(broker, beat, 0)
    assert (stayed.error_code, stayed.member_epoch, stayed.active_tasks) == (
        ErrorCode.NONE,
        2,
        None,
    )
    request = StreamsGroupDescribeRequest(
        group_ids=["group", "", "other"], include_authorized_operations=True
    )
    group, nameless, other = ask(broker, request, 0).groups
    assert (group.group_state, len(group.members)) == ("Stable", 1)
    assert group.authorized_operations > 0
    assert nameless.error_code is ErrorCode.INVALID_GROUP_ID
    assert (other.error_code, other.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group other not found.",
    )


def test_refusals(broker: BrokerStandIn) -> None:
    """With Kafka's messages; a broker that is not the coordinator refuses all."""
    refused = ask(broker, join(instance_id="i"), 0)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Static membership is not yet supported.",
    )
    internal = subtopology(source_topics=["__consumer_offsets"])
    refused = ask(broker, join(internal), 0)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
        "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology "
        "is prohibited.",
    )
    refused = ask(broker, join(subtopology(repartition_sink_topics=["a b"])), 0)
    assert refused.error_message == "Topic names a b are not valid topic names."
    elsewhere = BrokerStandIn(lead=False)
    elsewhere.metadata.set_feature(STREAMS_VERSION, 1)
    assert ask(elsewhere, join(), 0).error_code is ErrorCode.NOT_COORDINATOR
    (described,) = ask(elsewhere, StreamsGroupDescribeRequest(group_ids=["group"]), 0).groups
    assert described.error_code is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("is_off", ["feature", "protocols"])
def test_the_protocol_may_be_off(broker: BrokerStandIn, is_off: str) -> None:
    """By the broker's settings, or by the level of the cluster's feature."""
    if is_off == "protocols":
        broker.properties = replace(
            broker.properties, group_coordinator_rebalance_protocols=("classic", "consumer")
        )
    else:
        broker.metadata.set_feature(STREAMS_VERSION, 0)
    broker.start()
    assert ask(broker, join(), 0).error_code is ErrorCode.UNSUPPORTED_VERSION
    (described,) = ask(broker, StreamsGroupDescribeRequest(group_ids=["group"]), 0).groups
    assert described.error_code is ErrorCode.UNSUPPORTED_VERSION


def test_missing_topics_are_made(broker: BrokerStandIn) -> None:
    """And asked for again with each heartbeat, until they are there; failures are reported."""
    joined = ask(broker, join(subtopology(stores=5)), 0)
    (status,) = joined.status
    assert status.status_code == MISSING
    assert status.status_detail.endswith(" and 2 additional topics")
    assert [topic.num_partitions for topic in broker.internal_topics.asked] == [4] * 5
    broker.internal_topics.failures = {f"store{n}": "no room" for n in range(5)}
    beat = StreamsGroupHeartbeatRequest(group_id="group", member_id="m", member_epoch=2)
    (status,) = ask(broker, beat, 0).status
    assert status.status_detail.endswith(
        "; Creation failed: store0 (no room), store1 (no room), store2 (no room) and 2 more."
    )


def test_topics_that_a_client_may_not_see_or_make(broker: BrokerStandIn) -> None:
    """A topology names visible topics; without the right to make topics none is made."""
    topic = Resource(ResourceType.TOPIC, "in")
    denied = Denies(AclOperation.DESCRIBE, topic)
    assert (
        ask(broker, join(), 0, authorizer=denied).error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    no_creation = Denies(AclOperation.CREATE)
    joined = ask(broker, join(subtopology(stores=1)), 0, authorizer=no_creation)
    (status,) = joined.status
    assert status.status_detail.endswith("; Unauthorized to CREATE on topics store0.")
    assert not broker.internal_topics.asked
    (described,) = ask(
        broker, StreamsGroupDescribeRequest(group_ids=["group"]), 0, authorizer=denied
    ).groups
    assert (described.error_code, described.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


def test_requests_that_name_much(broker: BrokerStandIn) -> None:
    """What is large is read in slices; what no application needs is refused, with no effect."""
    large = [subtopology(f"{n}", repartition_sink_topics=["x"]) for n in range(600)]
    assert ask(broker, join(*large), 0).error_code is ErrorCode.NONE
    too_large = subtopology(source_topics=[f"t{n}" for n in range(MAX_TOPOLOGY_ENTRIES)])
    refused = ask(broker, join(too_large, group_id="other"), 0)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        f"The request names more than {MAX_TOPOLOGY_ENTRIES} parts of a topology.",
    )
    tags = [StreamsGroupHeartbeatRequestKeyValue(key=f"{n}", value="") for n in range(2000)]
    refused = ask(broker, join(client_tags=tags, group_id="other"), 0)
    assert refused.error_code is ErrorCode.INVALID_REQUEST
    (described,) = ask(broker, StreamsGroupDescribeRequest(group_ids=["other"]), 0).groups
    assert described.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    ids = [
        StreamsGroupHeartbeatRequestTaskIds(subtopology_id="0", partitions=[0] * count)
        for count in (400, MAX_TASKS)
    ]
    beat = StreamsGroupHeartbeatRequest(
        group_id="group", member_id="m", member_epoch=2, standby_tasks=[], warmup_tasks=[]
    )
    beat.active_tasks = ids[:1]
    assert ask(broker, beat, 0).error_code is ErrorCode.NONE
    beat.active_tasks = ids
    assert ask(broker, beat, 0).error_code is ErrorCode.INVALID_REQUEST


def test_tasks_that_name_no_partition_are_read_in_steps() -> None:
    """Entries are made as they are read, none to see how many there are."""
    made = []

    def make(number: int) -> StreamsGroupHeartbeatRequestTaskIds:
        made.append(number)
        return StreamsGroupHeartbeatRequestTaskIds()

    beat = StreamsGroupHeartbeatRequest(active_tasks=each(make, range(MAX_TASKS)))
    assert is_long(beat)
    assert made == []
    _, pauses = finish_counting(read_in_slices(beat))
    assert pauses > MAX_TASKS
    assert len(beat.active_tasks or ()) == MAX_TASKS
