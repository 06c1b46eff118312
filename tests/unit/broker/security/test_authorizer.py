"""The vocabulary of ACLs, and what a principal may do as a bit field."""

from __future__ import annotations

import pytest

from kraftrio.broker.security.authorizer import (
    ALLOW_ALL,
    CLUSTER,
    OPERATIONS_ON,
    AclOperation,
    Resource,
    ResourceType,
    authorized_operations,
)
from kraftrio.broker.security.principal import ANONYMOUS, KafkaPrincipal
from tests.support.authorizers import Allow

_TOPIC = Resource(ResourceType.TOPIC, "t")


@pytest.mark.parametrize(
    ("resource", "bits"),
    [(_TOPIC, 3576), (CLUSTER, 8096), (Resource(ResourceType.GROUP, "g"), 3400)],
)
def test_without_access_control_everything_is_authorized(resource: Resource, bits: int) -> None:
    """The numbers are those that Apache Kafka answers."""
    assert authorized_operations(ALLOW_ALL, ANONYMOUS, "h", resource) == bits
    for operation in OPERATIONS_ON[resource.type]:
        assert ALLOW_ALL.authorize(ANONYMOUS, "h", operation, resource)


def test_the_bits_are_what_the_authorizer_says() -> None:
    """It is asked about this principal, host and resource, and no other."""
    alice = KafkaPrincipal("User", "alice")
    authorizer = Allow({(AclOperation.READ, _TOPIC), (AclOperation.DESCRIBE, _TOPIC)})
    assert authorized_operations(authorizer, alice, "h", _TOPIC) == 1 << 3 | 1 << 8
    other = Resource(ResourceType.TOPIC, "other")
    assert authorized_operations(authorizer, alice, "h", other) == 0
    assert {asked[:2] for asked in authorizer.asked} == {(alice, "h")}


def test_a_principal_is_written_as_acls_name_it() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
