"""Transactions of our clients on real brokers: producer, committed reads, administration.

Each test runs under transaction.version 2 (an epoch for each transaction, KIP-890) and under 1.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from kraftrio import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from kraftrio.clients.admin.types import AbortTransactionSpec, ProducerState
from kraftrio.clients.cluster import open_cluster
from kraftrio.clients.consumer.consumer import ConsumerRecord
from kraftrio.clients.producer.transactions.requests import TRANSACTION_VERSION_FEATURE
from kraftrio.errors import (
    CommitFailedError,
    InvalidProducerEpochError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionalIdNotFoundError,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conformance.broker_process import ApacheBroker, Broker
from tests.conformance.clients import scenarios
from tests.conformance.clients_trio.consuming import make_topic, read_to_end, wait_decided

pytestmark = scenarios.MARKS

Names = Callable[[], str]

DEADLINE_S = 40.0
README = Path(__file__).resolve().parents[3] / "README.md"
UPGRADE, SAFE_DOWNGRADE = 1, 2  # kinds of an update
BROKERS: dict[str, type[Broker]] = {"ours": Broker, "apache": ApacheBroker}


@pytest.fixture(scope="module", params=list(BROKERS))
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Ours and Apache's, each for all tests here."""
    broker = BROKERS[request.param](tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker.address
    broker.close()


@pytest.fixture(scope="module", params=[2, 1])
def version(request: pytest.FixtureRequest, address: str) -> int:
    """The cluster's transaction.version, for clients that connect from now on."""
    wanted: int = request.param

    update = FeatureUpdateKey(
        feature=TRANSACTION_VERSION_FEATURE,
        max_version_level=wanted,
        upgrade_type=SAFE_DOWNGRADE if wanted < 2 else UPGRADE,
    )
    asked = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update])

    async def finalized() -> int:
        async with open_cluster(address) as cluster:
            await cluster.refresh()
            node = cluster.node(cluster.metadata.controller_id)
            assert node is not None
            await node.connect()
            return node.versions.features.get(TRANSACTION_VERSION_FEATURE, 0)

    async def run() -> None:
        with trio.fail_after(DEADLINE_S):
            if await finalized() == wanted:
                return
            async with open_cluster(address) as cluster:
                response = await cluster.request_controller(asked)
                assert response.error_code == ErrorCode.NONE, response
            while await finalized() != wanted:  # noqa: ASYNC110 (nobody could set an event)
                await trio.sleep(0.05)

    trio.run(run)
    return wanted


async def create(address: str, name: str, partitions: int = 1, **configs: str) -> str:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    async with Admin(address) as admin:
        await make_topic(admin, name, partitions, settings)
    return name


async def read(address: str, topic: str, *, committed: bool = True) -> list[ConsumerRecord]:
    """Read a topic once its transactions have ended."""
    async with Admin(address) as admin:
        await wait_decided(admin, [topic])
    level = "read_committed" if committed else "read_uncommitted"
    async with Consumer(address, isolation_level=level) as consumer:  # type: ignore[arg-type]
        return await read_to_end(consumer, topic)


def values(records: list[ConsumerRecord]) -> list[bytes | None]:
    return [record.value for record in sorted(records, key=lambda each: each[:2])]


async def wait_state(admin: Admin, transactional_id: str, state: str) -> None:
    """Wait until the coordinator has ended what it decided."""
    with trio.fail_after(DEADLINE_S):
        while True:
            described = await admin.transactions.describe([transactional_id])
            if described[transactional_id].state == state:
                return
            await trio.sleep(0.02)


async def test_interleaved_transactions(address: str, version: int, unique_topic: Names) -> None:
    """Two producers, committing and aborting across each other: each committed record once."""
    topic = await create(address, unique_topic(), 3)
    kept: list[bytes] = []
    async with (
        Producer(address, transactional_id=f"{topic}-a") as one,
        Producer(address, transactional_id=f"{topic}-b") as other,
    ):
        assert one._transactions is not None
        assert one._transactions.core.transaction_version == version
        for number in range(8):
            commits = number % 3 != 1, number % 4 != 2
            contents = [
                [b"%d %d %d" % (each, number, index) for index in range(20)] for each in (0, 1)
            ]
            async with one.transaction() as first, other.transaction() as second:
                for index in range(20):
                    for producer, content in zip((one, other), contents, strict=True):
                        await producer.send(topic, content[index], partition=index % 3)
                    if index == 10:
                        await one.flush()
                if not commits[0]:
                    await one.flush()
                    await first.abort()
                if not commits[1]:
                    await second.abort()
            for is_kept, content in zip(commits, contents, strict=True):
                kept += content if is_kept else []
    found = await read(address, topic)
    assert sorted(each.value or b"" for each in found) == sorted(kept)
    for partition in range(3):
        mine = [each for each in found if each.partition == partition]
        assert [each.offset for each in mine] == sorted({each.offset for each in mine})
    seen = {each.value for each in await read(address, topic, committed=False)}
    assert seen > set(kept), "what was written and aborted is in the log"
    async with Consumer(address, isolation_level="read_committed") as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_end()
        end = await consumer.position(place)
        await read_to_end(consumer, topic)
        assert await consumer.position(place) == end, "past the last marker"


