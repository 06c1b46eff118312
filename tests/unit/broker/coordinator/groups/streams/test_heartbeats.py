"""Heartbeats of streams groups that change nothing: answered at once, as by the whole course.

`StreamsContext.heartbeat` compares both, so that each other test of streams groups does, too.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.coordinator.groups.streams.heartbeats import HeartbeatSender
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestEndpoint,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTopology,
)
from tests.unit.broker.coordinator.groups.streams.streams_context import SENDER, StreamsContext

GROUP = "group"
SOURCE = StreamsGroupHeartbeatRequestSubtopology(subtopology_id="0", source_topics=["in"])
TOPOLOGY = StreamsGroupHeartbeatRequestTopology(subtopologies=[SOURCE])


@pytest.fixture
def context() -> StreamsContext:
    """A shard with a streams group of one member, which is in epoch 2 and reads `in`."""
    context = StreamsContext()
    context.make_topic("in", 2)
    join(context, "m")
    beat(context, "m", 2)  # looks at the topics for the group, which is there only now
    return context


def beat(context: StreamsContext, member_id: str, epoch: int, **fields: Any) -> Any:
    request = StreamsGroupHeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
    )
    response = context.heartbeat(request).response
    assert response.error_code is ErrorCode.NONE, response
    return response


def join(context: StreamsContext, member_id: str, **fields: Any) -> Any:
    return beat(
        context,
        member_id,
        0,
        rebalance_timeout_ms=1000,
        topology=TOPOLOGY,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=member_id,
        **fields,
    )


def is_unchanged(
    context: StreamsContext, epoch: int = 2, sender: HeartbeatSender = SENDER, **fields: Any
) -> bool:
    request = StreamsGroupHeartbeatRequest(
        group_id=GROUP, member_id="m", member_epoch=epoch, **fields
    )
    return context.groups.heartbeat_unchanged(request, sender, context.now) is not None


@pytest.mark.parametrize(
    "news",
    [
        {"epoch": 1},
        {"epoch": 0},
        {"epoch": -1},
        {"sender": HeartbeatSender("another", SENDER.client_host)},
        {"sender": HeartbeatSender(SENDER.client_id, "/10.0.0.1")},
        {"topology": TOPOLOGY},
        {"active_tasks": []},
        {"standby_tasks": []},
        {"warmup_tasks": []},
        {"rack_id": "r"},
        {"rebalance_timeout_ms": 7},
        {"process_id": "p"},
        {"client_tags": []},
        {"user_endpoint": StreamsGroupHeartbeatRequestEndpoint(host="h", port=1)},
        {"shutdown_application": True},
        {"endpoint_information_epoch": 1},
    ],
    ids=str,
)
def test_what_says_something_goes_the_whole_course(
    context: StreamsContext, news: dict[str, Any]
) -> None:
    assert is_unchanged(context)
    assert not is_unchanged(context, **news)


def test_news_of_the_group_go_the_whole_course(context: StreamsContext) -> None:
    """A change of the topics or settings, another member, tasks that are to be given up."""
    context.make_topic("in", 3)
    context.groups.on_topics_changed(["in"], context.now)
    assert not is_unchanged(context)
    assert beat(context, "m", 2).member_epoch == 3
    assert is_unchanged(context, 3)
    context.configure(GROUP, {"streams.num.standby.replicas": "1"})
    assert not is_unchanged(context, 3)
    assert beat(context, "m", 3).member_epoch == 4
    assert is_unchanged(context, 4)
    join(context, "n")
    assert not is_unchanged(context, 4)


def test_a_session_goes_on_with_heartbeats_that_change_nothing(context: StreamsContext) -> None:
    """And ends without them."""
    for _ in range(3):
        context.advance(30_000)
        assert is_unchanged(context)
    context.advance(45_000)
    assert not is_unchanged(context)
    assert not context.group(GROUP).members


def test_a_member_with_a_status_in_each_answer(context: StreamsContext) -> None:
    """That the application is to shut down, say."""
    beat(context, "m", 2, shutdown_application=True)
    assert not is_unchanged(context)
    (status,) = beat(context, "m", 2).status
    assert "requested a shutdown" in status.status_detail
