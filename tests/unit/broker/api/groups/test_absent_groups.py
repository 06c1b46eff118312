"""Groups of the kinds that are not served: looked up, and refused."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraftrio.wire.messages.streams_groups import StreamsGroupDescribeRequest
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn, ask

COMMIT = OffsetCommitRequest(
    group_id="group",
    topics=[
        OffsetCommitRequestTopic(
            name="topic",
            partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
        )
    ],
)


@pytest.mark.parametrize(
    ("kind", "request_type", "version"),
    [
        ("streams", StreamsGroupDescribeRequest, 0),
    ],
)
def test_no_group_is_of_another_kind(kind: str, request_type: type[Any], version: int) -> None:
    """Tools that look for such groups first are sent on with 69, in the order they asked."""
    broker = BrokerStandIn()
    broker.metadata.add_topic("topic", b"t" * 16, 1)
    ask(broker, COMMIT, 8)
    request = request_type(group_ids=["group", "", "ghost"], include_authorized_operations=True)
    group, nameless, ghost = ask(broker, request, version).groups
    assert [one.group_id for one in (group, nameless, ghost)] == ["group", "", "ghost"]
    assert group.error_code == ghost.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.error_message == f"Group group is not a {kind} group."
    assert ghost.error_message == "Group ghost not found."
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
    assert group.authorized_operations == -(2**31)
    elsewhere = ask(BrokerStandIn(lead=False), request, version).groups[0]
    assert elsewhere.error_code == ErrorCode.NOT_COORDINATOR
