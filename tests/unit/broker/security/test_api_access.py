"""The authorization table: a line for every API that is served, and what some lines say."""

from __future__ import annotations

import pytest

from kraftrio.broker.api.unserved_apis import UNSERVED_BY_BROKERS, UNSERVED_BY_CONTROLLERS
from kraftrio.broker.security.api_access import API_ACCESS, CONTROLLER_API_ACCESS, Access
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, ResourceType
from kraftrio.wire.protocol.api import APIS, ApiKey


def test_every_served_api_has_a_line() -> None:
    """And no other API has one."""
    served = {
        api.key
        for api in APIS.values()
        if ("broker" in api.listeners and api.key not in UNSERVED_BY_BROKERS)
        or ("controller" in api.listeners and api.key not in UNSERVED_BY_CONTROLLERS)
    }
    assert API_ACCESS.keys() == served
    assert CONTROLLER_API_ACCESS.keys() == served


@pytest.mark.parametrize("access", [*API_ACCESS.values(), *CONTROLLER_API_ACCESS.values()])
def test_a_line_names_the_cluster_or_any_resource_of_a_type(access: Access) -> None:
    """Resources are looked up by name later, by the handlers; who needs nothing is not refused."""
    assert access.permissions or not access.is_refused_whole
    for _, resource in access.permissions:
        assert (resource == CLUSTER) == (resource.type is ResourceType.CLUSTER)
        assert resource.name is None or resource == CLUSTER


def test_only_nodes_of_the_cluster_fetch_the_metadata_log() -> None:
    """A client that may read topics fetches from brokers, not from controllers."""
    clients = {one.resource.type for one in API_ACCESS[ApiKey.FETCH].permissions}
    assert clients == {ResourceType.TOPIC, ResourceType.CLUSTER}
    assert CONTROLLER_API_ACCESS[ApiKey.FETCH].permissions == (
        (AclOperation.CLUSTER_ACTION, CLUSTER),
    )
