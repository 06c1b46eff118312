"""DescribeAcls, CreateAcls and DeleteAcls: what the controller is asked, and what is answered."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.acls import AclHandlers
from kraftrio.broker.security.authorizer import ALLOW_ALL, Authorizer
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.broker.server.slices.sliced_work import do_at_once
from kraftrio.kraft_meta.metadata.acl_image import Acl
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.messages.security import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from kraftrio.wire.protocol.api import ApiKey
from tests.support.authorizers import Allow
from tests.unit.kraft_meta.controller.context import ControllerContext


class AclContext:
    """A broker's handlers beside a controller that commits at once."""

    def __init__(self) -> None:
        self.controller = ControllerContext()
        self.handlers = AclHandlers(self, self)
        self.asked: list[Any] = []

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    @image.setter
    def image(self, image: MetadataImage) -> None:
        raise AssertionError("handlers read the metadata only")

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        self.asked.append(request)
        return Deferred.completed(self.controller.send(request, api_version))

    def call(self, request: Any, authorizer: Authorizer | None = None) -> Any:
        key = {
            DescribeAclsRequest: ApiKey.DESCRIBE_ACLS,
            CreateAclsRequest: ApiKey.CREATE_ACLS,
            DeleteAclsRequest: ApiKey.DELETE_ACLS,
        }[type(request)]
        client = ClientInfo("h", 1, "PLAINTEXT")
        context = RequestContext(key, 3, 1, None, client, authorizer or Allow(()))
        answer = self.handlers.table()[key](request, context)
        return do_at_once(answer).value if isinstance(answer, GeneratorType) else answer


def creation(name: str, **changes: Any) -> AclCreation:
    said = {"resource_type": 2, "operation": 3, "permission_type": 3, **changes}
    return AclCreation(resource_name=name, principal="User:a", host="*", **said)


def described(name: str | None = None, pattern: int = 1, **changes: Any) -> DescribeAclsRequest:
    said = {"resource_type_filter": 1, "operation": 1, "permission_type": 1, **changes}
    return DescribeAclsRequest(
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        **said,
    )


def deletion(name: str | None, pattern: int = 3) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter="User:a",
        host_filter="*",
        operation=3,
        permission_type=3,
    )


def test_what_was_created_is_described_by_pattern() -> None:
    """Those of one pattern stand together; a filter leaves out the others."""
    context = AclContext()
    context.call(CreateAclsRequest(creations=[creation("t"), creation("t", operation=4)]))
    context.call(CreateAclsRequest(creations=[creation("t", resource_pattern_type=4)]))
    answer = context.call(described())
    assert answer.error_message == ""
    resources = answer.resources
    assert {
        (one.resource_name, one.pattern_type): sorted(acl.operation for acl in one.acls)
        for one in resources
    } == {("t", 3): [3, 4], ("t", 4): [3]}
    assert len(context.call(described("t", 4)).resources) == 1
    assert context.call(described("u", 2)).resources == []
    assert context.call(described(resource_type_filter=77)).resources == []


def test_very_many_are_created_in_parts() -> None:
    """Each result stands where its ACL stood, also of one that is refused."""
    context = AclContext()
    creations = [creation(f"t{i}") for i in range(300)]
    creations[270] = creation("")
    results = context.call(CreateAclsRequest(creations=creations)).results
    assert [len(request.creations) for request in context.asked] == [250, 50]
    assert [i for i, one in enumerate(results) if one.error_code] == [270]
    assert len(context.controller.image.acls) == 299


def test_a_search_through_all_acls_is_a_part_of_its_own() -> None:
    """Filters that mean one ACL go together; each finds what it means."""
    context = AclContext()
    context.call(CreateAclsRequest(creations=[creation(name) for name in "abcd"]))
    context.asked.clear()
    filters = [deletion("a"), deletion("b"), deletion("c", 1), deletion("none", 2), deletion("d")]
    results = context.call(DeleteAclsRequest(filters=filters)).filter_results
    assert [len(request.filters) for request in context.asked] == [2, 1, 1, 1]
    assert [[acl.resource_name for acl in one.matching_acls] for one in results] == [
        ["a"],
        ["b"],
        ["c"],
        [],
        ["d"],
    ]
    assert not context.controller.image.acls


@pytest.mark.parametrize(
    "request_",
    [
        described(operation=0),
        CreateAclsRequest(creations=[creation("t"), creation("t", permission_type=0)]),
        DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=0)]),
    ],
)
@pytest.mark.parametrize("authorizer", [ALLOW_ALL, Allow(())])
def test_what_says_unknown_ends_the_connection(request_: Any, authorizer: Authorizer) -> None:
    context = AclContext()
    with pytest.raises(RemoteProtocolError):
        context.call(request_, authorizer)
    assert context.asked == []


def test_without_an_authorizer_there_are_none() -> None:
    """As tools expect it; the controller is not asked."""
    context = AclContext()
    assert context.call(described(), ALLOW_ALL).error_code == ErrorCode.SECURITY_DISABLED
    [created] = context.call(CreateAclsRequest(creations=[creation("t")]), ALLOW_ALL).results
    [deleted] = context.call(DeleteAclsRequest(filters=[deletion("t")]), ALLOW_ALL).filter_results
    assert {created.error_code, deleted.error_code} == {ErrorCode.SECURITY_DISABLED}
    assert context.asked == []


def test_too_many_at_once_are_refused_whole() -> None:
    context = AclContext()
    answer = context.call(CreateAclsRequest(creations=[creation("t")] * 10_001))
    assert {one.error_code for one in answer.results} == {ErrorCode.POLICY_VIOLATION}
    assert Acl(2, "t", 3, "User:a", "*", 3, 3).id not in context.controller.image.acls
