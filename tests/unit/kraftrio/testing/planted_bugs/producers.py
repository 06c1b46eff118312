"""Programs that write, each with one mistake: orders that are lost, doubled or out of order."""

from __future__ import annotations

import trio

from kraftrio import Producer
from kraftrio.errors import KafkaClientError
from kraftrio.testing import checks
from tests.unit.kraftrio.testing.planted_bugs.scene import KEYS, TOPIC, Scene, planted

_COUNT = 30
_EVERY_S = 0.7
_AT_ONCE = 5
_IMPATIENT = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 1_000}


@planted("without idempotence, what was not answered is written twice")
async def no_idempotence(scene: Scene) -> None:
    async with Producer(scene.servers, enable_idempotence=not scene.is_broken) as producer:
        for number in range(_COUNT):
            await producer.send_and_wait(TOPIC, str(number).encode())
            await trio.sleep(_EVERY_S)
    checks.exactly_once(map(str, range(_COUNT)), await scene.results(TOPIC))


@planted("with acks=0 nobody knows what has arrived")
async def nobody_acknowledges(scene: Scene) -> None:
    async with Producer(scene.servers, acks=0 if scene.is_broken else "all") as producer:
        for number in range(_COUNT):
            await producer.send_and_wait(TOPIC, str(number).encode())
            await trio.sleep(_EVERY_S)
    await trio.sleep(20)
    checks.exactly_once(map(str, range(_COUNT)), await scene.results(TOPIC))


@planted("several requests in flight without idempotence: what is sent again comes late")
async def overtaken(scene: Scene) -> None:
    async with Producer(
        scene.servers, enable_idempotence=not scene.is_broken, linger_ms=0, batch_size=1
    ) as producer:
        for number in range(_COUNT * _AT_ONCE):
            await producer.send(TOPIC, str(number).encode(), key=b"k")
            if number % _AT_ONCE == 0:
                await trio.sleep(_EVERY_S)
    written = list(dict.fromkeys(await scene.results(TOPIC)))
    assert written == sorted(written, key=int), "orders of one key are out of order"


@planted("a delivery that fails is not looked at")
async def unseen_failures(scene: Scene) -> None:
    async with Producer(scene.servers, **_IMPATIENT) as producer:  # type: ignore[arg-type]
        for number in range(_COUNT):
            value = str(number).encode()
            delivery = await producer.send(TOPIC, value)
            while not scene.is_broken:
                try:
                    await delivery
                    break
                except KafkaClientError:
                    delivery = await producer.send(TOPIC, value)
            await trio.sleep(_EVERY_S)
    checks.at_least_once(map(str, range(_COUNT)), await scene.results(TOPIC))


@planted("the program sends again what the producer may have written")
async def sends_again(scene: Scene) -> None:
    """Right is to let the producer try for long enough, which knows what it has sent."""
    settings = _IMPATIENT if scene.is_broken else {"delivery_timeout_ms": 120_000}
    async with Producer(scene.servers, **settings) as producer:  # type: ignore[arg-type]
        for number in range(_COUNT):
            while True:
                try:
                    await producer.send_and_wait(TOPIC, str(number).encode())
                    break
                except KafkaClientError:
                    await trio.sleep(1)
            await trio.sleep(_EVERY_S)
    checks.exactly_once(map(str, range(_COUNT)), await scene.results(TOPIC))


@planted("only one broker is named to begin with", brokers=3)
async def one_bootstrap_server(scene: Scene) -> None:
    servers = "n1:9092" if scene.is_broken else scene.servers
    for number in range(_COUNT):
        async with Producer(servers, max_block_ms=12_000) as producer:
            await producer.send_and_wait(TOPIC, str(number).encode())
        await trio.sleep(_EVERY_S)
    checks.exactly_once(map(str, range(_COUNT)), await scene.results(TOPIC))


@planted("an outbox whose rows are struck out before they are written")
async def outbox_struck_out_first(scene: Scene) -> None:
    rows = [str(number) for number in range(_COUNT)]
    async with Producer(scene.servers, **_IMPATIENT) as producer:  # type: ignore[arg-type]
        while rows:
            row = rows[0]
            if scene.is_broken:
                rows.remove(row)
            try:
                await producer.send_and_wait(TOPIC, row.encode())
            except KafkaClientError:
                await trio.sleep(1)
                continue
            if not scene.is_broken:
                rows.remove(row)
            await trio.sleep(_EVERY_S)
    checks.at_least_once(map(str, range(_COUNT)), await scene.results(TOPIC))


@planted("orders of one key go to two topics, where the first one did not take them")
async def another_topic_for_what_failed(scene: Scene) -> None:
    """What is put aside is read later than what came after it."""
    later = f"{TOPIC}-later"
    await scene.world.create_topic(later, 1)
    async with Producer(scene.servers, **_IMPATIENT) as producer:  # type: ignore[arg-type]
        for number in range(_COUNT):
            topic = TOPIC
            while True:
                try:
                    key = str(number % KEYS).encode()
                    await producer.send_and_wait(topic, str(number).encode(), key=key)
                    break
                except KafkaClientError:
                    topic = later if scene.is_broken else TOPIC
            await trio.sleep(_EVERY_S)
    read = [*await scene.results(TOPIC), *await scene.results(later)]
    firsts = list(dict.fromkeys(read))
    for remainder in range(KEYS):
        own = [int(value) for value in firsts if int(value) % KEYS == remainder]
        assert own == sorted(own), f"orders of key {remainder} are out of order"
