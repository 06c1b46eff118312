"""Which kind of nodes DescribeCluster asks for, and what is said to who asks in the wrong place."""

from __future__ import annotations

import pytest

from kraftrio.broker.api.shared.endpoint_types import (
    BROKER_ENDPOINT,
    CONTROLLER_ENDPOINT,
    refuse_endpoint_type,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import DescribeClusterRequest


@pytest.mark.parametrize("served", [BROKER_ENDPOINT, CONTROLLER_ENDPOINT])
def test_the_kind_that_is_served_is_not_refused(served: int) -> None:
    """Neither is an old client, whose request names brokers by default."""
    assert refuse_endpoint_type(DescribeClusterRequest(endpoint_type=served), served, 1) is None
    assert refuse_endpoint_type(DescribeClusterRequest(), BROKER_ENDPOINT, 0) is None


@pytest.mark.parametrize(
    ("wanted", "version", "code"),
    [
        (CONTROLLER_ENDPOINT, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (CONTROLLER_ENDPOINT, 0, ErrorCode.INVALID_REQUEST),
        (7, 1, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_another_kind_is_refused(wanted: int, version: int, code: ErrorCode) -> None:
    """The message names both kinds; version 0 has no error code for them."""
    request = DescribeClusterRequest(endpoint_type=wanted)
    refusal = refuse_endpoint_type(request, BROKER_ENDPOINT, version)
    assert refusal is not None
    assert refusal.error_code == code
    if wanted == CONTROLLER_ENDPOINT:
        assert refusal.error_message == (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of"
            " type CONTROLLER"
        )
