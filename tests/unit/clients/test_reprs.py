"""What programs print while they look for a fault: clients, deliveries, records."""

from __future__ import annotations

from kraftrio import Admin, Consumer, Producer, ShareConsumer
from kraftrio.clients.consumer.records import ConsumerRecords
from tests.unit.clients.fake_cluster import fake_cluster


def test_clients() -> None:
    """With where they go, as whom, and whether they are open."""
    servers = "a:1, b:2"
    assert repr(Producer(servers)) == "<Producer at a:1,b:2, not open>"
    assert repr(Admin(servers, client_id="me")) == "<Admin 'me' at a:1,b:2, not open>"
    named = Consumer(servers, group_id="g", client_id="me", ssl_key_password="secret")
    assert repr(named) == "<Consumer 'me' at a:1,b:2, not open>"
    assert repr(ShareConsumer(servers, group_id="g")).startswith("<ShareConsumer 'share-consumer-g")
    assert repr(ConsumerRecords([])) == "<ConsumerRecords, 0 of no partition>"


async def test_deliveries() -> None:
    """With what has become of them."""
    async with fake_cluster() as fake:
        fake.add_topic("t", [1])
        async with Producer(fake.bootstrap, transactional_id=None) as producer:
            assert repr(producer).endswith(", open>")
            delivery = await producer.send("t", b"x")
            assert repr(delivery) == "<Delivery to t-0, not decided>"
            assert repr(delivery.batch) == "<Batch to t-0, 1 records>"
            await delivery
            assert repr(delivery) == "<Delivery to t-0, delivered>"
