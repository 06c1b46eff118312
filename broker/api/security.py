"""The APIs of authorization, where there is none: Describe-, Create- and DeleteAcls.

Behaviour (Apache Kafka's, without an authorizer and on plaintext listeners)
- ACLs: SECURITY_DISABLED, which tools and MirrorMaker take as "there are none".
- A filter or an entry of an unknown kind ends the connection, as bytes that cannot be read do.
"""

from __future__ import annotations

from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.messages.security import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from kraftrio.wire.protocol.api import ApiKey

_NO_AUTHORIZER = "No Authorizer is configured."

# What an ACL is about: kinds of resources and patterns, operations, allow or deny.
_RESOURCE_TYPES = range(1, 8)
_PATTERN_TYPES = range(1, 5)
_OPERATIONS = range(1, 16)
_PERMISSIONS = range(1, 4)


class SecurityHandlers:
    """Serves these APIs where security is off, for brokers and controllers alike."""

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.DESCRIBE_ACLS: self.describe_acls,
            ApiKey.CREATE_ACLS: self.create_acls,
            ApiKey.DELETE_ACLS: self.delete_acls,
        }

    # --- ACLs ---

    def describe_acls(
        self, request: DescribeAclsRequest, _context: RequestContext
    ) -> DescribeAclsResponse:
        """There is no authorizer."""
        _check_acl(
            request.resource_type_filter,
            request.pattern_type_filter,
            request.operation,
            request.permission_type,
        )
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message="No Authorizer is configured on the broker",
        )

    def create_acls(
        self, request: CreateAclsRequest, _context: RequestContext
    ) -> Slices[CreateAclsResponse]:
        """There is no authorizer to give them to."""
        for one in request.creations:
            _check_acl(
                one.resource_type, one.resource_pattern_type, one.operation, one.permission_type
            )
            yield
        refused = AclCreationResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER
        )
        return CreateAclsResponse(results=each(lambda _: refused, request.creations))

    def delete_acls(
        self, request: DeleteAclsRequest, _context: RequestContext
    ) -> Slices[DeleteAclsResponse]:
        """There is no authorizer to take them from."""
        for one in request.filters:
            _check_acl(
                one.resource_type_filter,
                one.pattern_type_filter,
                one.operation,
                one.permission_type,
            )
            yield
        refused = DeleteAclsFilterResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER
        )
        return DeleteAclsResponse(filter_results=each(lambda _: refused, request.filters))


def _check_acl(resource_type: int, pattern_type: int, operation: int, permission: int) -> None:
    if (
        resource_type not in _RESOURCE_TYPES
        or pattern_type not in _PATTERN_TYPES
        or operation not in _OPERATIONS
        or permission not in _PERMISSIONS
    ):
        raise RemoteProtocolError("an ACL or a filter of ACLs has parts of unknown kinds")
