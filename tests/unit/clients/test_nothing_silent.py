"""What keeps a client from going on is logged, with what to do; where Java raises, an error is."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from kraftrio import Consumer, Producer, ShareConsumer, TopicPartition
from kraftrio.clients.errors import (
    SubscriptionStateError,
    TimedOutError,
    UnknownTopicOrPartitionError,
)
from tests.unit.clients.fake_cluster import fake_cluster

DEADLINE_S = 10
QUICK: dict[str, Any] = {"linger_ms": 0, "request_timeout_ms": 500, "retry_backoff_ms": 10}


def closed_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


async def test_brokers_that_cannot_be_reached(caplog: pytest.LogCaptureFixture) -> None:
    """One warning, however often it is tried, with who was tried, why it failed, what to do."""
    address = f"127.0.0.1:{closed_port()}"
    async with Producer(address, max_block_ms=500) as producer:
        with pytest.raises(TimedOutError, match=f"no broker of {address} answered"):
            await producer.send("t", b"x")
    (sentence,) = caplog.messages
    assert sentence.startswith(f"no broker of {address} can be reached: ")
    assert "refused" in sentence
    assert sentence.endswith("see that one runs there, and that bootstrap_servers names it")


async def wait_warning(caplog: pytest.LogCaptureFixture, beginning: str) -> str:
    """Wait for a warning; return it."""
    with trio.fail_after(DEADLINE_S):
        while True:
            found = [text for text in caplog.messages if text.startswith(beginning)]
            if found:
                assert len(found) == 1, found
                return found[0]
            await trio.sleep(0.01)


async def test_a_broker_that_is_not_where_the_cluster_says(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bootstrap server answers, and names an address that this machine cannot use."""
    monkeypatch.setattr("kraftrio.clients.cluster._REPORT_AFTER_S", 0.1)
    async with fake_cluster(2) as fake:
        fake.add_topic("t", [2])
        bootstrap = f"127.0.0.1:{fake.nodes[1].port}"
        fake.nodes[2].port = closed_port()
        async with Producer(bootstrap, delivery_timeout_ms=1_000, **QUICK) as producer:
            delivery = await producer.send("t", b"x")
            sentence = await wait_warning(
                caplog, f"broker 2 cannot be reached at 127.0.0.1:{fake.nodes[2].port}"
            )
            assert sentence.endswith("this machine can use its advertised.listeners")
            with pytest.raises(TimedOutError):
                await delivery


async def test_a_topic_that_does_not_exist(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer raises after max_block_ms; a consumer waits for it to come. Both warn."""
    monkeypatch.setattr("kraftrio.clients.metadata_fetcher._REPORT_AFTER_S", 0.1)
    async with fake_cluster() as fake:
        async with Producer(fake.bootstrap, max_block_ms=400, **QUICK) as producer:
            with pytest.raises(UnknownTopicOrPartitionError, match="topic 'u' is not there"):
                await producer.send("u", b"x")
        async with Consumer(fake.bootstrap) as consumer:
            consumer.assign(TopicPartition("v", 0))
            await consumer.poll(400)
    for topic in ("u", "v"):
        sentence = await wait_warning(caplog, f"topic '{topic}' does not exist: ")
        assert "create it, or correct the name" in sentence


async def test_a_topic_that_is_made_when_it_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is missing for a moment, which is not worth a warning."""
    async with (
        fake_cluster() as fake,
        Producer(fake.bootstrap) as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(producer.send_and_wait, "t", b"x")
        await trio.sleep(0.2)
        fake.add_topic("t", [1])
    assert caplog.messages == []


async def test_a_partition_that_does_not_exist(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged while it is waited for; a producer raises."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with Consumer(fake.bootstrap) as consumer:
            consumer.assign(TopicPartition("t", 9))
            await consumer.poll(200)
            sentence = await wait_warning(
                caplog, "topic 't' has 1 partition(s), and no partition 9"
            )
            assert sentence.endswith("correct the number, or add partitions")
        async with Producer(fake.bootstrap, max_block_ms=200) as producer:
            with pytest.raises(UnknownTopicOrPartitionError, match="no partition 9"):
                await producer.send("t", b"x", partition=9)


ASKS: list[Callable[[Any], Awaitable[object]]] = [
    lambda consumer: consumer.poll(),
    lambda consumer: anext(consumer),
    lambda consumer: anext(consumer.batches()),
]


@pytest.mark.parametrize("client", [Consumer, ShareConsumer])
@pytest.mark.parametrize("ask", ASKS)
async def test_nothing_is_subscribed_to(client: Any, ask: Callable[..., Any]) -> None:
    """As in Java that is an error, and no endless wait; afterwards it can be mended."""
    async with client("127.0.0.1:1", group_id="g") as consumer:
        with trio.fail_after(5), pytest.raises(SubscriptionStateError, match="call subscribe"):
            await ask(consumer)
        await consumer.subscribe("t")
        with trio.move_on_after(0.05) as scope:
            await ask(consumer)
        assert scope.cancelled_caught
        await consumer.unsubscribe()
        with trio.fail_after(5), pytest.raises(SubscriptionStateError):
            await ask(consumer)
