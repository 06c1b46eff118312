"""The contents of a cluster: topics, records and groups, for a test without a client of its own.

Owns: `Contents`, on our Trio clients, so that it works over any network and with any broker of the
protocol. What a program under test may not be spared (retries, rebalances) is not hidden from it:
these clients belong to no group.

Called by: `cluster` and `kafka_world`.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

import trio

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    GroupDescription,
    NewTopic,
    OffsetSpec,
    OpType,
)
from kraftrio.clients.arguments.nearest import did_you_mean
from kraftrio.clients.consumer.config import ConsumerSettings
from kraftrio.clients.consumer.consumer import Consumer
from kraftrio.clients.consumer.records import ConsumerRecord
from kraftrio.clients.errors import (
    GroupIdNotFoundError,
    TimedOutError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from kraftrio.clients.metadata import PartitionMetadata, TopicMetadata
from kraftrio.clients.producer.batch import RecordMetadata
from kraftrio.clients.producer.producer import Producer
from kraftrio.net.transport import Network
from kraftrio.testing.traffic.traffic import TEST_CLIENT_ID
from kraftrio.wire.primitives import TopicPartition

# A test waits for nothing: what is not there yet is asked for again at once.
_RETRY_BACKOFF_MS = 5
_SERVED_DEADLINE_S = 30.0


class Contents:
    """See the module; `run` has to run meanwhile.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT".
        network: makes connections, instead of the system's sockets.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        network: Network | None = None,
        rng: random.Random | None = None,
        *,
        request_timeout_ms: int = 30_000,
    ) -> None:
        self._servers = bootstrap_servers
        self._network = network
        self._rng = rng
        self._request_timeout_ms = request_timeout_ms
        self._closing = trio.Event()
        self.admin = Admin(
            bootstrap_servers,
            network=network,
            rng=rng,
            client_id=TEST_CLIENT_ID,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=_RETRY_BACKOFF_MS,
        )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the connections open until this is cancelled, or `close` is called."""
        async with self.admin:
            task_status.started()
            await self._closing.wait()

    def close(self) -> None:
        """Let `run` end: the brokers are about to be others."""
        self._closing.set()

    # -- topics and records ---------------------------------------------------------------------

    async def topics(self, *, internal: bool = False) -> dict[str, TopicMetadata]:
        """All topics by name; Kafka's own are left out, unless `internal`."""
        names = await self.admin.list_topics(list_internal=internal)
        found = await self.admin.describe_topics(names, raise_errors=False)
        return {name: found[name] for name in names if name not in found.errors}

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Create a topic, and wait until every partition has a leader.

        Raises:
            TopicExistsError, InvalidTopicError, ...: it cannot be created.
        """
        topic = NewTopic(name, partitions, replication_factor, dict(configs))
        await self._create(topic, was_there=await self._is_there(name))

    async def _is_there(self, topic: str) -> bool:
        found = await self.admin.describe_topics([topic], raise_errors=False)
        return topic not in found.errors

    async def _create(self, topic: NewTopic, *, was_there: bool) -> None:
        """Create a topic; one that was not there, and now is, was made by an earlier attempt."""
        with trio.fail_after(_SERVED_DEADLINE_S):
            while True:
                try:
                    await self.admin.create_topics(topic)
                except TimedOutError:
                    continue  # the controller's answer was lost: the next one tells
                except TopicExistsError:
                    if was_there:
                        raise
                break
        await self._wait_served(topic.name)

    async def _wait_served(self, name: str) -> None:
        with trio.fail_after(_SERVED_DEADLINE_S):
            while True:
                found = await self.admin.describe_topics([name], raise_errors=False)
                if not found.errors:
                    partitions = found[name].partitions
                    wanted = {TopicPartition(name, p): OffsetSpec.LATEST for p in partitions}
                    ends = await self.admin.list_offsets(wanted, raise_errors=False)
                    if partitions and not ends.errors:
                        return
                await trio.sleep(0.005)

    async def produce(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        key: bytes | str | None,
        headers: Iterable[tuple[str, bytes]],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> list[RecordMetadata]:
        """Write records, one for each value; a topic that is not there is created first."""
        if not await self._is_there(topic):
            await self._create(NewTopic(topic), was_there=False)
        if partition is not None:
            await self.partition(TopicPartition(topic, partition))  # or the producer waits for it
        headers = list(headers)
        async with Producer(
            self._servers,
            network=self._network,
            rng=self._rng,
            client_id=TEST_CLIENT_ID,
            request_timeout_ms=self._request_timeout_ms,
            retry_backoff_ms=_RETRY_BACKOFF_MS,
        ) as producer:
            sent = [
                await producer.send(
                    topic,
                    as_bytes(value),
                    key=as_bytes(key),
                    headers=headers,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                )
                for value in values
            ]
            return [await delivery for delivery in sent]

    async def records(
        self, topic: str, partition: int | None, *, read_committed: bool
    ) -> list[ConsumerRecord]:
        """The records of a topic up to now, by partition and offset."""
        if partition is not None:
            await self.partition(TopicPartition(topic, partition))
        partitions = [
            TopicPartition(topic, number)
            for number in sorted(await self._partitions_of(topic))
            if partition in (None, number)
        ]
        ends = await self.offsets(partitions, OffsetSpec.LATEST, read_committed=read_committed)
        starts = await self.offsets(partitions, OffsetSpec.EARLIEST)
        unread = {one for one in partitions if starts[one] < ends[one]}
        found: list[ConsumerRecord] = []
        async with Consumer(
            self._servers,
            network=self._network,
            rng=self._rng,
            client_id=TEST_CLIENT_ID,
            request_timeout_ms=self._request_timeout_ms,
            retry_backoff_ms=_RETRY_BACKOFF_MS,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if read_committed else "read_uncommitted",
        ) as consumer:
            consumer.assign(unread)
            while unread:
                found += await consumer.poll(100)
                unread = {one for one in unread if await consumer.position(one) < ends[one]}
        found = [record for record in found if record.offset < ends[record.topic_partition]]
        return sorted(found, key=lambda record: (record.partition, record.offset))

    async def offsets(
        self,
        partitions: Iterable[TopicPartition],
        which: OffsetSpec,
        *,
        read_committed: bool = False,
    ) -> dict[TopicPartition, int]:
        """Where partitions begin or end."""
        wanted = dict.fromkeys(partitions, which)
        found = await self.admin.list_offsets(wanted, read_committed=read_committed)
        return {each: listed.offset for each, listed in found.items()}

    async def end_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """The high watermarks of all partitions of a topic."""
        numbers = sorted(await self._partitions_of(topic))
        partitions = [TopicPartition(topic, number) for number in numbers]
        return await self.offsets(partitions, OffsetSpec.LATEST)

    async def partition(self, topic_partition: TopicPartition) -> PartitionMetadata:
        """A partition's leader, replicas and ISR."""
        topic, number = topic_partition
        partitions = await self._partitions_of(topic)
        if number not in partitions:
            count = "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"
            raise ValueError(f"topic {topic} has no partition {number}: it has {count}, from 0 on")
        return partitions[number]

    async def _partitions_of(self, topic: str) -> Mapping[int, PartitionMetadata]:
        """The partitions of a topic by number.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic; the text names the nearest one.
        """
        try:
            return (await self.admin.describe_topics([topic]))[topic].partitions
        except UnknownTopicOrPartitionError as error:
            near = did_you_mean(topic, await self.admin.list_topics())
            raise UnknownTopicOrPartitionError(f"there is no topic {topic!r}{near}") from error

    # -- groups ---------------------------------------------------------------------------------

    async def groups(self) -> dict[str, GroupDescription]:
        """The groups of the classic and the consumer protocol, by id."""
        listed = await self.admin.list_groups(types=["classic", "consumer"])
        ids = [group.group_id for group in listed]
        if not ids:
            return {}
        found = await self.admin.describe_groups(ids, raise_errors=False)
        return {group_id: found[group_id] for group_id in ids if group_id not in found.errors}

    async def group(self, group_id: str) -> GroupDescription | None:
        """One of them; None: there is no such group. Only its coordinator is asked."""
        try:
            return (await self.admin.describe_groups([group_id]))[group_id]
        except GroupIdNotFoundError:
            return None

    async def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """The offsets that a group has committed."""
        found = await self.admin.list_group_offsets(group_id)
        return {each: known.offset for each, known in found.items() if known is not None}

    @asynccontextmanager
    async def guest(
        self, group_id: str, topics: Iterable[str], assignor: str | None
    ) -> AsyncIterator[None]:
        """Be a member of a group while the body runs, and commit nothing.

        Args:
            assignor: that of a group of the classic protocol; None: it is one of KIP-848.
        """
        settings: ConsumerSettings = {
            "client_id": TEST_CLIENT_ID,
            "group_id": group_id,
            "enable_auto_commit": False,
        }
        if assignor is None:
            settings["group_protocol"] = "consumer"
        else:
            settings["partition_assignment_strategy"] = assignor
        async with Consumer(
            self._servers,
            network=self._network,
            rng=self._rng,
            **settings,
        ) as consumer:
            await consumer.subscribe(topics)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_keep_polling, consumer)
                yield
                nursery.cancel_scope.cancel()

    # -- all of it ------------------------------------------------------------------------------

    async def reset(self) -> None:
        """Delete every topic, Kafka's own, too (so every group and transaction), and what was set.

        Clients stay connected. Members of groups find their coordinator new, and join again.
        """
        topics = await self.admin.list_topics(list_internal=True)
        async with trio.open_nursery() as nursery:
            if topics:
                nursery.start_soon(self.admin.delete_topics, topics)
            nursery.start_soon(self._unset_brokers)

    async def _unset_brokers(self) -> None:
        every_broker = ConfigResource(ConfigResourceType.BROKER, "")
        found = await self.admin.describe_configs([every_broker])
        changed = [
            AlterConfigOp(entry.name, op=OpType.DELETE)
            for entry in found[every_broker].values()
            if entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        ]
        if changed:
            await self.admin.incremental_alter_configs({every_broker: changed})


async def _keep_polling(consumer: Consumer[bytes, bytes]) -> None:
    """Take part in rebalances."""
    while True:
        await consumer.poll()


def as_bytes(content: bytes | str | None) -> bytes | None:
    """Return a key or a value as clients send it; text is UTF-8."""
    return content.encode() if isinstance(content, str) else content


class CurrentContents:
    """The contents of a cluster whose nodes may be restored from a snapshot while it is looked at.

    Attributes:
        contents: of the nodes as they are; None: nothing was opened for them yet.
    """

    def __init__(self) -> None:
        self.contents: Contents | None = None
        self._former: Contents | None = None  # before the last snapshot was restored

    def replace(self, contents: Contents | None) -> None:
        """Go on with those of the restored nodes.

        The former ones are closed at the next restore: calls of theirs may be under way.
        """
        if self._former is not None:
            self._former.close()
        self._former, self.contents = self.contents, contents

    def close(self) -> None:
        """Close what is open."""
        for contents in (self._former, self.contents):
            if contents is not None:
                contents.close()
