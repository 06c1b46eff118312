"""Python's clients in transactions: a copy of a topic, and a producer that was replaced.

Each `copy` is the loop of consuming, transforming and producing: a batch is read with
read_committed, and its records, marked, go to the target in one transaction with the group's new
offsets. Every transaction is aborted once before it is committed. `zombie` goes on with a producer
after another one has begun with its id; the library's error is raised as a ClientError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from kraftrio.wire.errors import ErrorCode
from tests.conformance.clients.driven import Driver
from tests.conformance.clients.install import python_client
from tests.conformance.clients.scenarios import DEADLINE_S, ClientError

RECORDS_PER_TRANSACTION = 20
MARK = b"!"


class ConfluentTransactions:
    """confluent-kafka: a transactional producer of librdkafka."""

    def __init__(self, address: str) -> None:
        self._library = python_client("confluent_kafka")
        self._address = {"bootstrap.servers": address}

    def _producer(self, name: str) -> Any:
        made = self._library.Producer(self._address | {"transactional.id": name})
        made.init_transactions(DEADLINE_S)
        return made

    def transact(self, topic: str, name: str, values: Sequence[bytes], *, commit: bool) -> None:
        self._transaction(self._producer(name), topic, values, commit)

    def _transaction(
        self,
        producer: Any,
        topic: str,
        values: Sequence[bytes],
        commit: bool,
        offsets_of: Any = None,
    ) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value=value)
        if offsets_of is not None:
            positions = offsets_of.position(offsets_of.assignment())
            group = offsets_of.consumer_group_metadata()
            producer.send_offsets_to_transaction(positions, group, DEADLINE_S)
        if commit:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.flush(DEADLINE_S)  # or they never leave the client
            producer.abort_transaction(DEADLINE_S)

    def copy(self, source: str, target: str, group: str, name: str, count: int) -> None:
        producer = self._producer(name)
        settings = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = self._library.Consumer(self._address | settings | {"fetch.wait.max.ms": 100})
        with closing(consumer):
            consumer.subscribe([source])
            while count > 0:
                found = consumer.consume(RECORDS_PER_TRANSACTION, 0.2)
                assert all(message.error() is None for message in found)
                values = [message.value() + MARK for message in found]
                for commit in (False, True) if values else ():
                    self._transaction(producer, target, values, commit, consumer)
                count -= len(values)

    def zombie(self, topic: str, name: str) -> None:
        old = self._producer(name)
        old.begin_transaction()
        old.produce(topic, value=b"old")
        old.flush(DEADLINE_S)
        self.transact(topic, name, [b"new"], commit=True)
        old.produce(topic, value=b"late")
        try:
            old.commit_transaction(DEADLINE_S)
        except self._library.KafkaException as error:
            assert error.args[0].fatal()
            raise ClientError(error.args[0].code()) from error


class AioKafkaTransactions:
    """aiokafka."""

    def __init__(self, address: str) -> None:
        self._library = python_client("aiokafka")
        self._address = address

    def _producer(self, name: str) -> Any:
        return self._library.AIOKafkaProducer(
            bootstrap_servers=self._address, transactional_id=name
        )

    def transact(self, topic: str, name: str, values: Sequence[bytes], *, commit: bool) -> None:
        asyncio.run(self._transact(topic, name, values, commit))

    async def _transact(self, topic: str, name: str, values: Sequence[bytes], commit: bool) -> None:
        async with self._producer(name) as producer:
            await self._transaction(producer, topic, values, commit)

    async def _transaction(
        self,
        producer: Any,
        topic: str,
        values: Sequence[bytes],
        commit: bool,
        offsets: tuple[dict[Any, int], str] | None = None,
    ) -> None:
        await producer.begin_transaction()
        for sent in [await producer.send(topic, value) for value in values]:
            await sent
        if offsets is not None:
            await producer.send_offsets_to_transaction(*offsets)
        await (producer.commit_transaction() if commit else producer.abort_transaction())

    def copy(self, source: str, target: str, group: str, name: str, count: int) -> None:
        asyncio.run(self._copy(source, target, group, name, count))

    async def _copy(self, source: str, target: str, group: str, name: str, count: int) -> None:
        consumer = self._library.AIOKafkaConsumer(
            source,
            bootstrap_servers=self._address,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=100,
        )
        async with consumer, self._producer(name) as producer:
            while count > 0:
                found = await consumer.getmany(timeout_ms=200, max_records=RECORDS_PER_TRANSACTION)
                values = [m.value + MARK for messages in found.values() for m in messages]
                next_ones = {tp: messages[-1].offset + 1 for tp, messages in found.items()}
                for commit in (False, True) if values else ():
                    await self._transaction(producer, target, values, commit, (next_ones, group))
                count -= len(values)

    def zombie(self, topic: str, name: str) -> None:
        asyncio.run(self._zombie(topic, name))

    async def _zombie(self, topic: str, name: str) -> None:
        async with self._producer(name) as old:
            await old.begin_transaction()
            await old.send_and_wait(topic, b"old")
            await self._transact(topic, name, [b"new"], True)
            try:
                await old.send_and_wait(topic, b"late")
                await old.commit_transaction()
            except self._library.errors.ProducerFenced as error:  # made of this code
                raise ClientError(ErrorCode.INVALID_PRODUCER_EPOCH) from error


class KafkaPythonTransactions:
    """kafka-python."""

    def __init__(self, address: str) -> None:
        self._library = python_client("kafka")
        self._address = address

    def _producer(self, name: str) -> Any:
        made = self._library.KafkaProducer(bootstrap_servers=self._address, transactional_id=name)
        made.init_transactions()
        return made

    def transact(self, topic: str, name: str, values: Sequence[bytes], *, commit: bool) -> None:
        with closing(self._producer(name)) as producer:
            self._transaction(producer, topic, values, commit)

    def _transaction(
        self,
        producer: Any,
        topic: str,
        values: Sequence[bytes],
        commit: bool,
        offsets: tuple[dict[Any, Any], Any] | None = None,
    ) -> None:
        producer.begin_transaction()
        for sent in [producer.send(topic, value) for value in values]:
            sent.get(DEADLINE_S)
        if offsets is not None:
            producer.send_offsets_to_transaction(*offsets)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()

    def copy(self, source: str, target: str, group: str, name: str, count: int) -> None:
        structs = python_client("kafka.structs")
        consumer = self._library.KafkaConsumer(
            source,
            bootstrap_servers=self._address,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=100,
            metadata_max_age_ms=500,
        )
        with closing(consumer), closing(self._producer(name)) as producer:
            while count > 0:
                found = consumer.poll(timeout_ms=1000, max_records=RECORDS_PER_TRANSACTION)
                values = [m.value + MARK for messages in found.values() for m in messages]
                next_ones = {
                    tp: structs.OffsetAndMetadata(messages[-1].offset + 1, "", -1)
                    for tp, messages in found.items()
                }
                for commit in (False, True) if values else ():
                    where = next_ones, consumer.group_metadata()
                    self._transaction(producer, target, values, commit, where)
                count -= len(values)

    def zombie(self, topic: str, name: str) -> None:
        old = self._producer(name)
        try:
            old.begin_transaction()
            old.send(topic, b"old").get(DEADLINE_S)
            self.transact(topic, name, [b"new"], commit=True)
            old.send(topic, b"late").get(DEADLINE_S)
            old.commit_transaction()
        except self._library.errors.KafkaError as error:
            raise ClientError(error.errno) from error
        finally:
            old.close(timeout=DEADLINE_S)


class DrivenTransactions:
    """A client behind lines of JSON, which does the same."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def transact(self, topic: str, name: str, values: Sequence[bytes], *, commit: bool) -> None:
        texts = [value.decode() for value in values]
        self.driver.call("transact", topic=topic, name=name, values=texts, commit=commit)

    def copy(self, source: str, target: str, group: str, name: str, count: int) -> None:
        self.driver.call("copy", source=source, target=target, group=group, name=name, count=count)

    def zombie(self, topic: str, name: str) -> None:
        self.driver.call("zombie", topic=topic, name=name)
