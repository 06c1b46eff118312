"""Consume, transform, produce with librdkafka, while the broker is killed (kill -9) and comes back.

The offsets of what was read are committed with the records that were made of it. So whatever the
broker was doing, each input comes out once, and the group has committed all of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from tests.conformance.broker_process import Broker
from tests.conformance.clients import scenarios
from tests.conformance.clients.confluent import ConfluentAdmin
from tests.conformance.clients.install import python_client

pytestmark = [*scenarios.MARKS]

DEADLINE_S = 60.0
INPUTS = 120
AT_ONCE = 10  # inputs of a transaction
STEPS = ("produced", "offsets sent", "committing")
TRANSACTION_TIMEOUT_MS = 20_000
log = logging.getLogger("confluent-kafka")

Step = Callable[[], object]


class Loop:
    """One consumer and one transactional producer, and the steps in which each goes on."""

    def __init__(self, broker: Broker, source: str, target: str, group: str) -> None:
        self.broker = broker
        self.source = source
        self.target = target
        self.group = group
        self._library = python_client("confluent_kafka")
        self._settings: dict[str, object] = {
            "bootstrap.servers": broker.address,
            # With "rebootstrap" the client may wait for ever for a handle that it has given up.
            "metadata.recovery.strategy": "none",
            "reconnect.backoff.max.ms": 200,
            "logger": log,
        }
        self._kill_in: str | None = None  # the step during or after which the broker dies
        self._kills = 0
        self._producer = self._new_producer()
        self.consumer = self.new_consumer(group)
        self.consumer.subscribe([source])

    def _new_producer(self) -> Any:
        producer = self._library.Producer(
            self._settings
            | {
                "transactional.id": self.group,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
            }
        )
        self._repeated(lambda: producer.init_transactions(DEADLINE_S))
        return producer

    def new_consumer(self, group: str) -> Any:
        """Make a read_committed consumer."""
        return self._library.Consumer(
            self._settings
            | {
                "session.timeout.ms": scenarios.SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": scenarios.HEARTBEAT_INTERVAL_MS,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
            }
        )

    def run_until(self, reached: Callable[[], bool]) -> None:
        """Go on, one transaction after the other, until a condition holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < deadline, "the loop hangs"
            messages = [m for m in self.consumer.consume(AT_ONCE, 0.2) if m.error() is None]
            if messages:
                self._transact(messages)

    def kill_broker_in(self, step: str) -> None:
        """Go on over a transaction in which the broker is killed, and started again."""
        self._kill_in, kills = step, self._kills
        self.run_until(lambda: self._kills > kills)

    def _transact(self, messages: list[Any]) -> None:
        try:
            self._producer.begin_transaction()
            self._step("produced", lambda: self._produce(messages))
            self._step("offsets sent", self._send_offsets)
            self._step("committing", lambda: self._producer.commit_transaction(DEADLINE_S))
        except self._library.KafkaException as failure:
            error = failure.args[0]
            if error.txn_requires_abort():
                self._repeated(lambda: self._producer.abort_transaction(DEADLINE_S))
            else:
                assert error.fatal(), error
                self._producer = self._new_producer()
            self._rewind()

    def _step(self, name: str, step: Step) -> None:
        if self._kill_in != name:
            self._repeated(step)
            return
        self._kill_in = None
        if name == "committing":
            with self._dying_broker():
                self._repeated(step)
        else:
            self._repeated(step)
            self._kill()

    @contextmanager
    def _dying_broker(self) -> Iterator[None]:
        """Kill the broker while the step runs, and start it again."""
        killer = threading.Thread(target=self._kill)
        killer.start()
        try:
            yield
        finally:
            killer.join()

    def _kill(self) -> None:
        self.broker.kill9()
        self.broker.start()
        self._kills += 1

    def _repeated(self, step: Step) -> Any:
        """Repeat a step as long as the client says that its error may be retried."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                return step()
            except self._library.KafkaException as failure:
                error = failure.args[0]
                if not error.retriable() or time.monotonic() > deadline:
                    raise

    def _produce(self, messages: list[Any]) -> None:
        for message in messages:
            self._producer.produce(self.target, value=message.value(), key=message.key())
        self._producer.flush(DEADLINE_S)

    def _send_offsets(self) -> None:
        positions = self.consumer.position(self.consumer.assignment())
        self._producer.send_offsets_to_transaction(
            [one for one in positions if one.offset >= 0],
            self.consumer.consumer_group_metadata(),
            DEADLINE_S,
        )

    def _rewind(self) -> None:
        """Read again what the aborted transaction had read."""
        assigned = self.consumer.assignment()
        for one in self._repeated(lambda: self.consumer.committed(assigned, DEADLINE_S)):
            one.offset = max(one.offset, 0)
            self.consumer.seek(one)

    def committed_count(self) -> int:
        """How many inputs the group has committed."""
        partitions = [
            self._library.TopicPartition(self.source, p) for p in range(scenarios.PARTITIONS)
        ]
        found = self._repeated(lambda: self.consumer.committed(partitions, DEADLINE_S))
        return sum(max(one.offset, 0) for one in found)


def fill(broker: Broker, topic: str) -> None:
    """Send the inputs, numbered."""
    producer = python_client("confluent_kafka").Producer(
        {"bootstrap.servers": broker.address, "logger": log}
    )
    for number in range(INPUTS):
        producer.produce(topic, value=b"%d" % number, partition=number % scenarios.PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


def test_each_input_comes_out_once(
    make_broker: Callable[..., Broker],
    unique_topic: Callable[[], str],
    unique_group: Callable[[], str],
) -> None:
    """The broker dies after records, after offsets, and while a commit is under way."""
    broker = make_broker()
    source, target = unique_topic(), unique_topic()
    admin = ConfluentAdmin(broker.address)
    for topic in (source, target):
        admin.create_topic(topic, scenarios.PARTITIONS, {})
    fill(broker, source)
    loop = Loop(broker, source, target, unique_group())
    with closing(loop.consumer):
        for step in STEPS:
            loop.kill_broker_in(step)
        loop.run_until(lambda: loop.committed_count() == INPUTS)
    came_out: Counter[bytes] = Counter()
    with closing(loop.new_consumer(unique_group())) as reader:
        reader.subscribe([target])
        deadline = time.monotonic() + DEADLINE_S
        quiet = 0
        while sum(came_out.values()) < INPUTS or quiet < 3:
            assert time.monotonic() < deadline, came_out
            found = [m.value() for m in reader.consume(500, 0.2) if m.error() is None]
            came_out.update(found)
            quiet = 0 if found else quiet + 1
    assert came_out == Counter(b"%d" % number for number in range(INPUTS))
