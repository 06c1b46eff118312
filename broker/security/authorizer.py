"""What a principal may do to a resource: the port that decides, and what it is asked about.

Owns: `Resource`, the port `Authorizer`, and `AllowAll`, which is what a broker without
`authorizer.class.name` uses. Operations and types of resources are the protocol's
(`wire/protocol/acls`).

Called by: the dispatcher for every request (`api_access`), and handlers, through their context,
for each resource that a request names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

from kraftrio.broker.security.principal import KafkaPrincipal
from kraftrio.wire.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType

__all__ = [
    "ALLOW_ALL",
    "CLUSTER",
    "OPERATIONS_ON",
    "AclOperation",
    "AllowAll",
    "AnyResource",
    "Authorizer",
    "Resource",
    "ResourceType",
    "authorized_operations",
    "trusting_nodes",
]


class Resource(NamedTuple):
    """One resource; without a name, any one of its type."""

    type: ResourceType
    name: str | None = None


AnyResource: TypeAlias = tuple[ResourceType, str | None]
"""A resource, or a plain tuple in its place where making one would cost more than the decision."""

CLUSTER: Final = Resource(ResourceType.CLUSTER, CLUSTER_NAME)

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
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource: AnyResource
    ) -> bool:
        """Whether a principal at `host` may do this; for a resource without a name, whether it may
        do it to at least one of that type.
        """


class AllowAll:
    """The authorizer of a cluster without access control."""

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource: AnyResource
    ) -> bool:
        return True


ALLOW_ALL: Final = AllowAll()


class TrustingNodes:
    """The authorizer of a controller: a node of the cluster speaks for its clients.

    A broker forwards what a client asks of the controller once it has asked the authorizer itself.
    Principals that may act for the cluster are trusted to have done so.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource: AnyResource
    ) -> bool:
        authorize = self._authorizer.authorize
        return authorize(principal, host, operation, resource) or authorize(
            principal, host, AclOperation.CLUSTER_ACTION, CLUSTER
        )


def trusting_nodes(authorizer: Authorizer) -> Authorizer:
    """Return what a controller's listener asks."""
    return authorizer if authorizer is ALLOW_ALL else TrustingNodes(authorizer)


def authorized_operations(
    authorizer: Authorizer, principal: KafkaPrincipal, host: str, resource: Resource
) -> int:
    """Return the bit field of what a principal may do to a resource (KIP-430)."""
    return sum(
        1 << operation
        for operation in OPERATIONS_ON[resource.type]
        if authorizer.authorize(principal, host, operation, resource)
    )
