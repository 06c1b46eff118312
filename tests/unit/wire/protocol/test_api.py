"""The table of APIs: `kraftrio.wire.protocol.api`."""

from __future__ import annotations

import pytest

from kraftrio.wire.codec.message import encode, spec_of
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from kraftrio.wire.protocol.api import (
    APIS,
    ApiKey,
    decode_request,
    request_header_version,
    response_header_version,
)


def test_table_is_in_key_order_and_consistent() -> None:
    """Every entry has its own key, and classes declared for it."""
    assert list(APIS) == sorted(APIS)
    for key, api in APIS.items():
        assert api.key == key
        assert spec_of(api.request).api_key == spec_of(api.response).api_key == key
        assert spec_of(api.request).versions == spec_of(api.response).versions
        assert spec_of(api.request).flexible == spec_of(api.response).flexible
        assert spec_of(api.request).name == f"{api.name}Request"
        assert spec_of(api.response).name == f"{api.name}Response"
        assert api.listeners
        assert api.listeners <= {"broker", "controller"}


def test_names_of_keys_are_those_of_the_classes() -> None:
    """ApiKey.FIND_COORDINATOR goes with FindCoordinatorRequest, and so on."""
    for api in APIS.values():
        assert api.key.name.replace("_", "").lower() == api.name.lower()


def test_produce_is_advertised_from_0_but_decoded_from_3() -> None:
    """Old librdkafka looks for version 0; a request of it is then refused (KIP-896)."""
    api = APIS[ApiKey.PRODUCE]
    assert (api.min_version, api.max_version) == (0, 13)
    for version in range(3):
        with pytest.raises(RemoteProtocolError):
            decode_request(api, version, bytes(100))


def test_unstable_version_is_not_advertised() -> None:
    """InitProducerId 6 can be decoded, but is not offered."""
    api = APIS[ApiKey.INIT_PRODUCER_ID]
    assert api.latest_unstable
    assert api.max_version == 5
    versions = spec_of(api.request).versions
    assert versions is not None
    assert versions.last == 6
    assert [api.name for api in APIS.values() if api.latest_unstable] == ["InitProducerId"]


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.METADATA, 0, 1, 0),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 4, 2, 0),
        (ApiKey.OFFSET_DELETE, 0, 1, 0),
        (ApiKey.VOTE, 0, 2, 1),
    ],
)
def test_header_versions(key: int, version: int, request_header: int, response_header: int) -> None:
    """Flexible versions have flexible headers, but for the response of ApiVersions."""
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header


def test_decode_request_ignores_bytes_after_the_request() -> None:
    """Some clients send more than the request, and Kafka ignores it."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t1")])
    data = b"head" + encode(request, 12) + b"more"
    assert decode_request(APIS[ApiKey.METADATA], 12, data, 4) == request
