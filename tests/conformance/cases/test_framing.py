"""Protocol negotiation and framing: versions, layouts, order, and what closes a connection."""

from __future__ import annotations

import functools
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
)
from kraftrio.wire.messages.data import FetchPartition
from kraftrio.wire.protocol.api import APIS, request_header_version, response_header_version
from tests.conformance.cases.bodies import bodies, complete
from tests.conformance.cases.calls import (
    FETCH_BY_NAME,
    append,
    batch_of,
    create_topic,
    describe_topic,
    end_offset,
    fetch_request,
    list_offset,
    produce_request,
    topic_id,
)
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.definitions import (
    Definition,
    decode_values,
    encode_values,
    load_definitions,
)
from tests.conformance.kafka_libs import jar_path

API_VERSIONS = 18
PRODUCE = 0
PRODUCE_FIRST_SERVED = 3


def hello() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="cases", client_software_version="1.0")


def advertised(client: RawClient) -> dict[int, tuple[int, int]]:
    response = client.call(hello())
    assert response.error_code == ErrorCode.NONE
    return {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}


def header(
    key: int, version: int, client_id: bytes = b"\x00\x03raw", correlation_id: int = 7
) -> bytes:
    return struct.pack(">hhi", key, version, correlation_id) + client_id


def unsupported(client: RawClient) -> ApiVersionsResponse:
    """Read the answer to an ApiVersions of an unknown version: layout 0, header 0."""
    frame = client.read_frame()
    assert frame[:4] == struct.pack(">i", 7)
    response, end = decode(ApiVersionsResponse, 0, frame, 4)
    assert end == len(frame)
    return response


# ApiVersions


@pytest.mark.parametrize("version", [5, 127, 32767])
@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x01 no layout at all"])
def test_unknown_api_versions_version_is_answered_in_the_first_layout(
    client: RawClient, version: int, body: bytes
) -> None:
    """A client that opens with a newer ApiVersions learns the range and goes on (KIP-511)."""
    _, newest = advertised(client)[API_VERSIONS]
    client.send_frame(header(API_VERSIONS, version) + b"\x00" + body)
    response = unsupported(client)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(one.api_key, one.min_version, one.max_version) for one in response.api_keys] == [
        (API_VERSIONS, 0, newest)
    ]
    assert client.call(hello(), 3).error_code == ErrorCode.NONE


def test_negative_api_versions_version_is_answered_too(client: RawClient) -> None:
    """Version -1 has a header without tags."""
    client.send_frame(header(API_VERSIONS, -1))
    assert unsupported(client).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_unknown_api_versions_version_needs_a_readable_header(client: RawClient) -> None:
    """The tag section of the header of a flexible version has to be there."""
    client.send_frame(header(API_VERSIONS, 127) + b"\xff\xfe\x01")
    assert client.is_closed()


@pytest.mark.parametrize(
    ("name", "version"),
    [("a b", "1"), ("", "1"), ("ok", ""), ("-a", "1"), ("a-", "1"), ("a", "1_0"), ("ä", "1")],
)
def test_strange_software_name_is_an_invalid_request(
    client: RawClient, name: str, version: str
) -> None:
    """Names must be letters, digits, dots and hyphens; the connection can be used afterwards."""
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    for api_version in (3, 4):
        response = client.call(request, api_version)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert response.api_keys == []
    assert client.call(hello()).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "x.y-z.9", "0"])
def test_usual_software_names_are_accepted(client: RawClient, name: str) -> None:
    """One character is enough, and dots and hyphens may be inside."""
    request = ApiVersionsRequest(client_software_name=name, client_software_version="4.3.1")
    assert client.call(request).error_code == ErrorCode.NONE


def test_api_versions_may_be_repeated(client: RawClient) -> None:
    """It is not only a first request, and every version lists the same APIs."""
    listed = [client.call(hello(), version).api_keys for version in (0, 1, 2, 3, 4, 0)]
    assert all(one == listed[0] for one in listed)


def test_features_with_a_zero_minimum_are_kept_from_old_clients(client: RawClient) -> None:
    """Clients before version 4 cannot read a feature range that begins at 0."""
    assert all(one.min_version > 0 for one in client.call(hello(), 3).supported_features)
    assert any(one.min_version == 0 for one in client.call(hello(), 4).supported_features)


