"""The authorization table: a line for every API that is served, and what some lines say."""

from __future__ import annotations

import pytest

from kraftrio.broker.api.unserved_apis import UNSERVED_BY_BROKERS, UNSERVED_BY_CONTROLLERS
from kraftrio.broker.security.api_access import (
    API_ACCESS,
    CONTROLLER_API_ACCESS,
    OPEN,
    REFUSALS,
    needs_cluster,
    topic,
)
from kraftrio.broker.security.authorizer import AclOperation, ResourceType
from kraftrio.wire.codec.message import spec_of
from kraftrio.wire.protocol.api import APIS, ApiKey


def test_every_served_api_has_a_line() -> None:
    """And no other API has one."""
    served = {
        api.key
        for api in APIS.values()
        if ("broker" in api.listeners and api.key not in UNSERVED_BY_BROKERS)
        or api.key is ApiKey.PUSH_TELEMETRY  # by brokers with a receiver of client metrics
        or ("controller" in api.listeners and api.key not in UNSERVED_BY_CONTROLLERS)
    }
    assert API_ACCESS.keys() == served
    assert CONTROLLER_API_ACCESS.keys() == served


@pytest.mark.parametrize("key", API_ACCESS)
def test_a_line_names_what_its_request_has(key: ApiKey) -> None:
    """The dispatcher asks about the cluster, or about the one resource that a field names."""
    for access in (API_ACCESS[key], CONTROLLER_API_ACCESS[key]):
        types = {permission.resource_type for permission in access.permissions}
        if access.name_field is None:
            assert types <= {ResourceType.CLUSTER}
        else:
            fields = {field.name for field in spec_of(APIS[key].request).fields}
            assert access.name_field in fields
            assert len(access.permissions) == 1
        assert types <= REFUSALS.keys()


def test_who_needs_nothing_is_named() -> None:
    """These are served to everybody: forgetting a line's permissions would show here."""
    assert {key.name for key, access in API_ACCESS.items() if access == OPEN} == {
        "API_VERSIONS",
        "DESCRIBE_CLUSTER",
        "GET_TELEMETRY_SUBSCRIPTIONS",
        "PUSH_TELEMETRY",
        "SASL_HANDSHAKE",
        "SASL_AUTHENTICATE",
        "RENEW_DELEGATION_TOKEN",
        "EXPIRE_DELEGATION_TOKEN",
    }


def test_only_nodes_of_the_cluster_fetch_the_metadata_log() -> None:
    """A client that may read topics fetches from brokers, not from controllers."""
    assert topic(AclOperation.READ) in API_ACCESS[ApiKey.FETCH].asked_by_handler
    assert CONTROLLER_API_ACCESS[ApiKey.FETCH] == needs_cluster(AclOperation.CLUSTER_ACTION)
