"""confluent-kafka (librdkafka) in the roles of the scenarios."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from tests.conformance.clients import scenarios
from tests.conformance.clients.install import python_client
from tests.conformance.clients.members import ThreadMember
from tests.conformance.clients.records import Abilities, Received, Record
from tests.conformance.clients.scenarios import ClientError

REQUEST_TIMEOUT_S = 20.0
log = logging.getLogger("confluent-kafka")


class ConfluentKafka:
    """The client of the scenarios; `settings` go to every producer."""

    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")
    can = Abilities()
    commits_at_rebalance = True
    commits_at_leave = False

    def __init__(self, address: str, **settings: object) -> None:
        self.library = python_client("confluent_kafka")
        self.address = address
        self._producers: dict[str, Any] = {}
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.group_settings: dict[str, object] = {
            "session.timeout.ms": scenarios.SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": scenarios.HEARTBEAT_INTERVAL_MS,
        }

    def create_topic(self, topic: str, partitions: int) -> None:
        ConfluentAdmin(self.address).create_topic(topic, partitions, {})

    def produce(self, topic: str, codec: str, records: Sequence[Record]) -> list[tuple[int, int]]:
        return self._send(self._producer(codec), topic, records)

    def transact(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        commit: bool,
        offsets_of: ConfluentMember | None = None,
    ) -> list[Record]:
        """Send records in a transaction, with a member's position if one is given."""
        if not self._producers:
            self._producer("lz4").init_transactions(scenarios.DEADLINE_S)
        producer = self._producer("lz4")
        producer.begin_transaction()
        self._send(producer, topic, records)
        if offsets_of is not None:
            positions, group = offsets_of.do(offsets_of.positions)
            producer.send_offsets_to_transaction(positions, group, scenarios.DEADLINE_S)
        end = producer.commit_transaction if commit else producer.abort_transaction
        end(scenarios.DEADLINE_S)
        return list(records)

    def _send(self, producer: Any, topic: str, records: Sequence[Record]) -> list[tuple[int, int]]:
        places: list[tuple[int, int]] = [(-1, -1)] * len(records)

        def delivered_to(index: int) -> Callable[[Any, Any], None]:
            def delivered(error: object, message: Any) -> None:
                assert error is None, error
                places[index] = (message.partition(), message.offset())

            return delivered

        for index, record in enumerate(records):
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,
                on_delivery=delivered_to(index),
            )
            producer.poll(0)
        assert producer.flush(scenarios.DEADLINE_S) == 0, "not all were acknowledged in time"
        return places

    def _producer(self, codec: str) -> Any:
        """Return the one producer of a codec: it lives as long as the client."""
        if codec not in self._producers:
            settings = {"bootstrap.servers": self.address, "linger.ms": 20, "logger": log}
            # One at a time: what is sent again keeps its place.
            settings["max.in.flight.requests.per.connection"] = 1
            settings |= self._settings | {"compression.type": codec}
            self._producers[codec] = self.library.Producer(settings)
        return self._producers[codec]

    def member(self, topic: str, group: str, name: str) -> ConfluentMember:
        return ConfluentMember(self, topic, group, name)


class ConfluentMember(ThreadMember):
    """A consumer that commits by hand, also when it must give partitions up."""

    def __init__(self, client: ConfluentKafka, topic: str, group: str, name: str) -> None:
        super().__init__(name)
        self._client = client
        self._topic = topic
        self._settings = client.group_settings | {
            "bootstrap.servers": client.address,
            "group.id": group,
            "client.id": name.replace(" ", "-"),
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "logger": log,
        }
        self._leaving = False

    def open(self) -> None:
        self._consumer = self._client.library.Consumer(self._settings)
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke
        )

    def _on_assign(self, consumer: Any, partitions: Iterable[Any]) -> None:
        self.assign(self.assignment | {tp.partition for tp in partitions})

    def _on_revoke(self, consumer: Any, partitions: Iterable[Any]) -> None:
        if not self._leaving:
            self.commit_positions()
        self.assign(self.assignment - {tp.partition for tp in partitions})

    def poll(self) -> Iterable[Received]:
        for message in self._consumer.consume(200, 0.05):
            if message.error() is not None:
                assert message.error().retriable(), message.error()
                continue
            record = Record(
                message.key(),
                message.value(),
                tuple(message.headers() or ()),
                message.timestamp()[1],
            )
            yield Received(message.partition(), message.offset(), record)

    def commit_positions(self) -> None:
        error = self._client.library.KafkaError
        try:
            for committed in self._consumer.commit(asynchronous=False):
                assert committed.error is None, committed.error
        except self._client.library.KafkaException as failure:
            if failure.args[0].code() != error._NO_OFFSET:  # nothing read since the last commit
                raise

    def positions(self) -> tuple[list[Any], Any]:
        """Return where the member is, and its group, as a transaction takes them; for `do`."""
        assigned = self._consumer.assignment()
        return self._consumer.position(assigned), self._consumer.consumer_group_metadata()

    def close(self) -> None:
        self._leaving = True
        self._consumer.close()