# What closes the connection


def test_versions_outside_the_advertised_range_close_the_connection(
    connect: Callable[[], RawClient],
) -> None:
    """Of every API: one above the newest and one below the oldest; nobody else is disturbed."""
    bystander = connect()
    refused = [
        (key, version)
        for key, (oldest, newest) in advertised(bystander).items()
        if key != API_VERSIONS
        for version in {newest + 1, (PRODUCE_FIRST_SERVED if key == PRODUCE else oldest) - 1}
    ]
    clients = []
    for key, version in refused:
        client = connect()
        client.send_frame(header(key, version) + bytes(64))
        clients.append(client)
    for client, one in zip(clients, refused, strict=True):
        assert client.is_closed(), one
        client.close()
    assert bystander.call(hello()).error_code == ErrorCode.NONE


def test_old_produce_versions_are_advertised_yet_refused(client: RawClient) -> None:
    """Older librdkafka compresses only where version 0 is offered."""
    assert advertised(client)[PRODUCE][0] == 0
    client.send_frame(header(PRODUCE, 2) + bytes(64))
    assert client.is_closed()


CLOSING = {
    "an unknown key": header(999, 0),
    "a negative key": header(-1, 0),
    "a removed API": header(6, 8) + bytes(32),
    "an API of controllers": header(52, 0) + bytes(64),
    "a cut body": header(3, 1) + b"\x00\x00",
    "an absurd array": header(3, 1) + b"\x7f\xff\xff\xff",
    "a negative string length": header(10, 0) + b"\xff\xff",
    "a header without end": struct.pack(">hhi", 3, 1, 7) + b"\x00\x09ab",
    "an empty frame": b"",
    "three bytes": b"\x00\x12\x00",
}


@pytest.mark.parametrize("frame", CLOSING.values(), ids=CLOSING.keys())
def test_malformed_request_closes_the_connection(
    connect: Callable[[], RawClient], frame: bytes
) -> None:
    """There is no answer to what cannot be read, and other connections go on."""
    client = connect()
    client.send_frame(frame)
    assert client.is_closed()
    assert connect().call(hello()).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_impossible_frame_length_closes_the_connection(client: RawClient, data: bytes) -> None:
    """Negative, above socket.request.max.bytes, or not Kafka at all."""
    client.socket.sendall(data)
    assert client.is_closed()


def test_bytes_after_a_request_are_ignored(client: RawClient) -> None:
    """librdkafka sends some."""
    request = MetadataRequest(topics=[])
    client.send_frame(client.frame_of(request, 13, 7) + b"\x00\x00\x00")
    assert client.receive(request, 13, 7).error_code == ErrorCode.NONE


def test_null_client_id_is_fine(bootstrap: str) -> None:
    """Not every client names itself."""
    with RawClient(bootstrap, client_id=None) as client:
        for version in (0, 3):
            assert client.call(hello(), version).error_code == ErrorCode.NONE


def test_unknown_tagged_fields_are_ignored(client: RawClient) -> None:
    """Of the header and of the body: a newer client may send them."""
    tags = b"\x01\xe7\x07\x03abc"  # tag 999 with three bytes
    body = encode(hello(), 3)
    client.send_frame(header(API_VERSIONS, 3) + tags + body[:-1] + tags)
    assert client.receive(hello(), 3, 7).error_code == ErrorCode.NONE


# Order


def test_pipelined_responses_leave_in_the_order_of_requests(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """A fetch that waits holds back what was asked after it, on that connection only."""
    topic = new_topic()
    waiting = fetch_request(
        topic,
        FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20),
        max_wait_ms=200,
    )
    sent: list[tuple[Any, int, int]] = []
    for round_number in range(100):
        requests = [(hello(), 3), (MetadataRequest(topics=[]), 12)]
        if round_number % 50 == 0:
            requests.insert(0, (waiting, FETCH_BY_NAME))
        sent += [(one, version, client.send(one, version)) for one, version in requests]
    for request, version, correlation_id in sent:
        client.receive(request, version, correlation_id)


