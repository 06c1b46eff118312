"""kafka-python as it is: producers, groups, the admin."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from tests.conformance.broker_process import Broker
from tests.conformance.clients import scenarios
from tests.conformance.clients.install import python_client
from tests.conformance.clients.members import ThreadMember
from tests.conformance.clients.records import Abilities, Received, Record
from tests.conformance.clients.scenarios import ClientError

pytestmark = scenarios.MARKS

Names = Callable[[], str]


class KafkaPython:
    """The client of the scenarios."""

    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")
    can = Abilities(null_headers=False)
    commits_at_rebalance = True
    commits_at_leave = False

    def __init__(self, address: str, **settings: object) -> None:
        self.library = python_client("kafka")
        self.address = address
        self._settings = settings
        self._producers: dict[str, Any] = {}

    def create_topic(self, topic: str, partitions: int) -> None:
        with closing(KafkaPythonAdmin(self.address)) as admin:
            admin.create_topic(topic, partitions, {})

    def produce(self, topic: str, codec: str, records: Sequence[Record]) -> list[tuple[int, int]]:
        producer = self._producer(codec)
        futures = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        producer.flush(scenarios.DEADLINE_S)
        places = [future.get(scenarios.DEADLINE_S) for future in futures]
        return [(place.partition, place.offset) for place in places]

    def _producer(self, codec: str) -> Any:
        """Return the one producer of a codec: it lives as long as the client."""
        if codec not in self._producers:
            self._producers[codec] = self.library.KafkaProducer(
                bootstrap_servers=self.address,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
                **self._settings,
            )
        return self._producers[codec]

    def member(self, topic: str, group: str, name: str) -> KafkaPythonMember:
        return KafkaPythonMember(self, topic, group, name)

    def close(self) -> None:
        for producer in self._producers.values():
            producer.close(scenarios.DEADLINE_S)


class KafkaPythonMember(ThreadMember):
    """A consumer that commits by hand, also when it must give partitions up."""

    def __init__(self, client: KafkaPython, topic: str, group: str, name: str) -> None:
        super().__init__(name)
        self._library = client.library
        self._errors = python_client("kafka.errors")
        self._topic = topic
        self._settings = {
            "bootstrap_servers": client.address,
            "group_id": group,
            "client_id": name.replace(" ", "-"),
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": scenarios.SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": scenarios.HEARTBEAT_INTERVAL_MS,
            "fetch_max_wait_ms": 100,
            # It may miss its topic in the first metadata, and looks again after five minutes.
            "metadata_max_age_ms": 500,
        }
        self._leaving = False

    def open(self) -> None:
        member = self
        base = python_client("kafka.consumer.subscription_state").AsyncConsumerRebalanceListener

        class Listener(base):  # type: ignore[misc,valid-type]
            async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                if revoked and not member._leaving:
                    await member._consumer.commit_async()
                member.assign(member.assignment - {tp.partition for tp in revoked})

            async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                member.assign(member.assignment | {tp.partition for tp in assigned})

        self._consumer = self._library.KafkaConsumer(**self._settings)
        self._consumer.subscribe([self._topic], listener=Listener())

    def poll(self) -> Iterable[Received]:
        # A poll that ends between the two halves of a join loses the assignment: it gets time.
        timeout_ms = 300 if self.assignment else 3000
        try:
            polled = self._consumer.poll(timeout_ms=timeout_ms, max_records=200)
        except self._errors.KafkaConnectionError:
            return  # of the broker that it asked for the coordinator: poll asks again
        for found in polled.values():
            for m in found:
                record = Record(m.key, m.value, tuple(m.headers), m.timestamp)
                yield Received(m.partition, m.offset, record)

    def commit_positions(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._leaving = True
        self._consumer.close()


class KafkaPythonAdmin:
    """The admin of the scenarios."""

    def __init__(self, address: str) -> None:
        self.library = python_client("kafka")
        self.admin = python_client("kafka.admin")
        self.errors = python_client("kafka.errors")
        self.client = self.library.KafkaAdminClient(bootstrap_servers=address)

    def close(self) -> None:
        self.client.close()

    def call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a method of the admin, with its exceptions as error codes."""
        try:
            return method(*arguments, **options)
        except self.errors.BrokerResponseError as failure:
            raise ClientError(failure.errno) from failure

    def resource(self, topic: str, configs: dict[str, str] | None = None) -> Any:
        """Return a topic as the config calls name it."""
        return self.admin.ConfigResource(self.admin.ConfigResourceType.TOPIC, topic, configs)

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": configs}
        self.call(self.client.create_topics, {topic: wanted}, wait_for_metadata=True)

    def partitions(self, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
        (described,) = self.call(self.client.describe_topics, [topic])
        return {
            p["partition_index"]: (p["leader_id"], p["replica_nodes"], p["isr_nodes"])
            for p in described["partitions"]
        }

    def topics(self) -> list[str]:
        return list(self.call(self.client.list_topics))

    def add_partitions(self, topic: str, total: int) -> None:
        self.call(self.client.create_partitions, {topic: total})

    def delete_topic(self, topic: str) -> None:
        self.call(self.client.delete_topics, [topic])

    def configs(self, topic: str) -> dict[str, str | None]:
        described = self.call(
            self.client.describe_configs, [self.resource(topic)], config_filter="all"
        )
        return {name: entry["value"] for name, entry in described["topic"][topic].items()}

    def set_config(self, topic: str, name: str, value: str) -> None:
        altered = self.call(self.client.alter_configs, [self.resource(topic, {name: value})])
        result = altered["topic"][topic]
        if result != "OK":
            found = re.match(r"\[Error (\d+)\]", result)
            assert found, result
            raise ClientError(int(found.group(1)))

    def groups(self) -> list[str]:
        return [found["group_id"] for found in self.call(self.client.list_groups)]

    def group(self, group: str) -> tuple[str, int]:
        described = self.call(self.client.describe_groups, [group])[group]
        return described["group_state"], len(described["members"])

    def delete_group(self, group: str) -> None:
        result = self.call(self.client.delete_groups, [group])[group]
        if result != "OK":
            raise ClientError(getattr(self.errors, result).errno)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        listed = self.call(self.client.list_group_offsets, group)[group]
        return {tp.partition: found.offset for tp, found in listed.items() if tp.topic == topic}

    def offsets(self, topic: str, at: int) -> dict[int, int]:
        spec = {-2: self.admin.OffsetSpec.EARLIEST, -1: self.admin.OffsetSpec.LATEST}.get(at, at)
        wanted = {self.library.TopicPartition(topic, p): spec for p in self.partitions(topic)}
        listed = self.call(self.client.list_partition_offsets, wanted)
        return {tp.partition: found.offset for tp, found in listed.items()}

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        wanted = {self.library.TopicPartition(topic, p): offset for p, offset in before.items()}
        deleted = self.call(self.client.delete_records, wanted)
        return {tp.partition: found["low_watermark"] for tp, found in deleted.items()}


@pytest.fixture
def client(bootstrap: str) -> Iterator[KafkaPython]:
    """The client with its producers as they are by default, idempotent."""
    with closing(KafkaPython(bootstrap)) as made:
        yield made


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaPythonAdmin]:
    """The client's admin."""
    with closing(KafkaPythonAdmin(bootstrap)) as made:
        yield made


