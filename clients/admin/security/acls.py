"""The admin client's part for ACLs: who may do what with which resource, from where.

Owns `AclAdmin`, which programs reach as `Admin.acls`, and the values it takes and returns. ACLs
hold where brokers have an authorizer; one that has none says `SecurityDisabledError`.

Called by: `admin`. KIP-140, KIP-290 (prefixes).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kraftrio.clients.admin.calls import Begin, collect, finish
from kraftrio.clients.admin.types import Results
from kraftrio.clients.arguments.several import several
from kraftrio.clients.arguments.times import Duration
from kraftrio.clients.arguments.values import text
from kraftrio.clients.errors import KafkaClientError, error_for
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.security import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from kraftrio.wire.protocol.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)

__all__ = [
    "Acl",
    "AclAdmin",
    "AclFilter",
    "AclOperation",
    "AclPermissionType",
    "PatternType",
    "ResourceType",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Acl:
    """An access control list's entry.

    Attributes:
        resource_name: "*" is every resource of the type; of CLUSTER there is one only.
        principal: such as "User:alice"; "User:*" is everybody.
        host: the address it holds for; "*" is every one.
    """

    resource_type: ResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermissionType = AclPermissionType.ALLOW
    host: str = WILDCARD
    pattern_type: PatternType = PatternType.LITERAL

    @classmethod
    def of_cluster(
        cls,
        principal: str,
        operation: AclOperation,
        permission: AclPermissionType = AclPermissionType.ALLOW,
        host: str = WILDCARD,
    ) -> Acl:
        """Return an entry about the cluster itself."""
        return cls(ResourceType.CLUSTER, CLUSTER_NAME, principal, operation, permission, host)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which entries are meant: those that fit in everything; None and ANY fit all.

    Attributes:
        pattern_type: MATCH: whatever applies to a resource of that name.
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermissionType = AclPermissionType.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY


class AclAdmin:
    """Administers ACLs.

    Args:
        begin: begins a call, which may take some milliseconds at most.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin

    async def describe(
        self, wanted: AclFilter | None = None, *, timeout_ms: Duration | None = None
    ) -> list[Acl]:
        """Return the entries that fit; without a filter all there are.

        Raises:
            SecurityDisabledError: the broker has no authorizer.
            ClusterAuthorizationError: the user may not describe the cluster.
        """
        chosen = _checked("an ACL filter", AclFilter() if wanted is None else wanted, AclFilter)
        request = DescribeAclsRequest(
            resource_type_filter=ResourceType(chosen.resource_type),
            resource_name_filter=chosen.resource_name,
            pattern_type_filter=PatternType(chosen.pattern_type),
            principal_filter=chosen.principal,
            host_filter=chosen.host,
            operation=AclOperation(chosen.operation),
            permission_type=AclPermissionType(chosen.permission),
        )
        calls, deadline = self._begin(timeout_ms)
        response: DescribeAclsResponse = await calls.ask_any(
            request, deadline, lambda answer: (answer.error_code, answer.error_message)
        )
        return [
            Acl(
                ResourceType(resource.resource_type),
                resource.resource_name,
                acl.principal,
                AclOperation(acl.operation),
                AclPermissionType(acl.permission_type),
                acl.host,
                PatternType(resource.pattern_type),
            )
            for resource in response.resources
            for acl in resource.acls
        ]

    async def create(
        self,
        acls: Acl | Iterable[Acl],
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[Acl, None]:
        """Create entries; those that are there already stay.

        Raises:
            SecurityDisabledError, ClusterAuthorizationError, ...: for an entry,
                if `raise_errors`.
        """
        wanted = [_checked("an ACL", acl, Acl) for acl in several("acls", acls, Acl)]
        calls, deadline = self._begin(timeout_ms)
        request = CreateAclsRequest(creations=[_creation(acl) for acl in wanted])
        response: CreateAclsResponse = await calls.ask_any(request, deadline)
        results = collect(
            (acl, reported.error_code, reported.error_message, None)
            for acl, reported in zip(wanted, response.results, strict=True)
        )
        return finish(results, raise_errors)

    async def delete(
        self,
        filters: AclFilter | Iterable[AclFilter],
        *,
        timeout_ms: Duration | None = None,
        raise_errors: bool = True,
    ) -> Results[AclFilter, list[Acl]]:
        """Delete the entries that fit a filter; return for each what was deleted.

        Raises:
            SecurityDisabledError, ClusterAuthorizationError, ...: for a filter, if `raise_errors`.
        """
        wanted = [
            _checked("an ACL filter", each, AclFilter)
            for each in several("filters", filters, AclFilter)
        ]
        calls, deadline = self._begin(timeout_ms)
        request = DeleteAclsRequest(filters=[_deletion(each) for each in wanted])
        response: DeleteAclsResponse = await calls.ask_any(request, deadline)
        values: dict[AclFilter, list[Acl]] = {}
        errors: dict[AclFilter, KafkaClientError] = {}
        for each, reported in zip(wanted, response.filter_results, strict=True):
            try:
                values[each] = _deleted(reported)
            except KafkaClientError as error:
                errors[each] = error
        return finish(Results(values, errors), raise_errors)


def _checked(what: str, given: T, kind: type[T]) -> T:
    if not isinstance(given, kind):
        raise TypeError(f"{what} must be an {kind.__name__}, not {given!r}")
    for name in ("resource_name", "principal", "host"):
        value = getattr(given, name)
        if value is not None or kind is Acl:
            text(f"the {name} of {what}", value)
    return given


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=ResourceType(acl.resource_type),
        resource_name=acl.resource_name,
        resource_pattern_type=PatternType(acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=AclOperation(acl.operation),
        permission_type=AclPermissionType(acl.permission),
    )


def _deletion(wanted: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=ResourceType(wanted.resource_type),
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=PatternType(wanted.pattern_type),
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=AclOperation(wanted.operation),
        permission_type=AclPermissionType(wanted.permission),
    )


def _deleted(reported: DeleteAclsFilterResult) -> list[Acl]:
    """Return what a filter deleted.

    Raises:
        KafkaClientError: it, or one of its entries, was refused.
    """
    outcomes: Sequence[DeleteAclsFilterResult | DeleteAclsMatchingAcl] = [
        reported,
        *reported.matching_acls,
    ]
    for outcome in outcomes:
        if outcome.error_code != ErrorCode.NONE:
            raise error_for(outcome.error_code, outcome.error_message)
    return [
        Acl(
            ResourceType(acl.resource_type),
            acl.resource_name,
            acl.principal,
            AclOperation(acl.operation),
            AclPermissionType(acl.permission_type),
            acl.host,
            PatternType(acl.pattern_type),
        )
        for acl in reported.matching_acls
    ]
