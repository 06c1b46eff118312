"""What a listener says that it serves."""

from __future__ import annotations

import pytest

from kraftrio.broker.api.api_versions import ApiVersionsHandler
from kraftrio.kraft_meta.controller.control import DEFAULT_FEATURES
from kraftrio.wire.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
)
from tests.unit.broker.api.cluster_context import ClusterContext, context


def api_versions(cluster: ClusterContext) -> ApiVersionsHandler:
    """ApiVersions of a listener that serves one API."""
    served = [ApiVersion(api_key=18, min_version=0, max_version=4)]
    return ApiVersionsHandler(lambda: served, cluster.metadata, DEFAULT_FEATURES)


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        (3, ["metadata.version"]),
        (
            4,
            [
                "group.version",
                "kraft.version",
                "metadata.version",
                "share.version",
                "streams.version",
                "transaction.version",
            ],
        ),
    ],
)
def test_api_versions_lists_apis_and_features(version: int, supported: list[str]) -> None:
    """Version 3 hides features that begin at 0; finalized levels come from the image, 0 is none."""
    cluster = ClusterContext()
    levels = (
        ("group.version", 1),
        ("metadata.version", 30),
        ("share.version", 1),
        ("streams.version", 1),
        ("transaction.version", 2),
    )
    assert dict(cluster.metadata.image.features) == dict(levels)
    request = ApiVersionsRequest(client_software_name="kt", client_software_version="1.0")
    asked = context(version)
    response = api_versions(cluster).api_versions(request, asked)
    assert response.error_code == 0
    assert [one.api_key for one in response.api_keys] == [18]
    assert [one.name for one in response.supported_features] == supported
    finalized = [(one.name, one.max_version_level) for one in response.finalized_features]
    assert finalized == list(levels)
    assert response.finalized_features_epoch == cluster.metadata.image.offset
    assert (asked.software_name, asked.software_version) == ("kt", "1.0")


@pytest.mark.parametrize(("name", "version"), [("a b", "1"), ("a", ""), ("-a", "1"), ("a", "1\n")])
def test_api_versions_refuses_malformed_software_names(name: str, version: str) -> None:
    """Software names are letters, digits, dots and dashes; the answer then lists nothing."""
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    handler = api_versions(ClusterContext())
    response = handler.api_versions(request, context(3))
    assert (response.error_code, response.api_keys) == (42, [])
    assert handler.api_versions(request, context(2)).error_code == 0
