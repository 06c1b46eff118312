"""What a producer says of records when connections end and brokers die, in simulated time."""

from __future__ import annotations

import trio

from kraftrio.clients.errors import TimedOutError
from kraftrio.clients.producer.producer import Delivery
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.simulated import Kafka

LARGE = b"x" * 50_000


async def send_large(kafka: Kafka, *, comes_back: bool) -> tuple[list[Delivery], set[int]]:
    """Send 20 records with acks=0 to a broker that has stopped reading, and then dies.

    Returns:
        their deliveries, all decided, and which of them no socket had taken before it died.
    """
    await kafka.create("t")
    node = kafka.cluster.nodes[1]
    async with kafka.producer(
        acks=0, linger_ms=0, delivery_timeout_ms=20_000, request_timeout_ms=5_000
    ) as producer:
        await (await producer.send("t", b"first", timestamp_ms=kafka.now_ms()))
        node.pause()
        sent = [
            await producer.send("t", b"%d" % number + LARGE, timestamp_ms=kafka.now_ms())
            for number in range(20)
        ]
        await trio.sleep(1)
        left = {number for number, delivery in enumerate(sent) if not delivery.done}
        assert 0 < len(left) < 20
        kafka.cluster.internet.cut_power(kafka.cluster.internet.host(node.name))
        node.crash()
        for sock in kafka.cluster.internet.live_sockets(kafka.cluster.internet.host("program")):
            sock.reset()
        if comes_back:
            node.restore()
            node.start()
    return sent, left


async def test_acks_0_sends_again_what_no_socket_took(kafka: Kafka) -> None:
    """Records still here when the connection is lost are written once the broker is back."""
    sent, left = await send_large(kafka, comes_back=True)
    assert [delivery.result().offset for delivery in sent] == [-1] * 20
    async with kafka.consumer() as consumer:
        consumer.assign([TopicPartition("t", 0)])
        read = {record.value for record in await consumer.poll(5_000)}
    assert {b"%d" % number + LARGE for number in left} <= read


async def test_acks_0_delivers_nothing_that_no_socket_took(kafka: Kafka) -> None:
    """If the broker does not come back they are given up, with an error."""
    sent, left = await send_large(kafka, comes_back=False)
    failed = set()
    for number, delivery in enumerate(sent):
        try:
            assert delivery.result().offset == -1
        except TimedOutError:
            failed.add(number)
    assert failed == left
