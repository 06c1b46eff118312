"""CreateAcls and DeleteAcls, as the controller decides on them."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.kraft_meta.metadata.acl_image import Acl
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.security import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kraftrio.wire.protocol.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from tests.unit.kraft_meta.controller.context import ControllerContext


def creation(name: str = "t", **changes: Any) -> AclCreation:
    said: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:a",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermissionType.ALLOW,
    }
    return AclCreation(**(said | changes))


def acl_filter(name: str | None = None, **changes: Any) -> DeleteAclsFilter:
    said: dict[str, Any] = {
        "resource_type_filter": ResourceType.TOPIC,
        "resource_name_filter": name,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermissionType.ANY,
    }
    return DeleteAclsFilter(**(said | changes))


def create(context: ControllerContext, *creations: AclCreation) -> list[tuple[int, str | None]]:
    response = context.send(CreateAclsRequest(creations=list(creations)))
    assert isinstance(response, CreateAclsResponse)
    return [(result.error_code, result.error_message) for result in response.results]


def delete(context: ControllerContext, *filters: DeleteAclsFilter) -> DeleteAclsResponse:
    response = context.send(DeleteAclsRequest(filters=list(filters)))
    assert isinstance(response, DeleteAclsResponse)
    return response


def test_acls_are_created_once() -> None:
    """Again, in the same request or in a later one, is success without a record."""
    context = ControllerContext()
    assert create(context, creation("a"), creation("b"), creation("a")) == [(0, "")] * 3
    assert len(context.last_records) == 2
    assert create(context, creation("b"), creation("c")) == [(0, "")] * 2
    assert len(context.last_records) == 1
    assert set(context.image.acls.values()) == {
        Acl(2, name, 3, "User:a", "*", 3, 3) for name in "abc"
    }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": 77}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"resource_pattern_type": 77}, "Invalid patternType UNKNOWN"),
        ({"operation": AclOperation.ANY}, "Invalid operation ANY"),
        ({"permission_type": AclPermissionType.ANY}, "Invalid permissionType ANY"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        (
            {"resource_type": ResourceType.CLUSTER},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (
            {"principal": "a"},
            "Could not parse principal from `a` (no colon is present separating the principal "
            "type from the principal name)",
        ),
    ],
)
def test_an_acl_that_cannot_be_is_refused_alone(changes: dict[str, Any], reason: str) -> None:
    """The others of its request are created."""
    context = ControllerContext()
    results = create(context, creation("a"), creation(**changes), creation("b"))
    assert results == [(0, ""), (ErrorCode.INVALID_REQUEST, reason), (0, "")]
    assert {acl.resource_name for acl in context.image.acls.values()} == {"a", "b"}


def test_filters_delete_and_name_what_agrees() -> None:
    """What two filters agree with is named by both, and removed once."""
    context = ControllerContext()
    create(
        context,
        creation("a"),
        creation("b"),
        creation("b", principal="User:x"),
        creation("g", resource_type=ResourceType.GROUP),
    )
    response = delete(
        context,
        acl_filter("b"),
        acl_filter(principal_filter="User:x"),
        acl_filter("none"),
    )
    assert [
        sorted((acl.resource_name, acl.principal, acl.error_code) for acl in result.matching_acls)
        for result in response.filter_results
    ] == [[("b", "User:a", 0), ("b", "User:x", 0)], [("b", "User:x", 0)], []]
    assert len(context.last_records) == 2
    assert {acl.resource_name for acl in context.image.acls.values()} == {"a", "g"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"resource_type_filter": 0}, "Unknown patternFilter."),
        ({"pattern_type_filter": 77}, "Unknown patternFilter."),
        ({"operation": 77}, "Unknown entryFilter."),
        ({"permission_type": 0}, "Unknown entryFilter."),
    ],
)
def test_a_filter_of_an_unknown_kind_is_refused_alone(changes: dict[str, Any], reason: str) -> None:
    """The others of its request delete what they mean."""
    context = ControllerContext()
    create(context, creation("a"), creation("b"))
    refused, done = delete(context, acl_filter(**changes), acl_filter("a")).filter_results
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, reason)
    assert refused.matching_acls == []
    assert [acl.resource_name for acl in done.matching_acls] == ["a"]
    assert {acl.resource_name for acl in context.image.acls.values()} == {"b"}


def test_the_next_leader_decides_on_the_same_acls() -> None:
    """They are in the log, and nowhere else."""
    context = ControllerContext()
    create(context, creation("a"))
    context.fail_over()
    assert create(context, creation("a")) == [(0, "")]
    assert context.last_records == []
    assert len(delete(context, acl_filter()).filter_results[0].matching_acls) == 1
    assert not context.image.acls
