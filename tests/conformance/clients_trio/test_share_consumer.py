"""Our share consumer (KIP-932) beside a Java member, with brokers of Apache and ours."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from kraftrio import (
    AcknowledgeType,
    Admin,
    Producer,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
    json_deserializer,
)
from kraftrio.clients.admin.types import AlterConfigOp, ConfigResource, ConfigResourceType
from kraftrio.errors import (
    GroupNotEmptyError,
    InvalidRecordStateError,
    RecordDeserializationError,
)
from tests.conformance.apache_kafka import apache_kafka
from tests.conformance.broker_process import Broker
from tests.conformance.clients import scenarios
from tests.conformance.clients_trio.consuming import make_topic

pytestmark = scenarios.MARKS

Names = Callable[[], str]

DEADLINE_S = 60.0
PARTITIONS = 3
EXPLICIT: Any = {"share_acknowledgement_mode": "explicit"}


async def prepare(
    address: str, topic: str, group: str, count: int, partitions: int = PARTITIONS
) -> None:
    """Make a topic with records, which the group reads from the beginning."""
    async with Admin(address) as admin:
        await make_topic(admin, topic, partitions)
        config = ConfigResource(ConfigResourceType.GROUP, group)
        change = AlterConfigOp("share.auto.offset.reset", "earliest")
        await admin.incremental_alter_configs({config: [change]})
    await fill(address, topic, 0, count, partitions)


async def fill(address: str, topic: str, first: int, count: int, partitions: int) -> None:
    async with Producer(address) as producer:
        for number in range(first, first + count):
            partition = number % partitions
            await producer.send(topic, b"%d" % number, key=b"%d" % number, partition=partition)


@asynccontextmanager
async def consuming(
    address: str, topic: str, group: str, **settings: Any
) -> AsyncIterator[ShareConsumer]:
    async with ShareConsumer(address, group_id=group, **settings) as consumer:
        await consumer.subscribe(topic)
        with trio.fail_after(DEADLINE_S):
            yield consumer


def values(records: list[ShareRecord]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


class JavaMember:
    """The console share consumer in a process of its own, which accepts what it prints."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        options = ["--bootstrap-server", address, "--topic", topic, "--group", group]
        self._command = apache_kafka().tool_command("kafka-console-share-consumer", options)
        self.values: list[int] = []
        self.process: trio.Process | None = None

    async def run(self) -> None:
        self.process = process = await trio.lowlevel.open_process(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        rest = b""
        async for chunk in process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            self.values += [int(line) for line in lines if line.strip().isdigit()]
        await process.wait()


async def test_a_java_member_and_two_of_ours(
    share_groups: Broker, unique_topic: Names, unique_group: Names
) -> None:
    """Each record is worked on by one of them; when Java's is killed the others go on."""
    topic, group, address = unique_topic(), unique_group(), share_groups.address
    await prepare(address, topic, group, 300)
    java = JavaMember(address, topic, group)
    ours: tuple[list[ShareRecord], list[ShareRecord]] = ([], [])
    sent = 300
    stop = trio.Event()

    async def member(found: list[ShareRecord]) -> None:
        async with consuming(address, topic, group, max_poll_records=20) as consumer:
            while not stop.is_set():
                found += await consumer.poll(timeout_ms=100)

    def everybody() -> set[int]:
        return {*java.values, *values(ours[0]), *values(ours[1])}

    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(java.run)
            for found in ours:
                nursery.start_soon(partial(member, found))
            while not (java.values and ours[0] and ours[1] and len(everybody()) == sent):
                if len(everybody()) == sent:  # so that each of them gets its part
                    await fill(address, topic, sent, 60, PARTITIONS)
                    sent += 60
                await trio.sleep(0.05)
            assert java.process is not None
            java.process.kill()
            await java.process.wait()
            await fill(address, topic, sent, 300, PARTITIONS)
            sent += 300
            while len(everybody()) < sent:  # noqa: ASYNC110
                await trio.sleep(0.05)
            stop.set()
    assert everybody() == set(range(sent))
    mine = values(ours[0]) + values(ours[1])
    assert len(mine) == len(set(mine)), "ours have finished with each in good order"


async def test_what_becomes_of_records(
    share_groups: Broker, unique_topic: Names, unique_group: Names
) -> None:
    """Accepted and rejected ones never come again, released ones do; brokers confirm it."""
    topic, group, address = unique_topic(), unique_group(), share_groups.address
    await prepare(address, topic, group, 30, partitions=1)
    place = TopicPartition(topic, 0)
    acknowledged: list[tuple[TopicPartition, list[int]]] = []
    async with consuming(address, topic, group, **EXPLICIT) as consumer:
        consumer.acknowledgement_callback = lambda where, offsets, error: acknowledged.append(
            (where, list(offsets))
        )
        again: list[ShareRecord] = []
        for _ in range(40):
            record = await anext(consumer)
            if record.delivery_count > 1:
                again.append(record)
                record.accept()
            elif record.offset % 3 == 0:
                record.release()
            elif record.offset % 3 == 1:
                record.reject()
            else:
                consumer.acknowledge(record, AcknowledgeType.ACCEPT)
        assert values(again) == list(range(0, 30, 3))
        assert {record.delivery_count for record in again} == {2}
        assert await consumer.commit() in ({place: None}, {})
        assert sorted(offset for _, offsets in acknowledged for offset in offsets) == sorted(
            [*range(30), *range(0, 30, 3)]
        )
        assert not await consumer.poll(timeout_ms=1_000)


async def test_locks(share_groups: Broker, unique_topic: Names, unique_group: Names) -> None:
    """A record whose lock is renewed stays with its member; else another one gets it in time."""
    topic, group, address = unique_topic(), unique_group(), share_groups.address
    await prepare(address, topic, group, 2, partitions=1)
    place = TopicPartition(topic, 0)
    async with (
        consuming(address, topic, group, **EXPLICIT) as slow,
        consuming(address, topic, group) as other,
    ):
        kept = await anext(slow)
        kept.renew()
        lost = await anext(slow)
        assert slow.acquisition_lock_timeout_ms == 3_000
        found: list[ShareRecord] = []
        with trio.move_on_after(5):
            while True:
                found += await other.poll(timeout_ms=300)
                kept.renew()
                assert (await slow.commit())[place] is None
        assert [(each.offset, each.delivery_count) for each in found] == [(lost.offset, 2)]
        lost.accept()
        outcome = await slow.commit()
        assert isinstance(outcome[place], InvalidRecordStateError)
        kept.accept()
        assert await slow.commit() == {place: None}


async def test_a_member_that_leaves_releases_its_records(
    share_groups: Broker, unique_topic: Names, unique_group: Names
) -> None:
    """At once, not when their locks run out; those that it has finished do not come again."""
    topic, group, address = unique_topic(), unique_group(), share_groups.address
    await prepare(address, topic, group, 50, partitions=1)
    with pytest.raises(KeyError):
        async with consuming(address, topic, group) as consumer:
            for _ in range(10):
                await anext(consumer)
            raise KeyError
    began = trio.current_time()
    async with consuming(address, topic, group) as consumer:
        found = [await anext(consumer) for _ in range(41)]
    assert [record.offset for record in found] == list(range(9, 50))
    assert {record.delivery_count for record in found} == {2}
    assert trio.current_time() - began < 2.9, "locks last three seconds"


@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
async def test_how_many_come_at_once(
    share_groups: Broker, unique_topic: Names, unique_group: Names, mode: Any
) -> None:
    """With a limit of records no more; without one whole batches, as they were written."""
    topic, group, address = unique_topic(), unique_group(), share_groups.address
    await prepare(address, topic, group, 200, partitions=1)
    sizes: list[int] = []
    async with consuming(
        address, topic, group, share_acquire_mode=mode, max_poll_records=7
    ) as consumer:
        while sum(sizes) < 200:
            sizes.append(len(await consumer.poll()))
    assert sum(sizes) == 200
    assert max(sizes) <= 7 if mode == "record_limit" else max(sizes) > 7


async def test_administration(
    share_groups: Broker, unique_topic: Names, unique_group: Names
) -> None:
    """The group is listed and described; its offsets are read, altered and deleted, and it, too."""
    topic, group, address = unique_topic(), unique_group(), share_groups.address
    await prepare(address, topic, group, 9)
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    async with Admin(address) as admin:
        async with consuming(address, topic, group, client_id="ours") as consumer:
            for _ in range(9):
                await anext(consumer)
            await consumer.commit()
            [listed] = [
                each for each in await admin.list_groups(types=["share"]) if each.group_id == group
            ]
            assert (listed.type, listed.protocol_type, listed.state) == ("share", "share", "Stable")
            described = (await admin.share_groups.describe([group]))[group]
            assert (described.state, described.assignor) == ("Stable", "simple")
            [member] = described.members
            assert (member.client_id, member.subscribed_topics) == ("ours", {topic})
            assert member.assignment == set(places) == consumer.assignment
            with pytest.raises(GroupNotEmptyError):
                await admin.share_groups.alter_offsets(group, {places[0]: 1})
        await wait_for(lambda: admin.share_groups.list_offsets(group), _nothing_left)
        await admin.share_groups.alter_offsets(group, {places[0]: 1})
        offsets = await admin.share_groups.list_offsets(group, [places[0]])
        begins = offsets[places[0]]
        assert begins is not None and begins.start_offset == 1
        async with consuming(address, topic, group) as consumer:
            found = [await anext(consumer) for _ in range(2)]
            assert [(each.partition, each.offset) for each in found] == [(0, 1), (0, 2)]
        await admin.share_groups.delete_offsets(group, [topic])
        assert not await admin.share_groups.list_offsets(group)
        await admin.delete_groups([group])
        assert group not in {each.group_id for each in await admin.list_groups()}


def _nothing_left(offsets: Any) -> bool:
    return len(offsets) == PARTITIONS and all(each and each.lag == 0 for each in offsets.values())


async def wait_for(ask: Callable[[], Any], condition: Callable[[Any], bool]) -> None:
    """Ask again until it is so: the state is written a moment after it is acknowledged."""
    found: Any = None
    with trio.move_on_after(DEADLINE_S):
        while not condition(found := await ask()):  # noqa: ASYNC110
            await trio.sleep(0.05)
        return
    raise AssertionError(f"not in {DEADLINE_S} s: {found}")


async def test_records_that_cannot_be_read_are_released(
    share_groups: Broker, unique_topic: Names, unique_group: Names
) -> None:
    """The error says where they are; those around them are handed over."""
    address, topic, group = share_groups.address, unique_topic(), unique_group()
    await prepare(address, topic, group, 2, partitions=1)
    async with Producer(address) as producer:
        await producer.send_and_wait(topic, b"{", key=b"k")
        await producer.send_and_wait(topic, b"3")
    seen: list[object] = []
    failed: list[object] = []
    async with ShareConsumer(
        address, group_id=group, value_deserializer=json_deserializer
    ) as consumer:
        await consumer.subscribe(topic)
        with trio.fail_after(DEADLINE_S):
            while len(seen) < 3 or len(failed) < 2:  # it is delivered again
                try:
                    seen += [record.value for record in await consumer.poll()]
                except RecordDeserializationError as error:
                    failed.append((error.topic_partition, error.offset, error.key, error.value))
    assert sorted(map(str, seen)) == ["0", "1", "3"]
    assert set(failed) == {(TopicPartition(topic, 0), 2, b"k", b"{")}
