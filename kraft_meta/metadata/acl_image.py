"""The ACLs of the cluster, a part of its metadata: `Acl`, `AclFilter`, `AclChanges`.

Rules
1. An ACL's id is made of what it says, so that the same ACL exists once, and is found by what it
   says as fast as by its id.
2. An ACL is what a principal (a type and a name, or every name) may or may not do, from a host or
   from all, to the resources that a pattern stands for.

Called by: image.py; the controller, which makes and removes ACLs; requests about them; the
authorizer. Kafka's counterparts: AclsImage, StandardAcl, AclBindingFilter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgpack
from immutables import Map

from kraftrio.kraft_meta.metadata.image_parts import ImagePart
from kraftrio.kraft_meta.metadata.security_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from kraftrio.wire.messages.security import DeleteAclsFilter, DescribeAclsRequest
from kraftrio.wire.protocol.acls import (
    WILDCARD,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)

_ID_BYTES: Final = 16


class Acl(NamedTuple):
    """One access control list entry; the numbers are those of `wire/protocol/acls`."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @property
    def id(self) -> bytes:
        """The id of an ACL that says this."""
        said = msgpack.packb(tuple(self), use_bin_type=True)
        return hashlib.sha256(said).digest()[:_ID_BYTES]


class AclFilter(NamedTuple):
    """Which ACLs are meant: those that agree with every part that is not None or ANY.

    With the pattern type MATCH, a name stands for all patterns that apply to a resource of that
    name: the literal one, the prefixed ones that it begins with, and the wildcard.
    """

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @classmethod
    def of(cls, asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
        """Return the filter of a request; a part of an unknown kind is UNKNOWN."""
        return cls(
            ResourceType(asked.resource_type_filter),
            asked.resource_name_filter,
            PatternType(asked.pattern_type_filter),
            asked.principal_filter,
            asked.host_filter,
            AclOperation(asked.operation),
            AclPermissionType(asked.permission_type),
        )

    @property
    def only(self) -> Acl | None:
        """The one ACL that can agree with this filter; None if there could be others."""
        if None in self or self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            return None
        if (
            self.resource_type == ResourceType.ANY
            or self.operation == AclOperation.ANY
            or self.permission_type == AclPermissionType.ANY
        ):
            return None
        return Acl(*self)  # type: ignore[arg-type]  # no part is None

    def matches(self, acl: Acl) -> bool:
        """Return whether an ACL agrees with this filter."""
        kind, name, pattern_type, principal, host, operation, permission_type = self
        return (
            (kind in (ResourceType.ANY, acl.resource_type))
            and (principal is None or principal == acl.principal)
            and (host is None or host == acl.host)
            and (operation in (AclOperation.ANY, acl.operation))
            and (permission_type in (AclPermissionType.ANY, acl.permission_type))
            and (pattern_type in (PatternType.ANY, PatternType.MATCH, acl.pattern_type))
            and (
                name is None
                or name == acl.resource_name
                or (pattern_type == PatternType.MATCH and _applies(acl, name))
            )
        )

    def among(self, acls: Map[bytes, Acl]) -> Iterator[Acl | None]:
        """Yield the ACLs that agree with this filter, and None for each of the others."""
        only = self.only
        if only is not None:
            yield acls.get(only.id)
            return
        for acl in acls.values():
            yield acl if self.matches(acl) else None


def _applies(acl: Acl, name: str) -> bool:
    """Return whether an ACL's pattern, which is not that name itself, stands for that name."""
    if acl.pattern_type == PatternType.LITERAL:
        return acl.resource_name == WILDCARD
    return name.startswith(acl.resource_name)


class AclChanges(ImagePart[bytes, Acl]):
    """What changes among the ACLs, by id."""

    FIELD = "acls"
    RECORDS = (AccessControlEntryRecord, RemoveAccessControlEntryRecord)

    __slots__ = ()

    def replay(self, record: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> None:
        if isinstance(record, RemoveAccessControlEntryRecord):
            self.remove(record.id)
        else:
            acl = _acl(record)
            assert acl.id == record.id, "an ACL whose id is another one's"
            self.changed[record.id] = acl

    @staticmethod
    def to_records(entries: Map[bytes, Acl]) -> Iterator[AccessControlEntryRecord]:
        return to_records(entries.values())


def to_records(acls: Iterable[Acl]) -> Iterator[AccessControlEntryRecord]:
    """Yield the records that make ACLs, sorted by what they say."""
    for acl in sorted(acls):
        yield AccessControlEntryRecord(acl.id, *acl)


def _acl(record: AccessControlEntryRecord) -> Acl:
    return Acl(
        resource_type=record.resource_type,
        resource_name=record.resource_name,
        pattern_type=record.pattern_type,
        principal=record.principal,
        host=record.host,
        operation=record.operation,
        permission_type=record.permission_type,
    )
