"""Consumers in groups, against a whole broker: commits, rebalances, listeners, static members."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio

from kraftrio.clients.consumer.consumer import (
    Consumer,
    OffsetAndMetadata,
    RebalanceListener,
)
from kraftrio.clients.errors import (
    ClosedError,
    CommitFailedError,
)
from kraftrio.clients.share.consumer import ShareConsumer
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.consumer.test_consumer import T0, offsets, take
from tests.unit.clients.simulated import Kafka


class Listener(RebalanceListener):
    """Remembers how it was called."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("assigned", [each.partition for each in partitions]))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("revoked", [each.partition for each in partitions]))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("lost", [each.partition for each in partitions]))


async def test_a_group_goes_on_where_it_stopped(kafka: Kafka) -> None:
    """What was handed over is committed when the consumer is closed in good order."""
    await kafka.create("t")
    await kafka.fill("t", 10)
    async with kafka.consumer(group_id="g") as consumer:
        await consumer.subscribe(["t"])
        assert offsets(await take(consumer, 4)) == [0, 1, 2, 3]
    async with kafka.consumer(group_id="g") as consumer:
        await consumer.subscribe(["t"])
        assert offsets(await take(consumer, 6)) == [4, 5, 6, 7, 8, 9]
        assert consumer.subscription == {"t"}
        assert consumer.assignment == {T0}
        assert consumer.group_metadata().generation_id > 0


async def test_without_automatic_commits(kafka: Kafka) -> None:
    """Only what is committed by hand counts."""
    await kafka.create("t")
    await kafka.fill("t", 10)
    for first in (0, 3):
        async with kafka.consumer(group_id="g", enable_auto_commit=False) as consumer:
            await consumer.subscribe(["t"])
            assert offsets(await take(consumer, 3)) == [first, first + 1, first + 2]
            if first == 0:
                await consumer.commit()
                await take(consumer, 1)
    async with kafka.consumer(group_id="g") as consumer:
        committed = await consumer.offsets.committed([T0, TopicPartition("t", 9)])
        mine = committed[T0]
        assert mine is not None
        assert (mine.offset, mine.leader_epoch) == (3, 0)
        assert committed[TopicPartition("t", 9)] is None


async def test_commits_of_given_offsets_keep_their_order(kafka: Kafka) -> None:
    """Those that nobody waits for come before those asked for later."""
    await kafka.create("t")
    outcomes: list[tuple[Any, Any]] = []
    async with kafka.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([T0])
        await consumer.commit({T0: 0})
        for offset in range(1, 20):
            consumer.commit_async({T0: offset}, lambda *answer: outcomes.append(answer))
        await consumer.commit({T0: OffsetAndMetadata(5, -1, "note")})
        assert [done[0][T0].offset for done in outcomes] == list(range(1, 20))
        assert not any(error for _, error in outcomes)
        assert await consumer.offsets.committed([T0]) == {T0: OffsetAndMetadata(5, -1, "note")}


async def test_automatic_commits_come_between_records(kafka: Kafka) -> None:
    """After five seconds, with what the program has finished with."""
    await kafka.create("t")
    await kafka.fill("t", 10)
    async with (
        kafka.consumer(group_id="g", auto_commit_interval_ms=1_000) as consumer,
        kafka.consumer(group_id="g") as other,
    ):
        await consumer.subscribe(["t"])
        await take(consumer, 3)
        await trio.sleep(2)
        assert await other.offsets.committed([T0]) == {T0: None}
        await take(consumer, 1)
        await trio.sleep(0.1)
        assert await other.offsets.committed([T0]) == {T0: OffsetAndMetadata(3, 0)}


@pytest.mark.parametrize("way", ["records", "batches", "poll"])
async def test_what_a_failing_program_has_in_hand_is_not_committed(kafka: Kafka, way: str) -> None:
    """It comes again; what it had finished with before does not."""

    async def work(consumer: Consumer) -> None:
        if way == "records":
            async for record in consumer:
                if record.offset == 6:
                    raise ValueError
        elif way == "batches":
            async for batch in consumer.batches():
                if batch.next_offset > 6:
                    raise ValueError
        else:
            while True:
                records = await consumer.poll(max_records=3)
                if any(record.offset == 6 for record in records):
                    raise ValueError

    await kafka.create("t")
    for _ in range(10):
        await kafka.fill("t", 1)
    with pytest.raises(ValueError):
        async with kafka.consumer(group_id="g") as consumer:
            await consumer.subscribe(["t"])
            await work(consumer)
    async with kafka.consumer(group_id="g") as consumer:
        committed = await consumer.offsets.committed([T0])
        mine = committed[T0]
        assert mine is not None
        assert mine.offset == 6


