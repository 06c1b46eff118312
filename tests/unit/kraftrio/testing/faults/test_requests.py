"""The next request of a kind: refused, done twice, late, or its answer lost; and no other one."""

from __future__ import annotations

import pytest
import trio

from kraftrio import Producer
from kraftrio.errors import NotEnoughReplicasError
from kraftrio.testing import KafkaWorld


async def _values(world: KafkaWorld) -> list[bytes | None]:
    return [record.value for record in await world.records("orders")]


async def test_a_request_is_refused(kafka_world: KafkaWorld) -> None:
    """It is not done; what may be tried again the client tries again."""
    await kafka_world.create_topic("orders")
    kafka_world.refuse("Produce", "NOT_ENOUGH_REPLICAS")
    async with Producer(kafka_world.bootstrap_servers, retries=0) as producer:
        with pytest.raises(NotEnoughReplicasError):
            await (await producer.send("orders", b"one"))
        await (await producer.send("orders", b"two"))
    async with Producer(kafka_world.bootstrap_servers) as producer:
        kafka_world.refuse("Produce", "NOT_ENOUGH_REPLICAS")
        await (await producer.send("orders", b"three"))
    assert await _values(kafka_world) == [b"two", b"three"]
    story = kafka_world.story()
    assert story.count("PRODUCE of program is refused with NOT_ENOUGH_REPLICAS") == 2


async def test_a_produce_request_without_an_answer_is_refused(kafka_world: KafkaWorld) -> None:
    """With acks=0 there is no answer: the record is lost."""
    await kafka_world.create_topic("orders", 1)
    kafka_world.refuse("Produce", "NOT_ENOUGH_REPLICAS")
    async with Producer(
        kafka_world.bootstrap_servers, acks=0, enable_idempotence=False
    ) as producer:
        await (await producer.send("orders", b"one"))
        await (await producer.send("orders", b"two"))
    await kafka_world.partition("orders").high_watermark(1)
    assert await _values(kafka_world) == [b"two"]


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_a_request_comes_twice(kafka_world: KafkaWorld, is_idempotent: bool) -> None:
    """A producer with idempotence writes once all the same."""
    await kafka_world.create_topic("orders", 1)
    async with Producer(
        kafka_world.bootstrap_servers, enable_idempotence=is_idempotent
    ) as producer:
        kafka_world.duplicate("Produce")
        await (await producer.send("orders", b"one"))
        await trio.sleep(1)
        await (await producer.send("orders", b"two"))
    once, twice = [b"one", b"two"], [b"one", b"one", b"two"]
    assert await _values(kafka_world) == (once if is_idempotent else twice)


async def test_other_machines_are_let_be(kafka_world: KafkaWorld) -> None:
    """Faults are of the machine that is named; what the test itself asks for is never hit."""
    await kafka_world.create_topic("orders")
    with kafka_world.machine("a"):
        pass  # it is there from now on
    kafka_world.refuse("Produce", "NOT_ENOUGH_REPLICAS", machine="a")
    kafka_world.delay("Produce", seconds=100, machine="a")
    async with Producer(kafka_world.bootstrap_servers, retries=0) as producer:
        await (await producer.send("orders", b"one"))
    await kafka_world.produce("orders", "two")
    assert "PRODUCE" not in kafka_world.story()
    assert kafka_world.now_s < 50


async def test_wrong_names(kafka_world: KafkaWorld) -> None:
    """One sentence, with the nearest right thing."""
    with pytest.raises(ValueError, match="no request 'produce'; do you mean 'Produce'"):
        kafka_world.refuse("produce", "NOT_COORDINATOR")
    with pytest.raises(ValueError, match="no error 'NotCoordinator'; do you mean 'NOT_COORDINA"):
        kafka_world.refuse("Produce", "NotCoordinator")
    with pytest.raises(ValueError, match="Vote is asked by nodes alone"):
        kafka_world.lose_answer("Vote")
    with pytest.raises(ValueError, match="no error 'NONE'"):
        kafka_world.refuse("Produce", "NONE")
