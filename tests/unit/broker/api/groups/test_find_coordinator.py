"""FindCoordinator as clients send it: versions, endpoints, coordinators that there are not."""

from __future__ import annotations

import pytest

from kraftrio.kraft_meta.metadata.image import Endpoint
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import FindCoordinatorRequest
from kraftrio.wire.topic_names import CONSUMER_OFFSETS
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn, ask

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
    assert found.error_message == ErrorCode.COORDINATOR_NOT_AVAILABLE.text
    assert broker.created_topics == [CONSUMER_OFFSETS]
    broker.metadata.add_topic(CONSUMER_OFFSETS, b"_" * 16, 4, leader=-1)
    assert ask(broker, request, 2).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.metadata.add_topic(CONSUMER_OFFSETS, b"_" * 16, 4)
    assert ask(broker, request, 2).error_code == ErrorCode.NONE
    assert broker.created_topics == [CONSUMER_OFFSETS]


@pytest.mark.parametrize(
    ("key_type", "code"),
    [
        (TRANSACTION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (SHARE, ErrorCode.INVALID_REQUEST),
    ],
)
def test_other_coordinators_are_refused_for_good(key_type: int, code: ErrorCode) -> None:
    """By a code that clients take as final, with a reason; neither groups nor topics are made."""
    broker = BrokerStandIn(lead=False)
    response = ask(broker, FindCoordinatorRequest(key_type=key_type, coordinator_keys=["id"]), 6)
    (found,) = response.coordinators
    assert found.error_code == code
    assert "does not serve" in found.error_message
    assert broker.created_topics == []


def test_unknown_key_type_is_invalid(broker: BrokerStandIn) -> None:
    """A key type that does not exist is 42."""
    response = ask(broker, FindCoordinatorRequest(key_type=9, coordinator_keys=["x"]), 4)
    assert response.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


def test_leader_without_the_listener_is_not_available(broker: BrokerStandIn) -> None:
    """A coordinator that the client's listener cannot reach is 15."""
    found = ask(broker, FindCoordinatorRequest(key="group"), 2, listener_name="OTHER")
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
