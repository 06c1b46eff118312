"""The vocabulary of access control lists: the protocol's numbers, with Kafka's names (KIP-140).

Owns: `ResourceType`, `PatternType`, `AclOperation`, `AclPermissionType`, and the special names.
UNKNOWN stands for every number without a name here. ANY and MATCH are for filters only: ANY is
everything; MATCH is every pattern that applies to a name, literal, prefixed or the wildcard
(KIP-290).

Called by: the authorizer, the controller, requests about ACLs and the admin client.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class _Numbered(IntEnum):
    """A number of the protocol; one that it does not name is UNKNOWN, which is 0 everywhere."""

    @classmethod
    def _missing_(cls, _value: object) -> _Numbered:
        return cls(0)

    # As quick as the number's: these are parts of keys, for each decision of an authorizer.
    __hash__ = int.__hash__


class ResourceType(_Numbered):
    """What something can be done to."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Numbered):
    """How the name of a pattern stands for the names of resources."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Numbered):
    """What can be done to resources; ALL is each of them."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(_Numbered):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


WILDCARD: Final = "*"
"""As a literal name: every resource of the type. As a host: every host. As a principal's name:
every principal of the type."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""