async def test_two_members_share_partitions(kafka: Kafka) -> None:
    """Each is called; what was consumed is committed before it moves, so nothing comes twice."""
    await kafka.create("t", 4)
    for partition in range(4):
        await kafka.fill("t", 10, partition)
    seen: list[tuple[int, int]] = []
    first_listener, second_listener = Listener(), Listener()

    async def read(consumer: Consumer) -> None:
        async for batch in consumer.batches():
            seen.extend((record.partition, record.offset) for record in batch)

    async with kafka.consumer(group_id="g") as first, kafka.consumer(group_id="g") as second:
        await first.subscribe(["t"], listener=first_listener)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, first)
            await trio.sleep(1)
            await second.subscribe(["t"], listener=second_listener)
            nursery.start_soon(read, second)
            await trio.sleep(10)
            for partition in range(4):
                await kafka.fill("t", 10, partition)
            await trio.sleep(2)
            assert len(first.assignment) == len(second.assignment) == 2
            assert first.assignment.isdisjoint(second.assignment)
            nursery.cancel_scope.cancel()
    assert sorted(seen) == [(p, o) for p in range(4) for o in range(20)]
    assert first_listener.events[:2] == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]
    assert len(second_listener.events) == 2


async def test_cooperative_members_go_on_reading(kafka: Kafka) -> None:
    """What they keep is handed over while the group rebalances."""
    await kafka.create("t", 4)
    settings = {"group_id": "g", "partition_assignment_strategy": "cooperative-sticky"}
    listener = Listener()
    async with kafka.consumer(**settings) as first, kafka.consumer(**settings) as second:
        await first.subscribe(["t"], listener=listener)
        async with trio.open_nursery() as nursery:

            async def read(consumer: Consumer) -> None:
                async for _ in consumer:
                    pass

            nursery.start_soon(read, first)
            await trio.sleep(1)
            await second.subscribe(["t"])
            nursery.start_soon(read, second)
            await trio.sleep(15)
            assert len(first.assignment) == len(second.assignment) == 2
            nursery.cancel_scope.cancel()
        assert listener.events[0] == ("assigned", [0, 1, 2, 3])
        assert listener.events[1] == ("revoked", [2, 3])
        assert ("lost", []) not in listener.events


async def test_listeners_may_wait_seek_and_commit(kafka: Kafka) -> None:
    """An async one is waited for before anything is handed over."""

    class Seeker(RebalanceListener):
        def __init__(self, consumer: Consumer) -> None:
            self.consumer = consumer
            self.committed: Any = None

        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            await trio.sleep(1)
            for each in partitions:
                assert await self.consumer.position(each) == 0
                self.consumer.seek(each, 5)

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            await self.consumer.commit()
            self.committed = await self.consumer.offsets.committed(partitions)

    await kafka.create("t")
    await kafka.fill("t", 10)
    async with kafka.consumer(group_id="g", enable_auto_commit=False) as consumer:
        listener = Seeker(consumer)
        await consumer.subscribe(["t"], listener=listener)
        assert offsets(await take(consumer, 3)) == [5, 6, 7]
        await consumer.unsubscribe()
        assert listener.committed == {T0: OffsetAndMetadata(8, 0)}
        assert consumer.assignment == frozenset()
        assert consumer.subscription == frozenset()


async def test_a_listener_commits_while_the_consumer_is_closed(kafka: Kafka) -> None:
    """As with the Java client: it may still call, and nobody takes records any more."""

    class Committing(RebalanceListener):
        def __init__(self, consumer: Consumer) -> None:
            self.consumer = consumer
            self.is_refused = False

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            await self.consumer.commit()
            try:
                await self.consumer.poll(0)
            except ClosedError:
                self.is_refused = True

    await kafka.create("t")
    await kafka.fill("t", 10)
    async with kafka.consumer(group_id="g", enable_auto_commit=False) as consumer:
        listener = Committing(consumer)
        await consumer.subscribe(["t"], listener=listener)
        assert offsets(await take(consumer, 3)) == [0, 1, 2]
    assert listener.is_refused
    with pytest.raises(ClosedError):
        await consumer.commit()
    async with kafka.consumer(group_id="g") as consumer:
        await consumer.subscribe(["t"])
        assert offsets(await take(consumer, 1)) == [3]


