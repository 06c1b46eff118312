"""Authorizers for tests."""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.broker.security.authorizer import AclOperation, Resource
from kraftrio.broker.security.principal import KafkaPrincipal


class Allow:
    """Allows some operations, and remembers what it was asked."""

    def __init__(self, allowed: Iterable[tuple[AclOperation, Resource]]) -> None:
        self.allowed = set(allowed)
        self.asked: list[tuple[KafkaPrincipal, str, AclOperation, Resource]] = []

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource: Resource
    ) -> bool:
        self.asked.append((principal, host, operation, resource))
        return (operation, resource) in self.allowed
