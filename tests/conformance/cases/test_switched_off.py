"""What a broker answers to look-ups that has no security, and only classic groups.

Tools, MirrorMaker and clients that guess a broker's version rely on it: an empty result is no
error, and what is not supported is refused with an error that is not retriable.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import FindCoordinatorRequest
from kraftrio.wire.messages.configs import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from kraftrio.wire.messages.groups import ConsumerGroupDescribeRequest
from kraftrio.wire.messages.security import (
    AclCreation,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from kraftrio.wire.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    ShareGroupDescribeRequest,
)
from kraftrio.wire.messages.streams_groups import StreamsGroupDescribeRequest
from kraftrio.wire.messages.transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from tests.conformance.cases.calls import SETTLE_DEADLINE_S, wait_for_coordinator
from tests.conformance.cases.raw_client import RawClient

NONE = ErrorCode.NONE
ANY: dict[str, Any] = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
}


def acl(**changed: Any) -> AclCreation:
    """A valid ACL: User:a may READ the topic t."""
    parts = {"resource_type": 2, "resource_pattern_type": 3, "operation": 3, "permission_type": 3}
    return AclCreation(resource_name="t", principal="User:a", host="*", **{**parts, **changed})


# ACLs


def test_no_authorizer(client: RawClient) -> None:
    """SECURITY_DISABLED for the request, or for each of its parts."""
    disabled = ErrorCode.SECURITY_DISABLED
    described = client.call(DescribeAclsRequest(**ANY), 3)
    assert (described.error_code, described.resources) == (disabled, [])
    assert described.error_message == "No Authorizer is configured on the broker"
    created = client.call(CreateAclsRequest(creations=[acl(), acl(operation=4)]), 3)
    deleted = client.call(DeleteAclsRequest(filters=[DeleteAclsFilter(**ANY)] * 2), 3)
    for results in (created.results, deleted.filter_results):
        assert [(one.error_code, one.error_message) for one in results] == [
            (disabled, "No Authorizer is configured.")
        ] * 2
    assert client.call(CreateAclsRequest(), 3).results == []


@pytest.mark.parametrize(
    "request_",
    [
        DescribeAclsRequest(**{**ANY, "operation": 0}),
        CreateAclsRequest(creations=[acl(), acl(resource_type=0)]),
        DeleteAclsRequest(filters=[DeleteAclsFilter(**{**ANY, "permission_type": 0})]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_acls_of_unknown_kinds_close_the_connection(client: RawClient, request_: Any) -> None:
    client.send(request_, 3)
    assert client.is_closed()


# Who are you?


def test_nobody_has_scram_credentials(client: RawClient) -> None:
    for request in (
        DescribeUserScramCredentialsRequest(users=None),
        DescribeUserScramCredentialsRequest(users=[]),
    ):
        response = client.call(request, 0)
        assert (response.error_code, response.error_message, response.results) == (NONE, "", [])
    names = [UserName(name=name) for name in ("twice", "once", "twice")]
    response = client.call(DescribeUserScramCredentialsRequest(users=names), 0)
    found = {one.user: (one.error_code, one.error_message) for one in response.results}
    assert len(response.results) == 2 and found == {
        "once": (
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to describe a user credential that does not exist: once",
        ),
        "twice": (
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: twice",
        ),
    }


def test_no_delegation_tokens_without_authentication(client: RawClient) -> None:
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    for version in (1, 2, 3):
        created = client.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), version)
        assert (created.error_code, created.principal_name) == (refused, "ANONYMOUS")
        assert created.issue_timestamp_ms == created.expiry_timestamp_ms == -1
        described = client.call(DescribeDelegationTokenRequest(owners=None), version)
        assert (described.error_code, described.tokens) == (refused, [])
    for request in (RenewDelegationTokenRequest(), ExpireDelegationTokenRequest()):
        response = client.call(request, 2)
        assert (response.error_code, response.expiry_timestamp_ms) == (refused, -1)


def test_sasl_on_a_plain_listener(client: RawClient) -> None:
    """Error 34 and no mechanisms; the connection stays open."""
    for version in (0, 1):
        response = client.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert response.mechanisms == []
    for version in (0, 1, 2):
        response = client.call(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert "SaslAuthenticate request received after" in response.error_message
    assert client.call(ListTransactionsRequest(), 0).error_code == NONE


# Transactions


def test_transactions_that_nobody_has_begun(
    client: RawClient, unique_name: Callable[[str], str]
) -> None:
    for version in (0, 1, 2):
        filters = ["Ongoing", "Nonsense", "ongoing", "Nonsense"]
        response = client.call(ListTransactionsRequest(state_filters=filters), version)
        assert response.error_code == NONE
        assert sorted(response.unknown_state_filters) == ["Nonsense", "ongoing"]
    unknown = unique_name("id")
    asked = DescribeTransactionsRequest(transactional_ids=[unknown, "", unknown])
    missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while True:
        # Kafka has no transaction coordinator before a client has looked for one.
        client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[unknown]), 4)
        codes = [one.error_code for one in client.call(asked, 0).transaction_states]
        if codes == [missing, ErrorCode.INVALID_REQUEST, missing]:
            break
        assert time.monotonic() < deadline, codes
        time.sleep(0.05)


# Groups of other kinds


@pytest.mark.parametrize(
    ("request_type", "version"),
    [
        (ConsumerGroupDescribeRequest, 1),
        (ShareGroupDescribeRequest, 1),
        (StreamsGroupDescribeRequest, 0),
    ],
)
def test_no_groups_of_other_kinds(
    client: RawClient,
    unique_group: Callable[[], str],
    request_type: type[Any],
    version: int,
) -> None:
    absent = unique_group()
    wait_for_coordinator(client, absent)
    response = client.call(request_type(group_ids=[absent, ""]), version)
    found = {one.group_id: (one.error_code, one.error_message) for one in response.groups}
    assert found == {
        absent: (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {absent} not found."),
        "": (ErrorCode.INVALID_GROUP_ID, None),
    }


def test_no_offsets_of_share_groups(client: RawClient, unique_group: Callable[[], str]) -> None:
    wait_for_coordinator(client, absent := unique_group())
    topics = [DescribeShareGroupOffsetsRequestTopic(topic_name="no-such", partitions=[0])]
    for version in (0, 1):
        for asked, expected in ((None, []), (topics, [("no-such", [(0, -1, NONE)])])):
            group = DescribeShareGroupOffsetsRequestGroup(group_id=absent, topics=asked)
            request = DescribeShareGroupOffsetsRequest(groups=[group])
            (found,) = client.call(request, version).groups
            assert (found.group_id, found.error_code) == (absent, NONE)
            assert [
                (
                    topic.topic_name,
                    [(p.partition_index, p.start_offset, p.error_code) for p in topic.partitions],
                )
                for topic in found.topics
            ] == expected
