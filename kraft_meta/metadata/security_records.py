"""Metadata records about who may do what: `SecurityRecord`.

Owns: the records of ACLs. The rules of `records`, which encodes them, hold here, too. What must
not be shown anywhere is declared with `field(repr=False)`.

Called by: records.py (their bytes), the controller (makes them), the image's parts (replay them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias


@dataclass(frozen=True, slots=True)
class AccessControlEntryRecord:
    """An ACL exists. KIP-801; the numbers are the protocol's (`wire/protocol/acls`)."""

    TYPE_ID: ClassVar[int] = 18
    VERSION: ClassVar[int] = 0
    id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntryRecord:
    """An ACL is gone."""

    TYPE_ID: ClassVar[int] = 19
    VERSION: ClassVar[int] = 0
    id: bytes


SecurityRecord: TypeAlias = AccessControlEntryRecord | RemoveAccessControlEntryRecord

SECURITY_RECORD_CLASSES: Final[tuple[type[SecurityRecord], ...]] = (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
