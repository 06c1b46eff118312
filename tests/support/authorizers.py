"""Authorizers for tests."""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.broker.security.authorizer import AclOperation, AnyResource, Resource
from kraftrio.broker.security.principal import KafkaPrincipal


class Allow:
    """Allows some operations, and remembers what it was asked."""

    def __init__(self, allowed: Iterable[tuple[AclOperation, Resource]]) -> None:
        self.allowed = set(allowed)
        self.asked: list[tuple[KafkaPrincipal, str, AclOperation, AnyResource]] = []

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource: AnyResource
    ) -> bool:
        self.asked.append((principal, host, operation, resource))
        return (operation, resource) in self.allowed


class Denies:
    """Allows all but one operation, on one resource or on any."""

    def __init__(self, operation: AclOperation, resource: Resource | None = None) -> None:
        self._operation = operation
        self._resource = resource

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource: AnyResource
    ) -> bool:
        return operation is not self._operation or self._resource not in (None, resource)