async def test_consume_transform_produce(
    address: str, version: int, unique_topic: Names, unique_group: Names
) -> None:
    """With cancellations, exceptions and zombies in between, each input gives one output."""
    source, target = await create(address, unique_topic(), 2), await create(address, unique_topic())
    group, inputs = unique_group(), [b"%04d" % number for number in range(300)]
    async with Producer(address) as producer:
        for number, value in enumerate(inputs):
            await producer.send(source, value, partition=number % 2)

    async def copy(consumer: Consumer, producer: Producer, crash: str | None, count: int) -> int:
        """One round; it copies what one poll brings, unless it crashes before its end."""
        records = await consumer.poll(timeout_ms=500, max_records=40)
        with trio.CancelScope() as scope:
            async with producer.transaction() as transaction:
                for record in records:
                    await producer.send(target, b"<%s>" % record.value)
                await transaction.send_offsets(consumer)
                if crash == "exception":
                    await producer.flush()
                    raise ZeroDivisionError
                if crash == "cancelled":
                    scope.cancel()
                    await trio.sleep_forever()
        if scope.cancelled_caught:
            raise ZeroDivisionError
        return count + len(records)

    done, rounds = 0, 0
    with trio.fail_after(DEADLINE_S * 2):
        while done < len(inputs):
            rounds += 1
            crash = {1: "exception", 2: "cancelled", 4: "zombie"}.get(rounds)
            zombie = Producer(address, transactional_id=f"{group}-copies")
            async with (
                Consumer(
                    address, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
                ) as consumer,
                zombie if crash == "zombie" else Producer(address, transactional_id=f"{group}-x"),
                Producer(address, transactional_id=f"{group}-copies") as producer,
            ):
                await consumer.subscribe([source])
                if crash == "zombie":
                    with pytest.raises(ProducerFencedError):
                        await copy(consumer, zombie, None, done)
                    continue
                try:
                    done = await copy(consumer, producer, crash, done)
                    done = await copy(consumer, producer, None, done)
                except ZeroDivisionError:
                    assert crash
    assert rounds > 4
    found = values(await read(address, target))
    assert sorted(each or b"" for each in found) == [b"<%s>" % each for each in inputs]


async def test_who_lost_its_partitions_commits_nothing(
    address: str, version: int, unique_topic: Names, unique_group: Names
) -> None:
    """The generation of the member is checked, and the output goes with the offsets (KIP-447)."""
    source, target = await create(address, unique_topic()), await create(address, unique_topic())
    group, place = unique_group(), TopicPartition(source, 0)
    settings: dict[str, Any] = {"group_id": group, "enable_auto_commit": False}
    async with Producer(address, transactional_id=f"{group}-t") as producer:
        async with Consumer(address, **settings) as consumer:
            await consumer.subscribe([source])
            await consumer.poll(timeout_ms=1000)
            old = consumer.group_metadata()
            assert old.member_id and old.generation_id > 0
        with pytest.raises(TransactionAbortedError) as raised:
            async with producer.transaction() as transaction:
                await producer.send(target, b"of a member that left")
                await transaction.send_offsets({place: 7}, old)
        assert isinstance(raised.value.__cause__, CommitFailedError)
        async with Consumer(address, **settings) as consumer:
            assert await consumer.offsets.committed([place]) == {place: None}
            async with producer.transaction() as transaction:
                await producer.send(target, b"kept")
                await transaction.send_offsets({place: 8}, group)
                async with Consumer(address, **settings) as early:
                    with trio.move_on_after(0.5):
                        found = await early.offsets.committed([place])
                        raise AssertionError(f"a pending commit was not waited for: {found}")
            committed = await consumer.offsets.committed([place])
            assert committed == {place: OffsetAndMetadata(8)}
    assert values(await read(address, target)) == [b"kept"]


async def test_a_zombie_writes_nothing(address: str, version: int, unique_topic: Names) -> None:
    """The successor aborts what the zombie has open, and the zombie learns that it is fenced."""
    topic = await create(address, unique_topic())
    name = f"{topic}-t"
    async with Producer(address, transactional_id=name) as zombie:
        with pytest.raises(ProducerFencedError):
            async with zombie.transaction():
                await (await zombie.send(topic, b"early"))
                async with Producer(address, transactional_id=name) as successor:
                    async with successor.transaction():
                        await successor.send(topic, b"kept")
                    await (await zombie.send(topic, b"late"))
        with pytest.raises(ProducerFencedError):
            await zombie.transaction().__aenter__()
    assert values(await read(address, topic)) == [b"kept"]


