"""Messages about the cluster: what the declarations promise to handlers and clients."""

from __future__ import annotations

import pytest

from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import LocalProtocolError
from kraftrio.wire.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Cursor,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
    SupportedFeatureKey,
)


def test_all_topics_are_asked_for_by_null_but_not_in_version_0() -> None:
    """Version 0 has no null; there an empty list means all."""
    everything = MetadataRequest(topics=None)
    assert decode(MetadataRequest, 1, encode(everything, 1))[0].topics is None
    assert decode(MetadataRequest, 12, encode(everything, 12))[0].topics is None
    with pytest.raises(LocalProtocolError):
        encode(everything, 0)


def test_auto_creation_is_allowed_unless_the_client_says_no() -> None:
    """Before version 4 clients cannot say it."""
    assert decode(MetadataRequest, 3, encode(MetadataRequest(topics=[]), 3))[
        0
    ].allow_auto_topic_creation
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    assert not decode(MetadataRequest, 4, encode(request, 4))[0].allow_auto_topic_creation
    with pytest.raises(LocalProtocolError, match="allow_auto_topic_creation"):
        encode(request, 3)


def test_topic_without_a_name_needs_version_12() -> None:
    """An answer about an unknown topic id has no name."""
    response = MetadataResponse(topics=[MetadataResponseTopic(name=None, topic_id=b"i" * 16)])
    assert decode(MetadataResponse, 12, encode(response, 12))[0].topics[0].name is None
    with pytest.raises(LocalProtocolError):
        encode(response, 11)


def test_api_versions_answers_the_oldest_clients() -> None:
    """Features are tagged and simply missing before version 3."""
    response = ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=0, min_version=0, max_version=13)],
        supported_features=[SupportedFeatureKey(name="group.version", max_version=1)],
        finalized_features_epoch=4,
    )
    assert encode(response, 0).hex() == "0000" + "00000001" + "0000" + "0000" + "000d"
    assert decode(ApiVersionsResponse, 3, encode(response, 3))[0] == response


def test_client_software_is_ignored_before_version_3() -> None:
    """A client may fill it in whatever version it ends up with."""
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    assert encode(request, 0) == b""
    assert decode(ApiVersionsRequest, 3, encode(request, 3))[0] == request


def test_many_coordinators_need_version_4() -> None:
    """One key before, a list of keys from then on; the wrong one is an error."""
    with pytest.raises(LocalProtocolError, match="coordinator_keys"):
        encode(FindCoordinatorRequest(coordinator_keys=["g"]), 3)
    with pytest.raises(LocalProtocolError, match="key"):
        encode(FindCoordinatorRequest(key="g"), 4)


def test_cursor_may_be_null() -> None:
    """The first page has no cursor."""
    first = DescribeTopicPartitionsRequest()
    assert decode(DescribeTopicPartitionsRequest, 0, encode(first, 0))[0].cursor is None
    second = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=5))
    decoded, _ = decode(DescribeTopicPartitionsRequest, 0, encode(second, 0))
    assert decoded.cursor == second.cursor
    assert decoded.response_partition_limit == 2000
