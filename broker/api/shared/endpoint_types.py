"""The two kinds of listeners of DescribeCluster: brokers' and controllers' (KIP-919)."""

from __future__ import annotations

from typing import Final

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

BROKER_ENDPOINT: Final = 1
CONTROLLER_ENDPOINT: Final = 2
_NAMES: Final = {BROKER_ENDPOINT: "BROKER", CONTROLLER_ENDPOINT: "CONTROLLER"}


def refuse_endpoint_type(
    request: DescribeClusterRequest, served: int, api_version: int
) -> DescribeClusterResponse | None:
    """Return the refusal of a client that wants the other kind of nodes; None: it is served."""
    wanted = request.endpoint_type
    if wanted == served:
        return None
    if wanted not in _NAMES:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        text = f"Unsupported endpoint type {wanted}"
    else:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        text = (
            f"The request was sent to an endpoint of type {_NAMES[served]}, but we wanted "
            f"an endpoint of type {_NAMES[wanted]}"
        )
    if api_version == 0:
        code = ErrorCode.INVALID_REQUEST
    return DescribeClusterResponse(error_code=code, error_message=text)
