"""What a principal may do to a resource: the vocabulary of ACLs, and the port that decides.

Owns: `AclOperation`, `ResourceType`, `Resource`, the port `Authorizer`, and `AllowAll`, which is
what a broker without `authorizer.class.name` uses. The numbers are the protocol's (KIP-140).

Called by: the dispatcher for every request (`api_access`), and handlers, through their context,
for each resource that a request names.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from kraftrio.broker.security.principal import KafkaPrincipal


class AclOperation(IntEnum):
    """What can be done to resources."""

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


class ResourceType(IntEnum):
    """What something can be done to."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Resource(NamedTuple):
    """One resource; without a name, any one of its type."""

    type: ResourceType
    name: str | None = None


CLUSTER: Final = Resource(ResourceType.CLUSTER, "kafka-cluster")

OPERATIONS_ON: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
"""The operations that responses report as authorized, by type of resource (KIP-430)."""


class Authorizer(Protocol):
    """Decides on every access."""

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource: Resource
    ) -> bool:
        """Whether a principal at `host` may do this; for a resource without a name, whether it may
        do it to at least one of that type.
        """


class AllowAll:
    """The authorizer of a cluster without access control."""

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource: Resource
    ) -> bool:
        return True


ALLOW_ALL: Final = AllowAll()


def authorized_operations(
    authorizer: Authorizer, principal: KafkaPrincipal, host: str, resource: Resource
) -> int:
    """Return the bit field of what a principal may do to a resource (KIP-430)."""
    return sum(
        1 << operation
        for operation in OPERATIONS_ON[resource.type]
        if authorizer.authorize(principal, host, operation, resource)
    )
