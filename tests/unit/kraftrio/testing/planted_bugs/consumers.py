"""Programs that read, each with one mistake: orders that are forgotten, or handled twice."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from kraftrio import Consumer, ConsumerRecord, Producer, RebalanceListener, TopicPartition
from kraftrio.errors import CommitFailedError, KafkaClientError
from kraftrio.testing import checks
from tests.unit.kraftrio.testing.planted_bugs.scene import (
    GROUP,
    TOPIC,
    AwayError,
    Scene,
    keep_running,
    planted,
)

_IMPATIENT = {"delivery_timeout_ms": 2_000, "request_timeout_ms": 1_000, "retries": 0}


async def _commit(consumer: Consumer) -> None:
    """Commit; that partitions were given to others meanwhile is no error."""
    try:
        await consumer.commit()
    except CommitFailedError:
        return


@planted("offsets are committed before the orders are handled")
async def commits_first(scene: Scene) -> None:
    """A member that ends in between, here because it cannot write its receipt, has lost them."""

    async def bill() -> None:
        async with (
            scene.consumer() as consumer,
            Producer(scene.servers, **_IMPATIENT) as producer,  # type: ignore[arg-type]
        ):
            await consumer.subscribe(TOPIC)
            while True:
                orders = await consumer.poll()
                if scene.is_broken:
                    await _commit(consumer)
                for order in orders:
                    await producer.send_and_wait("receipts", order.value)
                    await scene.books.write(order)
                if not scene.is_broken:
                    await _commit(consumer)

    await scene.world.create_topic("receipts", 1)
    checks.at_least_once(await scene.run_until_drained(bill), scene.books.values)


@planted("a commit that comes too late ends the program, and nobody starts it again")
async def ends_with_a_commit(scene: Scene) -> None:
    async def bill() -> None:
        async with scene.consumer() as consumer:
            await consumer.subscribe(TOPIC)
            while True:
                for order in await consumer.poll():
                    await scene.books.write(order)
                if scene.is_broken:
                    try:
                        await consumer.commit()
                    except CommitFailedError:
                        await trio.sleep_forever()
                else:
                    await _commit(consumer)

    checks.at_least_once(await scene.run_until_drained(bill), scene.books.values)


@planted("partitions are given up with all that was read committed, handled or not")
async def wrong_revoke_callback(scene: Scene) -> None:
    """Orders wait in a queue for a worker; those of revoked partitions are dropped."""
    scene.books.work_s = 1.5

    async def bill() -> None:
        queue: list[ConsumerRecord] = []

        class Listener(RebalanceListener):
            async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
                if scene.is_broken:
                    await _commit(consumer)
                queue.clear()

        async def work() -> None:
            while True:
                if queue:
                    order = queue[0]
                    await scene.books.write(order)
                    if queue and queue[0] is order:
                        queue.pop(0)
                        try:
                            await consumer.commit({order.topic_partition: order.offset + 1})
                        except CommitFailedError:
                            queue.clear()
                else:
                    await trio.sleep(0.05)

        async with scene.consumer() as consumer, trio.open_nursery() as nursery:
            await consumer.subscribe(TOPIC, listener=Listener())
            nursery.start_soon(work)
            while True:
                queue.extend(await consumer.poll())

    checks.at_least_once(await scene.run_until_drained(bill), scene.books.values)


@planted("more is taken at once than can be handled within max.poll.interval.ms")
async def polls_too_slowly(scene: Scene) -> None:
    """It keeps up as long as nothing has piled up."""
    scene.books.work_s = 0.9

    async def bill() -> None:
        most = 500 if scene.is_broken else 3
        async with scene.consumer(
            max_poll_interval_ms=6_000, session_timeout_ms=6_000, max_poll_records=most
        ) as consumer:
            await consumer.subscribe(TOPIC)
            while True:
                for order in await consumer.poll():
                    await scene.books.write(order)
                await _commit(consumer)

    await scene.run_until_drained(bill)


@planted("a group without a committed offset begins at the end: auto.offset.reset is lost")
async def offset_reset_lost(scene: Scene) -> None:
    """The first orders come before the first commit."""

    async def bill() -> None:
        reset = "latest" if scene.is_broken else "earliest"
        async with scene.consumer(auto_offset_reset=reset) as consumer:
            await consumer.subscribe(TOPIC)
            committed_at_s = scene.world.now_s
            while True:
                for order in await consumer.poll(1_000):
                    await scene.books.write(order)
                if scene.world.now_s > committed_at_s + 4:
                    await _commit(consumer)
                    committed_at_s = scene.world.now_s

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_running, bill)
        await scene.world.group(GROUP).stable(timeout_s=60)
        await trio.sleep(1)
        orders = await scene.write_orders()
        await scene.drained()
        nursery.cancel_scope.cancel()
    checks.at_least_once(orders, scene.books.values)


@planted("a failure of one order is logged, and the offset behind it committed")
async def commits_beyond_failures(scene: Scene) -> None:
    async def bill() -> None:
        async with (
            scene.consumer() as consumer,
            Producer(scene.servers, **_IMPATIENT) as producer,  # type: ignore[arg-type]
        ):
            await consumer.subscribe(TOPIC)
            while True:
                for order in await consumer.poll():
                    try:
                        await producer.send_and_wait("receipts", order.value)
                    except KafkaClientError as error:
                        if not scene.is_broken:
                            raise AwayError from error
                    else:
                        await scene.books.write(order)
                await _commit(consumer)

    await scene.world.create_topic("receipts", 1)
    await scene.run_until_drained(bill)
    checks.committed_only_handled(
        await scene.world.committed(GROUP), await scene.world.records(TOPIC), scene.books.entries
    )


@planted("offsets are committed now and then, while workers have orders in their hands")
async def auto_commit_with_workers(scene: Scene) -> None:
    """Who reads gives orders to a worker and reads on: what it has read counts as handled."""
    scene.books.work_s = 0.8

    async def bill() -> None:
        async with (
            scene.consumer(
                enable_auto_commit=scene.is_broken, auto_commit_interval_ms=1_000
            ) as consumer,
            Producer(scene.servers, **_IMPATIENT) as producer,  # type: ignore[arg-type]
            trio.open_nursery() as nursery,
        ):

            async def work(orders: Iterable[ConsumerRecord], done: trio.Event) -> None:
                for order in orders:
                    await producer.send_and_wait("receipts", order.value)
                    await scene.books.write(order)
                done.set()

            await consumer.subscribe(TOPIC)
            while True:
                done = trio.Event()
                orders = await consumer.poll()
                nursery.start_soon(work, orders, done)
                if not scene.is_broken:
                    await done.wait()
                    await _commit(consumer)

    await scene.world.create_topic("receipts", 1)
    checks.at_least_once(await scene.run_until_drained(bill), scene.books.values)


@planted("what was handled is remembered by the process alone, not where it was handled")
async def forgets_what_it_did(scene: Scene) -> None:
    async def bill() -> None:
        done: set[tuple[str, int, int]] = set()
        async with scene.consumer(retry_backoff_ms=100, default_api_timeout_ms=2_000) as consumer:
            await consumer.subscribe(TOPIC)
            while True:
                for order in await consumer.poll():
                    if not scene.is_broken:
                        await scene.books.write_once(order)
                    elif scene.books.place(order) not in done:
                        await scene.books.write(order)
                        done.add(scene.books.place(order))
                await consumer.commit()

    checks.exactly_once(await scene.run_until_drained(bill), scene.books.values)


@planted("the program goes on where it was itself, whatever others have done since", partitions=2)
async def stale_positions(scene: Scene) -> None:
    """It notes where it is now and then, and goes there with each partition that it gets."""

    async def bill() -> None:
        noted: dict[TopicPartition, int] = {}

        class Listener(RebalanceListener):
            def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
                for partition in partitions:
                    if scene.is_broken and partition in noted:
                        consumer.seek(partition, noted[partition])

        async with scene.consumer() as consumer:
            await consumer.subscribe(TOPIC, listener=Listener())
            while True:
                for order in await consumer.poll():
                    await scene.books.write(order)
                    if order.offset % 5 == 4:
                        noted[order.topic_partition] = order.offset + 5
                await _commit(consumer)

    checks.at_least_once(await scene.run_until_drained(bill), scene.books.values)


@planted("orders that look older than the newest are taken for handled ones")
async def trusts_clocks(scene: Scene) -> None:
    """Timestamps are of the writer's clock, which may go back."""
    newest_ms = 0

    async def bill() -> None:
        nonlocal newest_ms
        async with scene.consumer() as consumer:
            await consumer.subscribe(TOPIC)
            while True:
                for order in await consumer.poll():
                    timestamp_ms = order.timestamp or 0
                    if not scene.is_broken or timestamp_ms >= newest_ms:
                        await scene.books.write(order)
                    newest_ms = max(newest_ms, timestamp_ms)
                await _commit(consumer)

    checks.at_least_once(await scene.run_until_drained(bill), scene.books.values)
