"""What is asked before a handler is called, and what its sender is answered if it is denied."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kraftrio.broker.security.api_access import API_ACCESS
from kraftrio.broker.security.authorizer import (
    CLUSTER,
    AclOperation,
    Authorizer,
    Resource,
    ResourceType,
    TrustingNodes,
)
from kraftrio.broker.security.principal import ANONYMOUS
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.guard import guarded
from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.messages.cluster import DescribeClusterRequest
from kraftrio.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from kraftrio.wire.messages.transactions import WriteTxnMarkersRequest
from kraftrio.wire.protocol.api import APIS, ApiKey
from kraftrio.wire.protocol.framing import RequestStart
from tests.support.authorizers import Allow

SERVED = "served"
T = Resource(ResourceType.GROUP, "t")


def refuse(api_key: int, _request: Any, code: ErrorCode) -> Any:
    return APIS[ApiKey(api_key)].response(error_code=code)


def serve(key: ApiKey, request: Any, authorizer: Authorizer, version: int | None = None) -> Any:
    handle = guarded(lambda _request, _context: SERVED, API_ACCESS[key], refuse)
    newest = APIS[key].max_version
    client = ClientInfo("10.0.0.1", 1, "PLAINTEXT")
    context = RequestContext(key, version or newest, 1, None, client, authorizer)
    return handle(request, context)


def test_the_one_resource_that_a_request_names_is_asked_about() -> None:
    authorizer = Allow({(AclOperation.READ, T)})
    assert serve(ApiKey.HEARTBEAT, HeartbeatRequest(group_id="t"), authorizer) == SERVED
    refused = serve(ApiKey.HEARTBEAT, HeartbeatRequest(group_id="u"), authorizer)
    assert isinstance(refused, HeartbeatResponse)
    assert refused.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert [asked[:3] for asked in authorizer.asked] == [
        (ANONYMOUS, "10.0.0.1", AclOperation.READ)
    ] * 2


@pytest.mark.parametrize("operation", [AclOperation.ALTER, AclOperation.CLUSTER_ACTION])
def test_any_one_permission_of_a_line_lets_a_request_in(operation: AclOperation) -> None:
    """An administrator may abort a transaction, and so may a broker."""
    authorizer = Allow({(operation, CLUSTER)})
    assert serve(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(), authorizer) == SERVED


def test_a_refusal_is_one_line_of_the_audit(caplog: pytest.LogCaptureFixture) -> None:
    """With everything that an operator needs to grant it, or to ask who that is."""
    with caplog.at_level(logging.INFO, "kraftrio.audit"):
        serve(ApiKey.HEARTBEAT, HeartbeatRequest(group_id="t"), Allow(()))
    assert [record.getMessage() for record in caplog.records] == [
        "denied principal=User:ANONYMOUS host=10.0.0.1 operation=READ"
        " resource=GROUP:t api=HEARTBEAT"
    ]


def test_a_denial_is_not_logged_if_another_permission_suffices(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker that has no right to alter the cluster does nothing wrong."""
    with caplog.at_level(logging.INFO, "kraftrio.audit"):
        allowed = Allow({(AclOperation.CLUSTER_ACTION, CLUSTER)})
        serve(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(), allowed)
    assert caplog.records == []


def test_a_dispatcher_that_knows_no_responses_closes_the_connection() -> None:
    dispatcher = Dispatcher(
        {ApiKey.HEARTBEAT: lambda _request, _context: HeartbeatResponse()}, authorizer=Allow(())
    )
    frame = memoryview(encode(HeartbeatRequest(group_id="t"), 1))
    start = RequestStart(ApiKey.HEARTBEAT, 1, 1, None, 0)
    with pytest.raises(RemoteProtocolError, match="not authorized to send HEARTBEAT"):
        dispatcher.handle(frame, start, ClientInfo("h", 1, "PLAINTEXT"))


def test_a_controller_trusts_the_nodes_of_its_cluster() -> None:
    """They have asked for their clients; others are asked about here."""
    node = TrustingNodes(Allow({(AclOperation.CLUSTER_ACTION, CLUSTER)}))
    assert node.authorize(ANONYMOUS, "h", AclOperation.READ, T)
    client = TrustingNodes(Allow({(AclOperation.READ, T)}))
    assert client.authorize(ANONYMOUS, "h", AclOperation.READ, T)
    assert not client.authorize(ANONYMOUS, "h", AclOperation.DELETE, T)


def test_a_line_without_permissions_asks_nothing() -> None:
    """The listener does not even put a guard before its handler."""
    dispatcher = Dispatcher(
        {ApiKey.DESCRIBE_CLUSTER: lambda _request, _context: None}, authorizer=Allow(())
    )
    frame = memoryview(encode(DescribeClusterRequest(), 0))
    start = RequestStart(ApiKey.DESCRIBE_CLUSTER, 0, 1, None, 0)
    assert dispatcher.handle(frame, start, ClientInfo("h", 1, "PLAINTEXT")) is None