def test_produce_without_acks_takes_no_place_in_the_order(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """acks=0 is never answered; the next response belongs to the next request."""
    topic = new_topic()
    for _ in range(3):
        client.send(produce_request(topic, batch_of(b"x"), acks=0), 9)
        assert client.call(hello()).error_code == ErrorCode.NONE
    deadline = time.monotonic() + 5
    while end_offset(client, topic) < 3:
        assert time.monotonic() < deadline


def test_failed_produce_without_acks_closes_the_connection(
    connect: Callable[[], RawClient], unique_topic: Callable[[], str]
) -> None:
    """Only by this does such a producer learn that it must refresh its metadata."""
    client = connect()
    client.send(produce_request(unique_topic(), batch_of(b"x"), acks=0), 9)
    assert client.is_closed()


def test_requests_in_single_bytes_are_put_together(client: RawClient) -> None:
    """A frame may arrive in any pieces."""
    frame = client.frame_of(hello(), 3, 9)
    for byte in struct.pack(">i", len(frame)) + frame:
        client.socket.sendall(bytes([byte]))
    assert client.receive(hello(), 3, 9).error_code == ErrorCode.NONE


# Every version in its layout


@functools.cache
def definitions() -> dict[str, Definition]:
    return load_definitions(jar_path())


@pytest.fixture(scope="module")
def subjects(broker: Any) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Requests about a topic with a record, which the tests below share."""
    with RawClient(broker.address) as client:
        topic = create_topic(client, "every-version")
        append(client, topic, b"v")
        yield bodies(topic, topic_id(client, topic), "every-version-group")


@pytest.mark.parametrize("name", bodies("", b"", ""))
def test_every_advertised_version_is_answered_in_its_layout(
    client: RawClient, subjects: dict[str, list[dict[str, Any]]], name: str
) -> None:
    """An independent codec writes the request and reads the answer to its last byte."""
    (key,) = (key for key, api in APIS.items() if api.name == name)
    request, response = definitions()[f"{name}Request"], definitions()[f"{name}Response"]
    oldest, newest = advertised(client)[key]
    for version in range(max(oldest, request.valid.first), newest + 1):
        for body in subjects[name]:
            head = header(key, version) + b"\x00" * (request_header_version(key, version) - 1)
            client.send_frame(head + encode_values(request, version, complete(request, body)))
            frame = client.read_frame()
            assert frame[:4] == struct.pack(">i", 7)
            start = 4 + response_header_version(key, version)
            values, end = decode_values(response, version, frame, start)
            assert end == len(frame), f"{name} {version}: {frame[end:].hex()}"
            codes = set(error_codes(values))
            assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes, (version, values)


def error_codes(values: Any) -> Iterator[int]:
    """Find every error code in a response."""
    if isinstance(values, dict):
        for name, value in values.items():
            if name == "ErrorCode":
                yield value
            else:
                yield from error_codes(value)
    elif isinstance(values, list):
        for value in values:
            yield from error_codes(value)


def test_there_is_a_request_for_every_api_that_we_serve(
    client: RawClient, broker: Any, subjects: dict[str, list[dict[str, Any]]]
) -> None:
    """Otherwise the test above says nothing about it."""
    served = {APIS[key].name for key in advertised(client) if key in APIS}
    assert served >= subjects.keys()
    assert served <= subjects.keys() or broker.kind == "apache", "Apache Kafka serves more"


def test_fields_of_newer_versions_stay_out_of_older_answers(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Metadata of the first version has no rack, no controller, no cluster id."""
    topic = new_topic(partitions=2)
    for version in range(14):
        response = client.call(MetadataRequest(topics=None if version else []), version)
        (found,) = [one for one in response.topics if one.name == topic]
        assert [one.partition_index for one in found.partitions] == [0, 1]
        assert all(one.leader_id == response.brokers[0].node_id for one in found.partitions)
        assert (response.cluster_id is not None) == (version >= 2)
        assert (response.controller_id >= 0) == (version >= 1)
    assert describe_topic(client, topic).error_code == ErrorCode.NONE
    assert list_offset(client, topic, -1, version=1).offset == 0
