"""Our clients in a test's hands: topics to begin with, logs read to their ends, group members."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

import trio

from kraftrio import Admin, Consumer, NewTopic, OffsetSpec, TopicPartition
from kraftrio.clients.consumer.consumer import ConsumerRecord, RebalanceListener
from kraftrio.clients.metadata import TopicMetadata
from kraftrio.errors import RebalanceInProgressError, UnknownTopicOrPartitionError
from tests.conformance.clients import scenarios
from tests.conformance.clients.confluent import ConfluentKafka
from tests.conformance.clients.members import ThreadMember
from tests.conformance.clients.records import Received, Record

READ_DEADLINE_S = 60.0
SETTLE_DEADLINE_S = 60.0
PAUSE_S = 0.02


def received(record: ConsumerRecord) -> Received:
    """Return a record as the tests compare it."""
    content = Record(record.key or b"", record.value, record.headers, record.timestamp)
    return Received(record.partition, record.offset, content)


async def make_topic(
    admin: Admin, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> TopicMetadata:
    """Create a topic and wait until it is served: brokers know it later than the controller."""
    await admin.create_topics([NewTopic(topic, partitions, configs=dict(configs or {}))])
    with trio.fail_after(SETTLE_DEADLINE_S):
        while True:
            with contextlib.suppress(UnknownTopicOrPartitionError):
                described = (await admin.describe_topics([topic]))[topic]
                if all(each.leader_id >= 0 for each in described.partitions.values()):
                    return described
            await trio.sleep(PAUSE_S)


async def wait_decided(admin: Admin, topics: Iterable[str]) -> None:
    """Wait until no transaction is open in these topics.

    A commit is acknowledged before its markers are in the partitions, so that a reader who comes
    at once may find an end before them.
    """
    described = await admin.describe_topics(list(topics))
    wanted: dict[TopicPartition, OffsetSpec | int] = {
        TopicPartition(name, each.partition): OffsetSpec.LATEST
        for name, topic in described.items()
        for each in topic.partitions.values()
    }
    with trio.fail_after(SETTLE_DEADLINE_S):
        while True:
            ends = await admin.list_offsets(wanted)
            stable = await admin.list_offsets(wanted, read_committed=True)
            if all(ends[each].offset == stable[each].offset for each in wanted):
                return
            await trio.sleep(PAUSE_S)


async def read_to_end(consumer: Consumer, topic: str) -> list[ConsumerRecord]:
    """Read all partitions of a topic from their beginnings to their ends."""
    found: list[ConsumerRecord] = []
    with trio.fail_after(READ_DEADLINE_S):
        described = await consumer.partitions_for(topic)
        partitions = [TopicPartition(topic, each.partition) for each in described]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = await consumer.offsets.end(partitions)
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            found += await consumer.poll(timeout_ms=200)
    return found


class TrioConsumer(ConfluentKafka):
    """confluent-kafka's producer and our consumer, in the roles of the scenarios."""

    def __init__(self, address: str, **settings: Any) -> None:
        super().__init__(address)
        self.consumer_settings = settings

    def member(self, topic: str, group: str, name: str) -> TrioMember:  # type: ignore[override]
        return TrioMember(self.address, topic, group, name, self.consumer_settings)


class TrioMember(ThreadMember, RebalanceListener):
    """A consumer that commits by hand, also when it must give partitions up."""

    def __init__(
        self, address: str, topic: str, group: str, name: str, settings: dict[str, Any]
    ) -> None:
        super().__init__(name)
        self._address = address
        self._topic = topic
        self._settings: dict[str, Any] = {
            "group_id": group,
            "client_id": name.replace(" ", "-"),
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            **settings,
        }
        if settings.get("group_protocol") != "consumer":  # there the broker says how long
            self._settings["session_timeout_ms"] = scenarios.SESSION_TIMEOUT_MS
            self._settings["heartbeat_interval_ms"] = scenarios.HEARTBEAT_INTERVAL_MS
        self.consumer: Consumer | None = None
        self._is_leaving = False

    def _main(self) -> None:
        try:
            trio.run(self._live)
        except BaseException:  # the thread's end: the test must get whatever it was
            self.fail(traceback.format_exc())

    async def _live(self) -> None:
        async with Consumer(self._address, **self._settings) as consumer:
            self.consumer = consumer
            await consumer.subscribe([self._topic], listener=self)
            left = None
            while left is None:
                polled = await consumer.poll(timeout_ms=50)
                self.add([received(record) for record in polled])
                left = await self._carry_out_all(consumer)
        left.set_result(None)

    async def _carry_out_all(self, consumer: Consumer) -> Any:
        """Carry out what is asked for; return the command that waits for the member to leave."""
        while not self._wanted.empty():
            action, done = self._wanted.get_nowait()
            if action == self.close:
                self._is_leaving = True
                return done
            try:
                await consumer.commit()
                done.set_result(None)
            except RebalanceInProgressError:
                self._wanted.put((action, done))  # after the next poll
                break
            except Exception as error:  # goes to the thread that asked
                done.set_exception(error)
        return None

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.assign(self.assignment | {each.partition for each in partitions})

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        assert self.consumer is not None
        if not self._is_leaving:
            await self.consumer.commit()
        self.assign(self.assignment - {each.partition for each in partitions})

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.assign(self.assignment - {each.partition for each in partitions})

    # What `do` is asked to have done; `_carry_out_all` does it.

    def open(self) -> None:
        raise AssertionError("the member runs by itself")

    def poll(self) -> Iterable[Received]:
        raise AssertionError("the member runs by itself")

    def commit_positions(self) -> None:
        raise AssertionError("the member commits by itself")

    def close(self) -> None:
        raise AssertionError("the member closes by itself")
