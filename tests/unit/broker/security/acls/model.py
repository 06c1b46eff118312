"""The rules of ACLs, word for word and slowly: what `StandardAuthorizer` is compared with."""

from __future__ import annotations

from collections.abc import Collection

from kraftrio.broker.security.authorizer import Resource
from kraftrio.broker.security.principal import KafkaPrincipal
from kraftrio.kraft_meta.metadata.acl_image import Acl
from kraftrio.wire.protocol.acls import AclOperation, AclPermissionType, PatternType

_DESCRIBE_BY = ("DESCRIBE", "READ", "WRITE", "DELETE", "ALTER")
_DESCRIBE_CONFIGS_BY = ("DESCRIBE_CONFIGS", "ALTER_CONFIGS")


def may(
    acls: Collection[Acl],
    principal: KafkaPrincipal,
    host: str,
    operation: AclOperation,
    resource: Resource,
    *,
    allow_everyone: bool = False,
) -> bool:
    """Whether the ACLs allow this; of a resource without a name, rule 5."""
    if resource.name is None:
        return _may_any(acls, principal, host, operation, resource, allow_everyone=allow_everyone)
    about = [
        acl
        for acl in acls
        if acl.resource_type == resource.type and _stands_for(acl, resource.name)
    ]
    if not about:
        return allow_everyone
    found = [acl for acl in about if _names(acl, principal, host) and _covers(acl, operation)]
    permissions = {acl.permission_type for acl in found}
    return AclPermissionType.DENY not in permissions and AclPermissionType.ALLOW in permissions


def _may_any(
    acls: Collection[Acl],
    principal: KafkaPrincipal,
    host: str,
    operation: AclOperation,
    resource: Resource,
    *,
    allow_everyone: bool,
) -> bool:
    some = Resource(resource.type, "hardcode")
    if may(acls, principal, host, operation, some, allow_everyone=allow_everyone):
        return True
    about = [
        acl
        for acl in acls
        if acl.resource_type == resource.type
        and _names(acl, principal, host)
        and acl.operation in (operation, AclOperation.ALL)
    ]
    denied = [acl for acl in about if acl.permission_type == AclPermissionType.DENY]
    allowed = [acl for acl in about if acl.permission_type == AclPermissionType.ALLOW]
    if any(_is_wildcard(acl) for acl in denied):
        return False
    return any(
        _is_wildcard(acl) or not any(_dominates(other, acl) for other in denied) for acl in allowed
    )


def _is_wildcard(acl: Acl) -> bool:
    return acl.pattern_type == PatternType.LITERAL and acl.resource_name == "*"


def _dominates(denied: Acl, allowed: Acl) -> bool:
    if denied.pattern_type == PatternType.PREFIXED:
        return allowed.resource_name.startswith(denied.resource_name)
    return (
        allowed.pattern_type == PatternType.LITERAL
        and denied.resource_name == allowed.resource_name
    )


def _stands_for(acl: Acl, name: str) -> bool:
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def _names(acl: Acl, principal: KafkaPrincipal, host: str) -> bool:
    return acl.principal in (str(principal), "User:*") and acl.host in (host, "*")


def _covers(acl: Acl, operation: AclOperation) -> bool:
    named = AclOperation(acl.operation)
    if named in (AclOperation.ALL, operation):
        return True
    if acl.permission_type == AclPermissionType.DENY:
        return False
    if operation is AclOperation.DESCRIBE:
        return named.name in _DESCRIBE_BY
    return operation is AclOperation.DESCRIBE_CONFIGS and named.name in _DESCRIBE_CONFIGS_BY
