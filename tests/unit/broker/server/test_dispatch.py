"""What a request meets before its handler: key, version, authorizer, a body that can be read."""

from __future__ import annotations

import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kraftrio.broker.security.api_access import API_ACCESS
from kraftrio.broker.security.authorizer import CLUSTER, AclOperation, Resource, ResourceType
from kraftrio.broker.security.principal import ANONYMOUS
from kraftrio.broker.server.context import ClientInfo, RequestContext
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kraftrio.wire.messages.data import (
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    TopicProduceData,
)
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.protocol.framing import RequestStart
from tests.support.authorizers import Allow
from tests.unit.broker.server.server_context import METADATA_BODY, Connect, Handlers, listening

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


@asynccontextmanager
async def guarded(authorizer: Allow) -> AsyncIterator[Connect]:
    """Listen with an authorizer."""
    handlers = Handlers()
    handlers.authorizer = authorizer
    async with listening(handlers) as (_, connect):
        yield connect


async def test_the_authorizer_is_asked_once_for_each_request() -> None:
    """Whatever the request names, and of APIs that everybody may use not at all."""
    authorizer = Allow({(AclOperation.WRITE, ANY_TOPIC)})
    produce = ProduceRequest(acks=0, topic_data=[TopicProduceData(name=name) for name in "abc"])
    async with guarded(authorizer) as connect:
        client = await connect()
        await client.send(0, 3, 1, encode(produce, 3))
        await client.send(18, 0, 2, b"")
        assert (await client.receive())[0] == 2
    assert authorizer.asked == [(ANONYMOUS, "127.0.0.1", AclOperation.WRITE, ANY_TOPIC)]


async def test_a_request_that_its_principal_may_not_send_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with guarded(Allow(())) as connect:
        client, other = await connect(), await connect()
        with caplog.at_level(logging.INFO, "kraftrio.server"):
            await client.send(0, 3, 1, encode(ProduceRequest(acks=0), 3))
            assert await client.is_closed()
        assert "User:ANONYMOUS is not authorized to send PRODUCE" in caplog.text
        await other.send(18, 0, 1, b"")
        assert (await other.receive())[0] == 1


def test_any_one_permission_of_several_lets_a_request_in() -> None:
    """A follower may do the one, a consumer the other."""
    for permission in API_ACCESS[ApiKey.FETCH].permissions:
        dispatcher = Dispatcher(
            {ApiKey.FETCH: lambda _request, _context: FetchResponse()},
            authorizer=Allow({permission}),
        )
        start = RequestStart(ApiKey.FETCH, 4, 1, None, 0)
        frame = memoryview(encode(FetchRequest(), 4))
        answer = dispatcher.handle(frame, start, ClientInfo("h", 1, "PLAINTEXT"))
        assert callable(answer)


def test_what_filters_its_response_refuses_nobody() -> None:
    """The handler of Metadata is asked, and finds the same authorizer in its context."""
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