def test_group(client: KafkaPython, unique_topic: Names, unique_group: Names) -> None:
    """A topic's records through a group whose members come and go."""
    scenarios.check_group(client, unique_topic(), unique_group())


def test_restart(
    make_broker: Callable[..., Broker], unique_topic: Names, unique_group: Names
) -> None:
    """Members go on over a stop and a crash of the broker."""
    broker = make_broker()
    with closing(KafkaPython(broker.address)) as client:
        scenarios.check_restart(client, broker, unique_topic(), unique_group())


def test_plain_producer(bootstrap: str, unique_topic: Names, unique_group: Names) -> None:
    """Without idempotence, acknowledged by the leader alone, all records arrive in order."""
    settings = {"enable_idempotence": False, "acks": 1}
    with closing(KafkaPython(bootstrap, **settings)) as client:
        scenarios.check_reading(client, unique_topic(), unique_group())


def test_topic_admin(admin: KafkaPythonAdmin, unique_topic: Names) -> None:
    """Topics and their settings through the admin."""
    scenarios.check_topic_admin(admin, unique_topic())


def test_offsets_admin(admin: KafkaPythonAdmin, client: KafkaPython, unique_topic: Names) -> None:
    """Offsets and the deletion of records through the admin."""
    scenarios.check_offsets_admin(admin, client, unique_topic())


def test_group_admin(
    admin: KafkaPythonAdmin, client: KafkaPython, unique_topic: Names, unique_group: Names
) -> None:
    """Groups through the admin."""
    scenarios.check_group_admin(admin, client, unique_topic(), unique_group())
