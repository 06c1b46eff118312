"""DescribeAcls, CreateAcls, DeleteAcls.

Behaviour (Apache Kafka's)
- ACLs are described from the metadata of this node, as far as it has come; they are created and
  deleted by the active controller, and the answer comes when that is committed.
- Without an authorizer: SECURITY_DISABLED, which tools and MirrorMaker take as "there are none".
- A part of an ACL or of a filter that says UNKNOWN (0) ends the connection, as bytes that cannot be
  read do. One of an unknown kind is INVALID_REQUEST, and in DescribeAcls finds nothing.
- Very many are created or deleted in parts, some at a time; a filter that has to be compared with
  every ACL is a part of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from kraftrio.broker.api.shared.decision_parts import MOST_ENTRIES, decide_each, refuse_excessive
from kraftrio.broker.ports import ControllerPort, MetadataPort
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.request_parts import PART_ENTRIES, parts
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.kraft_meta.metadata.acl_image import AclFilter
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.messages.security import (
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kraftrio.wire.protocol.api import ApiKey

_UNKNOWN: Final = 0
_NO_AUTHORIZER: Final = "No Authorizer is configured."
_FILTERS_AT_ONCE: Final = 1  # that have to be compared with every ACL


class AclHandlers:
    """Serves these APIs of one broker, or of one controller."""

    def __init__(self, controller: ControllerPort, metadata: MetadataPort) -> None:
        self._controller = controller
        self._metadata = metadata

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.DESCRIBE_ACLS: self.describe_acls,
            ApiKey.CREATE_ACLS: self.create_acls,
            ApiKey.DELETE_ACLS: self.delete_acls,
        }

    # -- describing -----------------------------------------------------------------------------

    def describe_acls(
        self, request: DescribeAclsRequest, context: RequestContext
    ) -> Slices[DescribeAclsResponse]:
        """Describe the ACLs that agree with a filter, by pattern."""
        _check_known(
            request.resource_type_filter,
            request.pattern_type_filter,
            request.operation,
            request.permission_type,
        )
        if not context.is_guarded:
            return DescribeAclsResponse(
                error_code=ErrorCode.SECURITY_DISABLED,
                error_message="No Authorizer is configured on the broker",
            )
        resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
        for acl in AclFilter.of(request).among(self._metadata.image.acls):
            if acl is None:
                yield
                continue
            resource = resources.get(acl[:3])
            if resource is None:
                resource = resources[acl[:3]] = DescribeAclsResource(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    pattern_type=acl.pattern_type,
                )
            resource.acls.append(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
            )
            yield
        return DescribeAclsResponse(error_message="", resources=list(resources.values()))

    # -- changing -------------------------------------------------------------------------------

    def create_acls(self, request: CreateAclsRequest, context: RequestContext) -> Work[Any]:
        """Have the controller create ACLs."""
        for one in request.creations:
            _check_known(
                one.resource_type, one.resource_pattern_type, one.operation, one.permission_type
            )
            yield None
        if not context.is_guarded:
            return _refuse(request)
        if len(request.creations) > MOST_ENTRIES:
            return refuse_excessive(request)
        answers = yield from decide_each(
            partial(self._controller.submit, api_version=context.api_version),
            (CreateAclsRequest(creations=part) for part in parts(request.creations)),
        )
        return CreateAclsResponse(results=[one for answer in answers for one in answer.results])

    def delete_acls(self, request: DeleteAclsRequest, context: RequestContext) -> Work[Any]:
        """Have the controller delete the ACLs that agree with filters."""
        for one in request.filters:
            _check_known(
                one.resource_type_filter,
                one.pattern_type_filter,
                one.operation,
                one.permission_type,
            )
            yield None
        if not context.is_guarded:
            return _refuse(request)
        if len(request.filters) > MOST_ENTRIES:
            return refuse_excessive(request)
        answers = yield from decide_each(
            partial(self._controller.submit, api_version=context.api_version),
            (DeleteAclsRequest(filters=part) for part in _parts_of_filters(request.filters)),
        )
        results = [one for answer in answers for one in answer.filter_results]
        return DeleteAclsResponse(filter_results=results)


def _parts_of_filters(filters: Iterable[DeleteAclsFilter]) -> Iterator[list[DeleteAclsFilter]]:
    """Cut filters into parts that each take little time, in their order."""
    part: list[DeleteAclsFilter] = []
    room = PART_ENTRIES
    for one in filters:
        cost = 1 if AclFilter.of(one).only is not None else PART_ENTRIES // _FILTERS_AT_ONCE
        if part and cost > room:
            yield part
            part, room = [], PART_ENTRIES
        part.append(one)
        room -= cost
    if part:
        yield part


def _refuse(request: Any) -> Any:
    """There is no authorizer that the ACLs could be for."""
    return error_response(request, ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)


def _check_known(*parts_of_acl: int) -> None:
    if _UNKNOWN in parts_of_acl:
        raise RemoteProtocolError("an ACL or a filter of ACLs has parts of unknown kinds")