async def test_administration(address: str, version: int, unique_topic: Names) -> None:
    """Every filter of the list, descriptions, producers of a partition, fencing and aborting."""
    topic = await create(address, unique_topic())
    place, name = TopicPartition(topic, 0), f"{topic}-open"
    async with (
        Admin(address) as admin,
        Producer(address, transactional_id=f"{topic}-done") as done,
        Producer(address, transactional_id=name, transaction_timeout_ms=50_000) as producer,
    ):
        async with done.transaction():
            await done.send(topic, b"kept")
        await wait_state(admin, f"{topic}-done", "CompleteCommit")
        before_ms = time.time() * 1000
        with pytest.raises(ProducerFencedError):
            async with producer.transaction():
                offset = (await (await producer.send(topic, b"open"))).offset
                described = (await admin.transactions.describe([name]))[name]
                assert (described.state, described.transaction_timeout_ms) == ("Ongoing", 50_000)
                assert described.topic_partitions == {place}
                assert described.transaction_start_time_ms is not None
                assert described.transaction_start_time_ms >= before_ms - 1000
                mine = described.producer_id
                pattern = f"{topic}-.*"
                await trio.sleep(0.01)
                cases: tuple[tuple[dict[str, Any], set[str]], ...] = (
                    ({}, {name, f"{topic}-done"}),
                    ({"states": ["Ongoing"]}, {name}),
                    ({"states": ["CompleteCommit"]}, {f"{topic}-done"}),
                    ({"producer_ids": [mine]}, {name}),
                    ({"min_duration_ms": 1}, {name, f"{topic}-done"}),
                    ({"min_duration_ms": 600_000}, set()),
                )
                for filters, wanted in cases:
                    listed = await admin.transactions.list_ids(
                        transactional_id_pattern=pattern,
                        **filters,
                    )
                    assert {each.transactional_id for each in listed} == wanted, filters
                assert len((await admin.transactions.describe_producers([place]))[place]) == 2
                (open_one,) = await open_producers(admin, place)
                assert open_one.producer_id == mine
                assert open_one.current_transaction_start_offset == offset
                assert open_one.last_sequence == 0
                fenced = (await admin.transactions.fence_producers([name]))[name]
                assert fenced >= (mine, described.producer_epoch)
                await wait_state(admin, name, "Empty")
        with pytest.raises(TransactionalIdNotFoundError):
            await admin.transactions.describe(["no-such-id"])
        await abort_by_hand(admin, address, place)
    assert values(await read(address, topic)) == [b"kept"]


async def abort_by_hand(admin: Admin, address: str, place: TopicPartition) -> None:
    """A transaction that hangs in one partition is aborted there; an older epoch is refused."""
    name = f"{place.topic}-hangs"
    async with Producer(address, transactional_id=name):
        pass  # so that there is an older epoch
    producer = Producer(address, transactional_id=name)
    async with producer, producer.transaction() as transaction:
        await (await producer.send(place.topic, b"hangs"))
        (state,) = await open_producers(admin, place)
        spec = AbortTransactionSpec(
            place, state.producer_id, state.producer_epoch, state.coordinator_epoch or 0
        )
        with pytest.raises(InvalidProducerEpochError):
            await admin.transactions.abort(replace(spec, producer_epoch=spec.producer_epoch - 1))
        await admin.transactions.abort(spec)
        assert not await open_producers(admin, place)
        await transaction.abort()


async def open_producers(admin: Admin, place: TopicPartition) -> list[ProducerState]:
    """Return the producers with an open transaction in a partition."""
    states = (await admin.transactions.describe_producers([place]))[place]
    return [each for each in states if each.current_transaction_start_offset is not None]


async def test_the_readme_runs(address: str, version: int) -> None:
    """Its program copies what comes, in capitals, until it is stopped; a second one goes on."""
    code = re.search(r"### Exactly once.*?```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert code is not None
    assert len(code[1].partition("async def main")[2].strip().splitlines()) <= 18
    program = code[1].replace("localhost:9092", address)
    program = program.replace("greetings", f"greetings-{version}").replace("shout", f"sh{version}")
    wanted: list[bytes] = []
    for word in (b"hello", b"good morning"):
        async with Producer(address) as producer:
            await producer.send(f"greetings-{version}", word)
        wanted.append(word.upper())
        command = [sys.executable, "-c", program]
        async with trio.open_nursery() as nursery:
            run = partial(trio.run_process, command, check=False, capture_stderr=True)
            process = await nursery.start(run)
            with trio.fail_after(DEADLINE_S):
                async with Consumer(
                    address, auto_offset_reset="earliest", isolation_level="read_committed"
                ) as consumer:
                    consumer.assign([TopicPartition(f"sh{version}s", 0)])
                    assert [(await anext(consumer)).value for _ in wanted] == wanted
                process.send_signal(signal.SIGINT)  # it aborts nothing, and leaves its group
                await process.wait()
    assert values(await read(address, f"sh{version}s")) == wanted