class ConfluentAdmin:
    """The admin of the scenarios."""

    def __init__(self, address: str) -> None:
        self.library = python_client("confluent_kafka")
        self.admin = python_client("confluent_kafka.admin")
        settings = {"bootstrap.servers": address}
        self.client = self.admin.AdminClient(settings, logger=log)

    def result(self, future: Future[Any]) -> Any:
        """Return the result of a request."""
        try:
            return future.result(REQUEST_TIMEOUT_S)
        except self.library.KafkaException as failure:
            raise ClientError(failure.args[0].code()) from failure

    def one(self, futures: dict[Any, Future[Any]]) -> Any:
        """Return the result of the only request of a call."""
        (future,) = futures.values()
        return self.result(future)

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = self.admin.NewTopic(topic, partitions, 1, config=configs)
        self.one(self.client.create_topics([new]))

    def partitions(self, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
        names = self.library.TopicCollection([topic])
        described = self.one(self.client.describe_topics(names))
        return {
            p.id: (p.leader.id, [node.id for node in p.replicas], [node.id for node in p.isr])
            for p in described.partitions
        }

    def topics(self) -> list[str]:
        return list(self.client.list_topics(timeout=REQUEST_TIMEOUT_S).topics)

    def add_partitions(self, topic: str, total: int) -> None:
        self.one(self.client.create_partitions([self.admin.NewPartitions(topic, total)]))

    def delete_topic(self, topic: str) -> None:
        self.one(self.client.delete_topics([topic]))

    def configs(self, topic: str) -> dict[str, str | None]:
        resource = self.admin.ConfigResource(self.admin.ResourceType.TOPIC, topic)
        entries = self.one(self.client.describe_configs([resource]))
        return {name: entry.value for name, entry in entries.items()}

    def set_config(self, topic: str, name: str, value: str) -> None:
        change = self.admin.ConfigEntry(
            name, value, incremental_operation=self.admin.AlterConfigOpType.SET
        )
        resource = self.admin.ConfigResource(
            self.admin.ResourceType.TOPIC, topic, incremental_configs=[change]
        )
        self.one(self.client.incremental_alter_configs([resource]))

    def groups(self) -> list[str]:
        listed = self.result(self.client.list_consumer_groups())
        assert not listed.errors, listed.errors
        return [found.group_id for found in listed.valid]

    def group(self, group: str) -> tuple[str, int]:
        described = self.one(self.client.describe_consumer_groups([group]))
        return described.state.name.capitalize(), len(described.members)

    def delete_group(self, group: str) -> None:
        self.one(self.client.delete_consumer_groups([group]))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        wanted = self.library.ConsumerGroupTopicPartitions(group)
        listed = self.one(self.client.list_consumer_group_offsets([wanted]))
        return {tp.partition: tp.offset for tp in listed.topic_partitions if tp.topic == topic}

    def offsets(self, topic: str, at: int) -> dict[int, int]:
        spec = {-2: self.admin.OffsetSpec.earliest(), -1: self.admin.OffsetSpec.latest()}.get(at)
        spec = spec or self.admin.OffsetSpec.for_timestamp(at)
        wanted = {
            self.library.TopicPartition(topic, partition): spec
            for partition in self.partitions(topic)
        }
        futures = self.client.list_offsets(wanted)
        return {tp.partition: self.result(future).offset for tp, future in futures.items()}

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        wanted = [self.library.TopicPartition(topic, p, offset) for p, offset in before.items()]
        futures = self.client.delete_records(wanted)
        return {tp.partition: self.result(future).low_watermark for tp, future in futures.items()}
