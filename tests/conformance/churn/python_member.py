"""A member of a group with another project's Python client: a process that writes lines of JSON.

    python -m tests.conformance.churn.python_member \\
        CLIENT ADDRESS TOPIC GROUP NAME SESSION_MS [INSTANCE_ID]

CLIENT is a key of `CLIENTS`; with INSTANCE_ID it is a static member. It commits by itself, often,
and prints {"assigned": [...], "at": MS} whenever that changes, {"records": [[PARTITION, OFFSET],
...]} for what it has read, by the clock of the machine. It leaves when its input ends, or with
"leave".
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from tests.conformance.clients.install import python_client

COMMIT_MS = 200
HEARTBEAT_MS = 500
POLL_S = 0.2


class Place(NamedTuple):
    """Where a member is to join, and how."""

    address: str
    topic: str
    group: str
    name: str
    session_ms: int
    instance_id: str | None  # of a static member


Client: TypeAlias = Callable[[Place], None]
"""A client's member, until `leaving` is set."""


def say(**event: Any) -> None:
    """Print one line."""
    sys.stdout.write(json.dumps({**event, "at": time.time() * 1000}) + "\n")
    sys.stdout.flush()


class Assignment:
    """What the member has; each change is printed."""

    def __init__(self) -> None:
        self._held: set[int] = set()

    def add(self, partitions: Iterable[Any]) -> None:
        self._held |= {one.partition for one in partitions}
        say(assigned=sorted(self._held))

    def drop(self, partitions: Iterable[Any]) -> None:
        self._held -= {one.partition for one in partitions}
        say(assigned=sorted(self._held))


leaving = threading.Event()


def watch_input() -> None:
    """Leave when the input ends, or says so."""
    sys.stdin.readline()
    leaving.set()


def confluent(place: Place, protocol: str) -> None:
    """librdkafka, by confluent-kafka."""
    library = python_client("confluent_kafka")
    settings: dict[str, Any] = {
        "bootstrap.servers": place.address,
        "group.id": place.group,
        "client.id": place.name,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": COMMIT_MS,
        "fetch.wait.max.ms": 100,
        "group.protocol": protocol,
    }
    if place.instance_id is not None:
        settings["group.instance.id"] = place.instance_id
    if protocol == "classic":
        settings |= {
            "session.timeout.ms": place.session_ms,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    consumer = library.Consumer(settings)
    held = Assignment()
    consumer.subscribe(
        [place.topic],
        on_assign=lambda _, partitions: held.add(partitions),
        on_revoke=lambda _, partitions: held.drop(partitions),
        on_lost=lambda _, partitions: held.drop(partitions),
    )
    while not leaving.is_set():
        messages = [one for one in consumer.consume(500, POLL_S) if one.error() is None]
        if messages:
            say(records=[[one.partition(), one.offset()] for one in messages])
    consumer.close()


def kafka_python(place: Place) -> None:
    """kafka-python."""
    library = python_client("kafka")
    held = Assignment()

    class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc,name-defined]
        def on_partitions_assigned(self, partitions: Any) -> None:
            held.add(partitions)

        def on_partitions_revoked(self, partitions: Any) -> None:
            held.drop(partitions)

    consumer = library.KafkaConsumer(
        bootstrap_servers=place.address,
        group_id=place.group,
        client_id=place.name,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=COMMIT_MS,
        fetch_max_wait_ms=100,
        session_timeout_ms=place.session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        group_instance_id=place.instance_id,
    )
    consumer.subscribe([place.topic], listener=Listener())
    while not leaving.is_set():
        try:
            polled = consumer.poll(timeout_ms=int(POLL_S * 1000))
        except library.errors.KafkaConnectionError as error:
            print(error, file=sys.stderr)  # of the broker that it asked for the others
            continue
        found = [[tp.partition, one.offset] for tp, several in polled.items() for one in several]
        if found:
            say(records=found)
    consumer.close()


def aiokafka(place: Place) -> None:
    """aiokafka."""
    library = python_client("aiokafka")
    assignors = python_client("aiokafka.coordinator.assignors.range")
    held = Assignment()

    class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc,name-defined]
        def on_partitions_assigned(self, assigned: Any) -> None:
            held.add(assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            held.drop(revoked)

    async def live() -> None:
        consumer = library.AIOKafkaConsumer(
            partition_assignment_strategy=[assignors.RangePartitionAssignor],
            bootstrap_servers=place.address,
            group_id=place.group,
            client_id=place.name,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=COMMIT_MS,
            fetch_max_wait_ms=100,
            session_timeout_ms=place.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            group_instance_id=place.instance_id,
        )
        consumer.subscribe([place.topic], listener=Listener())
        await consumer.start()
        while not leaving.is_set():
            polled = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
            found = [
                [tp.partition, one.offset] for tp, several in polled.items() for one in several
            ]
            if found:
                say(records=found)
        await consumer.stop()

    asyncio.run(live())


CLIENTS: dict[str, Client] = {
    "confluent-classic": lambda place: confluent(place, "classic"),
    "confluent-consumer": lambda place: confluent(place, "consumer"),
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


def main(clients: Mapping[str, Client], client: str, *arguments: str) -> None:
    """Be a member until the input ends."""
    address, topic, group, name, session_ms, *instance = arguments
    threading.Thread(target=watch_input, daemon=True).start()
    instance_id = instance[0] if instance else None
    clients[client](Place(address, topic, group, name, int(session_ms), instance_id))
    say(left=True)


if __name__ == "__main__":
    main(CLIENTS, *sys.argv[1:])
