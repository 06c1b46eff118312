"""The admin client on ACLs: what it sends, and what it makes of answers."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from kraftrio.clients.errors import (
    ClusterAuthorizationError,
    InvalidRequestError,
    SecurityDisabledError,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.security import (
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import FakeNode, fake_cluster

READ = Acl(ResourceType.TOPIC, "t", "User:alice", AclOperation.READ)
DENIED = Acl(
    ResourceType.GROUP,
    "team-",
    "User:bob",
    AclOperation.ALL,
    AclPermissionType.DENY,
    "10.0.0.1",
    PatternType.PREFIXED,
)


async def test_what_is_described_comes_back_as_it_was_made() -> None:
    """Entries of one resource come together; a number that nobody knows is UNKNOWN."""
    asked: list[DescribeAclsRequest] = []

    def answer(node: FakeNode, request: DescribeAclsRequest) -> DescribeAclsResponse:
        asked.append(request)
        unknown = AclDescription(principal="User:x", host="*", operation=99, permission_type=3)
        return DescribeAclsResponse(
            resources=[
                DescribeAclsResource(
                    resource_type=2,
                    resource_name="t",
                    pattern_type=3,
                    acls=[
                        AclDescription(
                            principal="User:alice", host="*", operation=3, permission_type=3
                        ),
                        unknown,
                    ],
                )
            ]
        )

    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.DESCRIBE_ACLS, answer)
        found = await admin.acls.describe(AclFilter(principal="User:alice"))
        await admin.acls.describe()
    assert found[0] == READ
    assert found[1].operation is AclOperation.UNKNOWN
    first, everything = asked
    assert (first.principal_filter, first.resource_type_filter) == ("User:alice", ResourceType.ANY)
    assert (everything.principal_filter, everything.pattern_type_filter) == (None, PatternType.ANY)


async def test_without_an_authorizer_there_are_none() -> None:
    def answer(node: FakeNode, request: DescribeAclsRequest) -> DescribeAclsResponse:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message="off")

    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.DESCRIBE_ACLS, answer)
        with pytest.raises(SecurityDisabledError, match="off"):
            await admin.acls.describe()


async def test_each_creation_has_its_own_outcome() -> None:
    asked: list[CreateAclsRequest] = []

    def answer(node: FakeNode, request: CreateAclsRequest) -> CreateAclsResponse:
        asked.append(request)
        refused = AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message="malformed")
        return CreateAclsResponse(results=[AclCreationResult(), refused])

    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.CREATE_ACLS, answer)
        results = await admin.acls.create([READ, DENIED], raise_errors=False)
        with pytest.raises(InvalidRequestError, match="malformed"):
            await admin.acls.create([READ, DENIED])
    assert READ not in results.errors
    assert isinstance(results.errors[DENIED], InvalidRequestError)
    sent = asked[0].creations[1]
    assert (sent.resource_type, sent.resource_name, sent.resource_pattern_type) == (3, "team-", 4)
    assert (sent.principal, sent.host, sent.operation, sent.permission_type) == (
        "User:bob",
        "10.0.0.1",
        2,
        2,
    )


async def test_a_deletion_returns_what_was_deleted() -> None:
    """An entry that could not be deleted fails its filter."""

    def answer(node: FakeNode, request: DeleteAclsRequest) -> DeleteAclsResponse:
        gone = DeleteAclsMatchingAcl(
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        )
        kept = DeleteAclsMatchingAcl(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(matching_acls=[gone]),
                DeleteAclsFilterResult(matching_acls=[kept]),
            ]
        )

    wanted = [AclFilter(resource_name="t"), AclFilter(resource_name="u")]
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.on(ApiKey.DELETE_ACLS, answer)
        results = await admin.acls.delete(wanted, raise_errors=False)
    assert results[wanted[0]] == [READ]
    assert isinstance(results.errors[wanted[1]], ClusterAuthorizationError)


@pytest.mark.parametrize("given", ["User:alice", None, AclFilter()])
async def test_what_is_no_acl_is_not_sent(given: Any) -> None:
    async with fake_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        with pytest.raises(TypeError):
            await admin.acls.create([given])


def test_the_cluster_is_one_resource() -> None:
    acl = Acl.of_cluster("User:alice", AclOperation.ALTER)
    assert (acl.resource_type, acl.resource_name) == (ResourceType.CLUSTER, "kafka-cluster")
