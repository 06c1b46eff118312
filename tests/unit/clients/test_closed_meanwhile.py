"""A client that is closed ends the calls that other tasks are in, as Java's does by its wakeup."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio import Admin, Consumer, Producer, ShareConsumer, TopicPartition
from kraftrio.errors import ClosedError

DEADLINE_S = 10
T0 = TopicPartition("t", 0)
Call = Callable[[Any], Awaitable[object]]


@asynccontextmanager
async def silent_broker() -> AsyncIterator[str]:
    """Something that accepts connections and never answers; yields its address."""

    async def listen(stream: trio.SocketStream) -> None:
        async for _ in stream:
            pass

    async with trio.open_nursery() as nursery:
        (listener, *_) = await nursery.start(trio.serve_tcp, listen, 0)
        yield f"localhost:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def admin(address: str) -> Admin:
    return Admin(address)


def producer(address: str) -> Producer[bytes, bytes]:
    return Producer(address)


def consumer(address: str) -> Consumer[bytes, bytes]:
    return Consumer(address, group_id="g")


def share_consumer(address: str) -> ShareConsumer[bytes, bytes]:
    return ShareConsumer(address, group_id="g")


async def poll(client: Any) -> None:
    await client.subscribe("t")
    await client.poll()


async def next_record(client: Any) -> None:
    await client.subscribe("t")
    await anext(client)


async def position(client: Any) -> None:
    client.assign(T0)
    await client.position(T0)


CALLS: dict[str, tuple[Callable[[str], Any], Call]] = {
    "list topics": (admin, lambda client: client.list_topics()),
    "describe groups": (admin, lambda client: client.describe_groups("g")),
    "send": (producer, lambda client: client.send("t", b"x")),
    "partitions of a producer": (producer, lambda client: client.partitions_for("t")),
    "poll": (consumer, poll),
    "next record": (consumer, next_record),
    "position": (consumer, position),
    "committed": (consumer, lambda client: client.offsets.committed(T0)),
    "end offsets": (consumer, lambda client: client.offsets.end(T0)),
    "partitions of a consumer": (consumer, lambda client: client.partitions_for("t")),
    "poll of a share group": (share_consumer, poll),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_ends(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # How long a member tries to say goodbye to a broker that does not answer.
    monkeypatch.setattr("kraftrio.clients.share.consumer.CLOSE_TIMEOUT_S", 0.1)
    make, call = CALLS[name]
    raised: list[BaseException] = []

    async def run(client: Any) -> None:
        with pytest.raises(ClosedError) as caught:
            await call(client)
        raised.append(caught.value)

    async with silent_broker() as address, trio.open_nursery() as nursery:
        with trio.fail_after(DEADLINE_S):
            async with make(address) as client:
                nursery.start_soon(run, client)
                await trio.testing.wait_all_tasks_blocked(0.02)
                assert not raised
    assert len(raised) == 1
