"""CreateAcls and DeleteAcls: which ACLs come and go with a request.

Behaviour: each ACL, and each filter, succeeds or fails alone. An ACL that exists already is created
again without a record; one that two filters of a request agree with is named by both of them.
The receiver of the request has asked whether the principal may do this.

Called by: controller.py. Kafka's counterpart: AclControlManager, and for the names AclApis.
"""

from __future__ import annotations

from kraftrio.kraft_meta.controller.control import ControllerResult, DecisionContext
from kraftrio.kraft_meta.metadata.acl_image import Acl, AclFilter
from kraftrio.kraft_meta.metadata.records import MetadataRecord
from kraftrio.kraft_meta.metadata.security_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.security import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kraftrio.wire.protocol.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)


def create_acls(request: CreateAclsRequest, context: DecisionContext) -> ControllerResult:
    """Create the ACLs that are not there yet."""
    created: dict[bytes, MetadataRecord] = {}
    results = []
    for creation in request.creations:
        result = AclCreationResult()
        try:
            acl = _new_acl(creation)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            if acl.id not in context.image.acls:
                created[acl.id] = AccessControlEntryRecord(acl.id, *acl)
        results.append(result)
    return ControllerResult(list(created.values()), CreateAclsResponse(results=results))


def delete_acls(request: DeleteAclsRequest, context: DecisionContext) -> ControllerResult:
    """Delete the ACLs that agree with any of the filters."""
    deleted: dict[bytes, MetadataRecord] = {}
    results = []
    for data in request.filters:
        result = DeleteAclsFilterResult(error_message=None)
        try:
            acl_filter = filter_of(data)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            for acl in acl_filter.among(context.image.acls):
                if acl is not None:
                    deleted[acl.id] = RemoveAccessControlEntryRecord(acl.id)
                    result.matching_acls.append(_matching(acl))
        results.append(result)
    return ControllerResult(list(deleted.values()), DeleteAclsResponse(filter_results=results))


def filter_of(data: DeleteAclsFilter) -> AclFilter:
    """Return the filter of a request; INVALID_REQUEST if a part of it is of an unknown kind."""
    acl_filter = AclFilter.of(data)
    if not acl_filter.resource_type or not acl_filter.pattern_type:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if not acl_filter.operation or not acl_filter.permission_type:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    return acl_filter


def _new_acl(creation: AclCreation) -> Acl:
    """Return the ACL that is asked for; INVALID_REQUEST, with Kafka's reason, if it cannot be."""
    resource_type = ResourceType(creation.resource_type)
    pattern_type = PatternType(creation.resource_pattern_type)
    operation = AclOperation(creation.operation)
    permission_type = AclPermissionType(creation.permission_type)
    reason = None
    if resource_type is ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        reason = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not creation.resource_name:
        reason = "Invalid empty resource name"
    elif resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        reason = f"Invalid resourceType {resource_type.name}"
    elif pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        reason = f"Invalid patternType {pattern_type.name}"
    elif operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        reason = f"Invalid operation {operation.name}"
    elif permission_type not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        reason = f"Invalid permissionType {permission_type.name}"
    elif ":" not in creation.principal:
        reason = (
            f"Could not parse principal from `{creation.principal}` (no colon is present "
            "separating the principal type from the principal name)"
        )
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return Acl(
        int(resource_type),
        creation.resource_name,
        int(pattern_type),
        creation.principal,
        creation.host,
        int(operation),
        int(permission_type),
    )


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
