"""Which requests may be sent twice, and which answers say that another node decides."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.controller.requests import (
    ANSWER_LOST,
    Resending,
    client_timeout_ms,
    is_not_controller,
    is_own,
    put_doubt,
    resending,
)
from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.kraft_meta.controller.security.token_control import TokenRequest
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages import admin, configs, quorum, security

CREATE = admin.CreateTopicsRequest(topics=[admin.CreatableTopic(name="t")])
DELETE = admin.DeleteTopicsRequest(topics=[admin.DeleteTopicState(name="t")])
GROW = admin.CreatePartitionsRequest(topics=[admin.CreatePartitionsTopic(name="t", count=2)])
ELECT = admin.ElectLeadersRequest(
    topic_partitions=[admin.TopicPartitions(topic="t", partitions=[0])]
)
ALTER = configs.AlterConfigsRequest(
    resources=[configs.AlterConfigsResource(resource_type=2, resource_name="t")]
)
CHANGE = configs.IncrementalAlterConfigsRequest(
    resources=[configs.IncrementalAlterConfigsResource(resource_type=2, resource_name="t")]
)


def _about_token(message: Any) -> TokenRequest:
    return TokenRequest(message, "User", "alice")


REQUESTS: list[Any] = [
    CREATE,
    DELETE,
    GROW,
    ELECT,
    ALTER,
    CHANGE,
    quorum.UpdateFeaturesRequest(),
    quorum.UnregisterBrokerRequest(),
    quorum.BrokerRegistrationRequest(),
    quorum.BrokerHeartbeatRequest(),
    quorum.AllocateProducerIdsRequest(),
    quorum.AlterPartitionRequest(),
    _about_token(security.CreateDelegationTokenRequest()),
    configs.AlterUserScramCredentialsRequest(deletions=[configs.ScramCredentialDeletion(name="a")]),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_the_refusal_of_a_node_that_does_not_decide_is_known(request_: Any) -> None:
    """Wherever the API carries the error of a whole request."""
    assert is_not_controller(error_response(request_, ErrorCode.NOT_CONTROLLER))
    assert not is_not_controller(error_response(request_, ErrorCode.NONE))
    assert not is_not_controller(error_response(request_, ErrorCode.REQUEST_TIMED_OUT))


def test_an_election_of_version_0_carries_its_refusal_in_its_partitions() -> None:
    response = error_response(ELECT, ErrorCode.NOT_CONTROLLER)
    response.error_code = ErrorCode.NONE
    assert is_not_controller(response)


def test_an_answer_about_nothing_is_no_refusal() -> None:
    assert not is_not_controller(admin.CreateTopicsResponse())


def _reassignment(replicas: list[int] | None) -> admin.AlterPartitionReassignmentsRequest:
    partition = admin.ReassignablePartition(partition_index=0, replicas=replicas)
    topic = admin.ReassignableTopic(name="t", partitions=[partition])
    return admin.AlterPartitionReassignmentsRequest(topics=[topic])


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (CREATE, Resending.IN_DOUBT),
        (admin.CreateTopicsRequest(topics=CREATE.topics, validate_only=True), Resending.FREELY),
        (DELETE, Resending.NEVER),
        (GROW, Resending.IN_DOUBT),
        (quorum.UnregisterBrokerRequest(), Resending.NEVER),
        (_reassignment([1, 2]), Resending.FREELY),
        (_reassignment(None), Resending.NEVER),
        (ALTER, Resending.FREELY),
        (CHANGE, Resending.FREELY),
        (ELECT, Resending.FREELY),
        (quorum.AlterPartitionRequest(), Resending.FREELY),
        (quorum.BrokerRegistrationRequest(), Resending.FREELY),
        (_about_token(security.RenewDelegationTokenRequest()), Resending.FREELY),
        (_about_token(security.CreateDelegationTokenRequest()), Resending.NEVER),
        (_about_token(security.ExpireDelegationTokenRequest()), Resending.NEVER),
        (configs.AlterUserScramCredentialsRequest(), Resending.FREELY),
        (
            configs.AlterUserScramCredentialsRequest(
                deletions=[configs.ScramCredentialDeletion(name="a")]
            ),
            Resending.NEVER,
        ),
    ],
)
def test_which_requests_may_be_sent_again(request_: Any, expected: Resending) -> None:
    assert resending(request_) is expected


@pytest.mark.parametrize(
    ("request_", "denial"),
    [(CREATE, ErrorCode.TOPIC_ALREADY_EXISTS), (GROW, ErrorCode.INVALID_PARTITIONS)],
    ids=["CreateTopics", "CreatePartitions"],
)
def test_a_second_answer_does_not_deny_what_the_first_time_may_have_done(
    request_: Any, denial: ErrorCode
) -> None:
    denied, refused = error_response(request_, denial), error_response(request_, ErrorCode.NONE)
    for response in (denied, refused):
        put_doubt(response)
    timed_out = error_response(request_, ErrorCode.REQUEST_TIMED_OUT, ANSWER_LOST)
    assert denied == timed_out
    assert refused == error_response(request_, ErrorCode.NONE)


def test_requests_of_brokers_themselves_are_distinguished_from_forwarded_ones() -> None:
    assert [type(request) for request in REQUESTS if is_own(request)] == [
        quorum.BrokerRegistrationRequest,
        quorum.BrokerHeartbeatRequest,
        quorum.AllocateProducerIdsRequest,
        quorum.AlterPartitionRequest,
    ]


def test_a_client_that_names_no_time_waits_for_as_long_as_the_broker_does() -> None:
    assert client_timeout_ms(admin.CreateTopicsRequest(timeout_ms=5)) == 5
    assert client_timeout_ms(admin.CreateTopicsRequest(timeout_ms=0)) is None
    assert client_timeout_ms(quorum.UnregisterBrokerRequest()) is None
