"""What a request meets before its handler: key, version, authorizer, a body that can be read."""

from __future__ import annotations

import struct

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, Resource, ResourceType
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.slices.sliced_work import SLICE_MS, SlicedWork, Work
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kraftrio.wire.messages.data import (
    ProduceRequest,
)
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.protocol.framing import RequestStart
from tests.support.authorizers import Allow
from tests.support.sliced import joined
from tests.unit.broker.server.server_context import METADATA_BODY, Handlers, listening

ANY_TOPIC = Resource(ResourceType.TOPIC)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 3, 99, 1, -1),
        struct.pack(">hhih", 0, 2, 1, -1),
        struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 1 << 30),
        struct.pack(">hhih", 3, 1, 1, -1) + b"\0",
        b"",
    ],
    ids=[
        "unknown key",
        "negative key",
        "version above",
        "produce below 3",
        "absurd array",
        "truncated body",
        "empty frame",
    ],
)
async def test_what_cannot_be_served_closes_that_connection_only(frame: bytes) -> None:
    async with listening(Handlers()) as (_, connect):
        client, other = await connect(), await connect()
        await client.send_raw(frame)
        assert await client.is_closed()
        await other.send(18, 0, 1, b"")
        assert (await other.receive())[0] == 1


@pytest.mark.parametrize("version", [5, 127, 32767])
async def test_unknown_api_versions_version_is_answered_in_the_layout_of_version_0(
    version: int,
) -> None:
    async with listening(Handlers()) as (_, connect):
        client = await connect()
        await client.send(18, version, 9, b"\0junk that is no body")
        correlation_id, body = await client.receive()
        response, end = decode(ApiVersionsResponse, 0, body)
        assert (correlation_id, end) == (9, len(body))
        assert response.error_code == 35
        assert [(a.api_key, a.min_version, a.max_version) for a in response.api_keys] == [
            (18, 0, 4)
        ]
        await client.send(18, 3, 10, b"\0" + encode(ApiVersionsRequest(), 3))
        assert (await client.receive())[0] == 10


async def test_a_request_without_reply_takes_no_place_in_the_order() -> None:
    async with listening(Handlers()) as (_, connect):
        client = await connect()
        await client.send(0, 3, 1, encode(ProduceRequest(acks=0), 3))
        await client.send(18, 0, 2, b"")
        assert (await client.receive())[0] == 2


# -- authorization ------------------------------------------------------------------------------


def test_what_a_request_does_to_each_resource_is_for_its_handler_to_ask() -> None:
    """The handler of Metadata finds the authorizer in its context."""
    seen: list[RequestContext] = []

    def metadata(_request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        seen.append(context)
        return MetadataResponse()

    authorizer = Allow({(AclOperation.DESCRIBE, CLUSTER)})
    dispatcher = Dispatcher({ApiKey.METADATA: metadata}, authorizer=authorizer)
    start = RequestStart(ApiKey.METADATA, 1, 1, None, 0)
    dispatcher.handle(memoryview(METADATA_BODY), start, ClientInfo("h", 1, "PLAINTEXT"))
    assert authorizer.asked == []
    [context] = seen
    assert context.is_authorized(AclOperation.DESCRIBE, CLUSTER)
    assert not context.is_authorized(AclOperation.ALTER, CLUSTER)
    assert context.authorized_operations(CLUSTER) == 1 << 8


# -- responses that come later ------------------------------------------------------------------


def test_what_waits_takes_no_turn_of_those_who_have_work_to_do() -> None:
    """A thousand joins of a group wait for each other, in a turn whose time is used up."""
    now_ms = 0.0
    sliced = SlicedWork(lambda: now_ms)
    client = ClientInfo("h", 1, "PLAINTEXT")

    def long_work() -> Work[None]:
        nonlocal now_ms
        now_ms += SLICE_MS
        yield None

    sliced.start(ClientInfo("other", 1, "PLAINTEXT"), long_work())
    response: Deferred[MetadataResponse] = Deferred()
    dispatcher = Dispatcher({ApiKey.METADATA: lambda *_: response}, sliced_work=sliced)
    start = RequestStart(ApiKey.METADATA, 1, 1, None, 0)
    answer = dispatcher.handle(memoryview(METADATA_BODY), start, client)
    assert not client.queued_work, "the next request of the connection can be served"
    assert isinstance(answer, Deferred)
    assert not answer.done
    response.complete(MetadataResponse())
    assert joined(answer.value()).endswith(encode(MetadataResponse(), 1))
