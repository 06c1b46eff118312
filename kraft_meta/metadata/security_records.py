"""Metadata records about who may do what, and how much: `SecurityRecord`.

Owns: the records of ACLs, of SCRAM credentials and of client quotas. The rules of `records`, which
encodes them, hold here, too. What must not be shown anywhere is declared with `field(repr=False)`.

Called by: records.py (their bytes), the controller (makes them), the image's parts (replay them).
"""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class UserScramCredentialRecord:
    """A user has this credential of a mechanism (`wire/sasl/scram_keys`). KIP-900."""

    TYPE_ID: ClassVar[int] = 11
    VERSION: ClassVar[int] = 0
    name: str
    mechanism: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class RemoveUserScramCredentialRecord:
    """A user has no credential of a mechanism any more."""

    TYPE_ID: ClassVar[int] = 22
    VERSION: ClassVar[int] = 0
    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ClientQuotaRecord:
    """A quota of an entity has a value, or none any more. KIP-546; entities: quota_image.py."""

    TYPE_ID: ClassVar[int] = 14
    VERSION: ClassVar[int] = 0
    entity: tuple[tuple[str, str], ...]
    key: str
    value: float
    remove: bool = False


@dataclass(frozen=True, slots=True)
class DelegationTokenRecord:
    """A delegation token exists, or has changed (`token_image.py`). KIP-48, KIP-900."""

    TYPE_ID: ClassVar[int] = 10
    VERSION: ClassVar[int] = 0
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    token_id: str


@dataclass(frozen=True, slots=True)
class RemoveDelegationTokenRecord:
    """A delegation token is gone."""

    TYPE_ID: ClassVar[int] = 26
    VERSION: ClassVar[int] = 0
    token_id: str


SecurityRecord: TypeAlias = (
    AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | ClientQuotaRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
)

SECURITY_RECORD_CLASSES: Final[tuple[type[SecurityRecord], ...]] = (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
    RemoveUserScramCredentialRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)
