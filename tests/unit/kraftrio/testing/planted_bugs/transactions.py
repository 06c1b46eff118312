"""Programs that read, work and write in transactions, each with one mistake."""

from __future__ import annotations

from itertools import count

import trio

from kraftrio import Consumer, Producer
from kraftrio.errors import CommitFailedError, KafkaClientError
from kraftrio.testing import checks
from tests.unit.kraftrio.testing.planted_bugs.scene import GROUP, TOPIC, Scene, planted

_INVOICES = "invoices"
_WORK_S = 0.3


async def _bill(consumer: Consumer, producer: Producer, *, with_offsets: bool = True) -> None:
    """Make an invoice of each order, as many in one transaction as there are."""
    await consumer.subscribe(TOPIC)
    while True:
        orders = await consumer.poll()
        async with producer.transaction() as transaction:
            for order in orders:
                await producer.send_and_wait(_INVOICES, order.value, key=order.key)
                await trio.sleep(_WORK_S)
            if with_offsets:
                await transaction.send_offsets(consumer)
        if not with_offsets:
            try:
                await consumer.commit()
            except CommitFailedError:
                continue


@planted("offsets are committed behind the transaction, not with it")
async def offsets_behind_the_transaction(scene: Scene) -> None:
    async def bill() -> None:
        async with (
            scene.consumer() as consumer,
            Producer(scene.servers, transactional_id="billing") as producer,
        ):
            await _bill(consumer, producer, with_offsets=not scene.is_broken)

    await scene.world.create_topic(_INVOICES, 1)
    orders = await scene.run_until_drained(bill)
    checks.exactly_once(orders, await scene.results(_INVOICES, read_committed=True))


@planted("each process has a transactional id of its own, so that none fences the one before")
async def no_fencing(scene: Scene) -> None:
    """A watchdog starts another process where one has not said for long that it is well; the first
    one may only have waited.
    """
    numbers = count()

    async def bill() -> None:
        name = f"billing-{next(numbers)}" if scene.is_broken else "billing"
        settings = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        async with Producer(scene.servers, **settings) as producer:  # type: ignore[arg-type]
            while True:
                place = await scene.world.committed(GROUP)
                begin = max(place.values(), default=0)
                orders = (await scene.world.records(TOPIC))[begin:]
                if orders:
                    async with producer.transaction() as transaction:
                        for order in orders:
                            await producer.send(_INVOICES, order.value)
                        seen_at_s.append(scene.world.now_s)
                        offsets = {orders[-1].topic_partition: orders[-1].offset + 1}
                        await transaction.send_offsets(offsets, GROUP)
                seen_at_s.append(scene.world.now_s)
                await trio.sleep(0.3)

    seen_at_s = [0.0]

    async def guarded() -> None:
        while True:
            try:
                await bill()
            except KafkaClientError:
                await trio.sleep(1)

    async def watch() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(guarded)
            while True:
                await trio.sleep(0.5)
                if scene.world.now_s - seen_at_s[-1] > 3:
                    seen_at_s.append(scene.world.now_s)
                    nursery.start_soon(guarded)

    await scene.world.create_topic(_INVOICES, 1)
    orders = await scene.run_until_drained(watch)
    await trio.sleep(70)
    checks.exactly_once(orders, await scene.results(_INVOICES, read_committed=True))


@planted("invoices are read that were never committed")
async def reads_uncommitted(scene: Scene) -> None:
    async def bill() -> None:
        async with (
            scene.consumer(max_poll_records=5) as consumer,  # done before the time-out
            Producer(
                scene.servers, transactional_id="billing", transaction_timeout_ms=5_000
            ) as producer,
        ):
            await _bill(consumer, producer)

    await scene.world.create_topic(_INVOICES, 1)
    orders = await scene.run_until_drained(bill)
    invoices = await scene.results(_INVOICES, read_committed=not scene.is_broken)
    checks.exactly_once(orders, invoices)