async def test_what_a_listener_raises_comes_out_of_the_next_call(kafka: Kafka) -> None:
    """And the consumer goes on afterwards."""

    class Broken(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            raise KeyError("mine")

    await kafka.create("t")
    await kafka.fill("t", 2)
    async with kafka.consumer(group_id="g") as consumer:
        await consumer.subscribe(["t"], listener=Broken())
        with pytest.raises(KeyError, match="mine"):
            await anext(consumer)
        assert offsets(await take(consumer, 2)) == [0, 1]


async def test_patterns(kafka: Kafka) -> None:
    """Topics that match are read, also those that come later; internal ones are not."""
    await kafka.create("logs-a")
    await kafka.create("other")
    await kafka.fill("logs-a", 1)
    async with kafka.consumer(group_id="g", metadata_max_age_ms=2_000) as consumer:
        await consumer.subscribe(re.compile(r"logs-.*|__.*"))
        assert [(await anext(consumer)).topic] == ["logs-a"]
        await kafka.create("logs-b")
        await kafka.fill("logs-b", 1)
        assert (await anext(consumer)).topic == "logs-b"
        assert consumer.subscription == {"logs-a", "logs-b"}


async def test_who_does_not_poll_is_thrown_out_and_comes_back(kafka: Kafka) -> None:
    """What it held is lost, and a commit says so."""
    await kafka.create("t")
    await kafka.fill("t", 10)
    listener = Listener()
    async with kafka.consumer(
        group_id="g", max_poll_interval_ms=10_000, enable_auto_commit=False
    ) as consumer:
        await consumer.subscribe(["t"], listener=listener)
        assert offsets(await take(consumer, 2)) == [0, 1]
        await trio.sleep(30)
        with pytest.raises(CommitFailedError):
            await consumer.commit()
        assert offsets(await take(consumer, 2)) == [0, 1]
        assert listener.events == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]


async def test_who_waits_for_records_stays_a_member(kafka: Kafka) -> None:
    """However long none come."""
    await kafka.create("t")
    listener = Listener()
    async with kafka.consumer(
        group_id="g", max_poll_interval_ms=10_000, session_timeout_ms=6_000
    ) as consumer:
        await consumer.subscribe(["t"], listener=listener)
        with trio.move_on_after(60):
            await anext(consumer)
        await kafka.fill("t", 1)
        assert offsets(await take(consumer, 1)) == [0]
        assert listener.events == [("assigned", [0])]


@pytest.mark.parametrize(
    ("kind", "heartbeat"),
    [
        ("classic", "Heartbeat"),
        ("consumer", "ConsumerGroupHeartbeat"),
        ("share", "ShareGroupHeartbeat"),
    ],
)
async def test_who_waits_joins_again(kafka: Kafka, kind: str, heartbeat: str) -> None:
    """Also where the coordinator forgets the member max_poll_interval_ms after its last poll.

    A member of a group without partitions for all has none, so that no rebalance wakes its call.
    """
    settings: dict[str, Any] = {"group_id": "g", "max_poll_interval_ms": 2_000}
    consumers: dict[str, Any] = {}
    got: list[str] = []

    async def wait(machine: str, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with kafka.world.machine(machine), trio.CancelScope() as scope:
            if kind == "share":
                consumers[machine] = ShareConsumer(kafka.bootstrap, **settings)
            else:
                consumers[machine] = kafka.consumer(
                    group_protocol=kind, enable_auto_commit=False, **settings
                )
            async with consumers[machine] as consumer:
                await consumer.subscribe(["t"])
                task_status.started(scope)
                await anext(consumer)
                got.append(machine)

    await kafka.create("t")
    async with trio.open_nursery() as nursery:
        scopes = {name: await nursery.start(wait, name) for name in ("a", "b")}
        await trio.sleep(10)
        idle, other = sorted(scopes, key=lambda name: len(consumers[name].assignment))
        kafka.world.delay(heartbeat, seconds=3, machine=idle)
        kafka.world.refuse(heartbeat, "UNKNOWN_MEMBER_ID", machine=idle)
        await trio.sleep(10)
        scopes[other].cancel()
        with trio.fail_after(90):
            while not got:
                await kafka.fill("t", 1)
                await trio.sleep(1)
    assert got == [idle]


async def test_a_static_member_keeps_its_partitions_over_a_restart(kafka: Kafka) -> None:
    """The others are not disturbed: no rebalance."""
    await kafka.create("t", 2)
    listener = Listener()

    async def read(consumer: Consumer) -> None:
        async for _ in consumer:
            pass

    async with (
        kafka.consumer(group_id="g", group_instance_id="one") as first,
        trio.open_nursery() as nursery,
    ):
        await first.subscribe(["t"], listener=listener)
        nursery.start_soon(read, first)
        await trio.sleep(1)
        assignments = []
        for _ in range(2):
            async with kafka.consumer(group_id="g", group_instance_id="two") as second:
                await second.subscribe(["t"])
                await second.poll(timeout_ms=8_000)
                assignments.append(second.assignment)
            await trio.sleep(5)
        assert assignments[0] == assignments[1]
        assert len(assignments[0]) == 1
        assert listener.events == [
            ("assigned", [0, 1]),
            ("revoked", [0, 1]),
            ("assigned", [0]),
        ]
        nursery.cancel_scope.cancel()
