"""FindCoordinator as clients send it: versions, endpoints, coordinators that there are not."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.api.groups.find_coordinator import FindCoordinatorHandler
from kraftrio.broker.security.authorizer import (
    ALLOW_ALL,
    AclOperation,
    Authorizer,
    Resource,
    ResourceType,
)
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.kraft_meta.metadata.image import Endpoint
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import FindCoordinatorRequest
from kraftrio.wire.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from tests.support.authorizers import Denies
from tests.unit.broker.api.transactions.transaction_stand_in import TransactionStandIn
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn, ask
from tests.unit.broker.coordinator.share_state.share_stand_in import KEY, ShareStandIn

TOPIC_ID = b"t" * 16
GROUP, TRANSACTION, SHARE = 0, 1, 2


@pytest.fixture
def broker() -> BrokerStandIn:
    broker = BrokerStandIn()
    broker.metadata.add_topic("topic", TOPIC_ID, 2)
    broker.metadata.add_broker(
        1, Endpoint("PLAINTEXT", "inner", 9092, 0), Endpoint("OUTSIDE", "outer", 19092, 0)
    )
    return broker


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_in_every_version(broker: BrokerStandIn, version: int) -> None:
    """Single and batched layouts name the same broker, at the asked listener's endpoint."""
    if version < 4:
        found = ask(broker, FindCoordinatorRequest(key="group"), version, listener_name="OUTSIDE")
        assert version == 0 or found.error_message == "NONE"
    else:
        request = FindCoordinatorRequest(coordinator_keys=["group", "other"])
        response = ask(broker, request, version, listener_name="OUTSIDE")
        assert [c.key for c in response.coordinators] == ["group", "other"]
        found = response.coordinators[0]
        assert found.error_message == ""
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "outer", 19092)


def test_find_coordinator_creates_the_offsets_topic() -> None:
    """Without the offsets topic it is asked for, and clients retry on 15 until it has a leader."""
    broker = BrokerStandIn(lead=False)
    broker.metadata.add_broker(1, Endpoint("PLAINTEXT", "inner", 9092, 0))
    request = FindCoordinatorRequest(key="group")
    found = ask(broker, request, 2)
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert found.error_message == "The coordinator is not available."
    assert broker.created_topics == [CONSUMER_OFFSETS]
    broker.metadata.add_topic(CONSUMER_OFFSETS, b"_" * 16, 4, leader=-1)
    assert ask(broker, request, 2).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.metadata.add_topic(CONSUMER_OFFSETS, b"_" * 16, 4)
    assert ask(broker, request, 2).error_code == ErrorCode.NONE
    assert broker.created_topics == [CONSUMER_OFFSETS]


def test_share_partitions_have_the_coordinator_of_their_topic() -> None:
    """Only the newest version knows them, and only brokers may ask; the topic is made."""
    share = ShareStandIn(lead=False)
    share.metadata.add_broker(1, Endpoint("PLAINTEXT", "inner", 9092, 0))
    created: list[str] = []
    handler = FindCoordinatorHandler({SHARE: share.coordinator}, share.metadata, created.append)

    def find(key: str, version: int = 6, authorizer: Authorizer = ALLOW_ALL) -> Any:
        client = ClientInfo("127.0.0.1", 5555, "PLAINTEXT")
        context = RequestContext(10, version, 1, "broker-2", client, authorizer)
        request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])
        (found,) = handler.find_coordinator(request, context).coordinators
        return found

    found = find(KEY.coordinator_key)
    assert (found.error_code, found.node_id, found.port) == (ErrorCode.NONE, 1, 9092)
    assert find(KEY.coordinator_key, 5).error_code is ErrorCode.INVALID_REQUEST
    assert find("group").error_code is ErrorCode.INVALID_REQUEST
    denies = Denies(AclOperation.CLUSTER_ACTION)
    refused = find(KEY.coordinator_key, authorizer=denies)
    assert refused.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    share.metadata.remove_topic(SHARE_GROUP_STATE)
    missing = find(KEY.coordinator_key)
    assert (missing.error_code, created) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        [SHARE_GROUP_STATE],
    )


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_transactional_ids_have_the_coordinator_of_their_topic(version: int) -> None:
    """The topic is made when it is first asked for; a group of that name is another matter."""
    broker = TransactionStandIn()
    broker.metadata.add_broker(1, Endpoint("PLAINTEXT", "inner", 9092, 0))
    request = FindCoordinatorRequest(key_type=TRANSACTION, key="id")
    if version >= 4:
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["id"])

    def found() -> Any:
        response = broker.ask(request, version)
        return response.coordinators[0] if version >= 4 else response

    assert (found().error_code, found().node_id, found().port) == (ErrorCode.NONE, 1, 9092)
    broker.authorizer = Denies(AclOperation.DESCRIBE, Resource(ResourceType.TRANSACTIONAL_ID, "id"))
    assert found().error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    broker.authorizer = Denies(AclOperation.DESCRIBE, Resource(ResourceType.GROUP, "id"))
    assert found().error_code == ErrorCode.NONE
    broker.metadata.remove_topic(TRANSACTION_STATE)
    assert found().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.created_topics == [TRANSACTION_STATE]


def test_unknown_key_type_is_invalid(broker: BrokerStandIn) -> None:
    """A key type that does not exist is 42."""
    response = ask(broker, FindCoordinatorRequest(key_type=9, coordinator_keys=["x"]), 4)
    assert response.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


def test_leader_without_the_listener_is_not_available(broker: BrokerStandIn) -> None:
    """A coordinator that the client's listener cannot reach is 15."""
    found = ask(broker, FindCoordinatorRequest(key="group"), 2, listener_name="OTHER")
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
