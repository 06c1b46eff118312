"""A parked fetch goes on in a turn of its own: its errors are its own client's."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.limits import ServerLimits
from kraftrio.broker.server.server import ServerListener, bind
from kraftrio.net.connection import Connection, ConnectionLost, open_connection
from kraftrio.net.transport import SystemNetwork
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import batch
from tests.unit.broker.api.data_context import Handlers
from tests.unit.broker.replica.replica_context import TOPIC_ID, Broker, topic

_LIMITS = ServerLimits(
    socket_request_max_bytes=1 << 20,
    connections_max_idle_ms=600_000,
    max_in_flight_requests=10,
    socket_send_buffer_bytes=-1,
    socket_receive_buffer_bytes=-1,
)
_FETCH = FetchRequest(
    max_wait_ms=30_000,
    min_bytes=1,
    max_bytes=1 << 20,
    topics=[
        FetchTopic(
            topic_id=TOPIC_ID,
            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
        )
    ],
)


@asynccontextmanager
async def serving(broker: Broker) -> AsyncIterator[tuple[Connection, Connection]]:
    """Two connections to the data handlers of a broker: a producer's, and a consumer's."""
    handlers = Handlers(broker)
    sock = bind("127.0.0.1", 0)
    dispatcher = Dispatcher({**handlers.produces.table(), **handlers.fetches.table()})
    listener = ServerListener("L", sock, dispatcher, _LIMITS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        with trio.fail_after(10):
            connect = partial(
                open_connection,
                SystemNetwork(),
                "127.0.0.1",
                sock.getsockname()[1],
                connect_timeout_s=5,
            )
            async with (
                connect(client_id="producer") as producer,
                connect(client_id="consumer") as consumer,
            ):
                yield producer, consumer
        nursery.cancel_scope.cancel()


async def produce(producer: Connection, acks: int) -> ErrorCode:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[PartitionProduceData(index=0, records=memoryview(batch(b"x")))],
            )
        ],
    )
    response: ProduceResponse = await producer.call(request, 9, 5)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("acks", [1, -1])
async def test_an_error_of_a_consumers_read_does_not_reach_the_producer(
    acks: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumer's connection ends, and is the one that the log names, with the cause."""
    broker = Broker()

    def fail(*_args: Any, **_how: Any) -> Any:
        raise RuntimeError("a fault of ours")

    async with broker.running():
        broker.publish(*topic())
        partition = broker.replicas.hosted.leader(TopicPartition("t", 0))
        async with serving(broker) as (producer, consumer):
            parked = consumer.send(_FETCH, 13, 30)
            while not partition.fetch_waiters:
                await trio.lowlevel.checkpoint()
            monkeypatch.setattr(type(partition.log), "read_lazily", fail)
            with caplog.at_level(logging.ERROR):
                assert await produce(producer, acks) is ErrorCode.NONE
                with pytest.raises(ConnectionLost):
                    await parked.wait()
            assert await produce(producer, acks) is ErrorCode.NONE, "its connection goes on"
    [entry] = caplog.records
    assert "api=Fetch" in entry.getMessage() and "client_id=consumer" in entry.getMessage()
    assert entry.exc_info is not None and str(entry.exc_info[1]) == "a fault of ours"
