"""Refusing a whole controller request."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages import admin, configs, quorum


def codes(value: Any) -> list[int]:
    """Return every error code in a response, nested ones included."""
    found: list[int] = []
    if isinstance(value, list):
        for item in value:
            found += codes(item)
    elif hasattr(value, "__slots__"):
        if hasattr(value, "error_code"):
            found.append(value.error_code)
        for name in value.__slots__:
            found += codes(getattr(value, name))
    return found


@pytest.mark.parametrize(
    ("request_", "version", "count"),
    [
        (admin.CreateTopicsRequest(topics=[admin.CreatableTopic(name="a")] * 2), 7, 1),
        (admin.DeleteTopicsRequest(topics=[admin.DeleteTopicState(name="a")]), 6, 1),
        (admin.DeleteTopicsRequest(topic_names=["a", "b"]), 5, 2),
        (
            admin.CreatePartitionsRequest(topics=[admin.CreatePartitionsTopic(name="a")]),
            3,
            1,
        ),
        (
            admin.ElectLeadersRequest(
                topic_partitions=[admin.TopicPartitions(topic="a", partitions=[0, 1])]
            ),
            2,
            3,
        ),
        (admin.ElectLeadersRequest(topic_partitions=None), 2, 1),
        (configs.AlterConfigsRequest(resources=[configs.AlterConfigsResource()]), 2, 1),
        (
            configs.IncrementalAlterConfigsRequest(
                resources=[configs.IncrementalAlterConfigsResource()]
            ),
            1,
            1,
        ),
        (quorum.UpdateFeaturesRequest(), 2, 1),
        (quorum.UnregisterBrokerRequest(), 0, 1),
        (quorum.BrokerRegistrationRequest(), 4, 1),
        (quorum.BrokerHeartbeatRequest(), 1, 1),
        (quorum.AllocateProducerIdsRequest(), 0, 1),
        (quorum.AlterPartitionRequest(), 3, 1),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else str(value),
)
def test_every_item_carries_the_error(request_: Any, version: int, count: int) -> None:
    """The response belongs to the request's API and can be encoded."""
    response = error_response(request_, ErrorCode.NOT_CONTROLLER, "why")
    assert type(response).__name__ == type(request_).__name__.replace("Request", "Response")
    assert codes(response) == [ErrorCode.NOT_CONTROLLER] * count
    encode(response, version)


def test_other_requests_are_our_bug() -> None:
    """Only the controller's requests have a refusal."""
    with pytest.raises(AssertionError):
        error_response(object(), ErrorCode.NOT_CONTROLLER)
