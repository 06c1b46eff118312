"""Every client's transactions: consume, transform, produce; the end of a replaced producer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Protocol

import pytest

from kraftrio.wire.errors import ErrorCode
from tests.conformance.cases.calls import create_topic, end_offset
from tests.conformance.cases.members import fetch_offset
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import (
    aborted_in,
    committed,
    committed_records,
    wait_stable,
)
from tests.conformance.clients import scenarios
from tests.conformance.clients.driven import Driver
from tests.conformance.clients.install import go_program, node_script
from tests.conformance.clients.scenarios import ClientError
from tests.conformance.clients.transactional import (
    AioKafkaTransactions,
    ConfluentTransactions,
    DrivenTransactions,
    KafkaPythonTransactions,
)

pytestmark = scenarios.MARKS

PARTITIONS = 2

Names = Callable[[], str]


class Transactions(Protocol):
    """A client that has transactions."""

    def transact(self, topic: str, name: str, values: Sequence[bytes], *, commit: bool) -> None:
        """Write values in one transaction."""

    def copy(self, source: str, target: str, group: str, name: str, count: int) -> None:
        """Copy so many records through transactions that are each aborted once."""

    def zombie(self, topic: str, name: str) -> None:
        """Go on with a producer that was replaced."""


CLIENTS: dict[str, Callable[[str], Transactions]] = {
    "confluent-kafka": ConfluentTransactions,
    "aiokafka": AioKafkaTransactions,
    "kafka-python": KafkaPythonTransactions,
}
DRIVEN: dict[str, Callable[[], list[str]]] = {
    "franz-go": lambda: [str(go_program("franz"))],
    "sarama": lambda: [str(go_program("sarama"))],
    "kafkajs": lambda: node_script("kafkajs_driver.mjs"),
}

# What the library hands to a producer that was fenced: the code of the late Produce, or of the
# request by which it tried to go on with another epoch. librdkafka has a fatal code of its own.
FENCED: set[int] = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
FENCED_BY = {"confluent-kafka": {-144}}


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    """A connection by which the test looks at the results."""
    with RawClient(bootstrap) as made:
        yield made


@pytest.fixture(params=[*CLIENTS, *DRIVEN])
def library(request: pytest.FixtureRequest) -> str:
    """The name of a client's library."""
    return str(request.param)


@pytest.fixture
def client(library: str, bootstrap: str) -> Iterator[Transactions]:
    """That client."""
    with ExitStack() as stack:
        if library in CLIENTS:
            yield CLIENTS[library](bootstrap)
        else:
            driver = stack.enter_context(closing(Driver(DRIVEN[library](), bootstrap)))
            yield DrivenTransactions(driver)


def all_committed(raw: RawClient, topic: str) -> list[bytes | None]:
    """Return what read_committed consumers see in all partitions, once all is ended."""
    found = []
    for partition in range(PARTITIONS):
        wait_stable(raw, topic, partition)
        found += committed(raw, topic, partition)
    return sorted(found, key=str)


def test_consume_transform_produce(
    client: Transactions, raw: RawClient, unique_topic: Names, unique_group: Names
) -> None:
    """The output is the committed input, once, and the offsets are where it ended."""
    source, target = (create_topic(raw, unique_topic(), PARTITIONS) for _ in range(2))
    group, name = unique_group(), unique_group()
    values = [b"%03d" % number for number in range(80)]
    client.transact(source, name, values[:30], commit=True)
    client.transact(source, name, values[30:50], commit=False)
    client.transact(source, name, values[50:], commit=True)
    kept = values[:30] + values[50:]
    assert all_committed(raw, source) == kept
    client.copy(source, target, group, unique_group(), len(kept))
    assert all_committed(raw, target) == [value + b"!" for value in kept]
    assert any(
        fetch_aborted
        for partition in range(PARTITIONS)
        if (fetch_aborted := aborted_in(raw, target, partition=partition))
    )
    for partition in range(PARTITIONS):
        records = committed_records(raw, source, partition)
        first = records[-1].offset + 1 if records else -1
        # behind the last record; some clients are past markers and aborted records, too
        wanted = range(first, end_offset(raw, source, partition) + 1 if records else 0)
        scenarios.eventually(
            lambda p=partition, w=wanted: fetch_offset(raw, group, source, p).committed_offset in w,  # type: ignore[misc]
            f"the group is at {wanted}",
        )


def test_a_producer_that_was_replaced(
    library: str, client: Transactions, raw: RawClient, unique_topic: Names, unique_group: Names
) -> None:
    """It gets the error that its library takes as final, and nothing that it wrote is read."""
    topic = create_topic(raw, unique_topic(), PARTITIONS)
    with pytest.raises(ClientError) as caught:
        client.zombie(topic, unique_group())
    assert caught.value.code in FENCED_BY.get(library, FENCED)
    assert all_committed(raw, topic) == [b"new"]


def _is_done(driver: Driver, arguments: dict[str, object]) -> bool:
    """Send offsets with a transaction; programs of kafka-go have to ask a coordinator again."""
    try:
        driver.call("offset", **arguments)
    except ClientError as error:
        if not ErrorCode(error.code).retriable:
            raise
        return False
    return True


def test_kafka_go(bootstrap: str, raw: RawClient, unique_topic: Names, unique_group: Names) -> None:
    """kafka-go has the requests of transactions for offsets, but no producer that takes part."""
    topic, group, name = create_topic(raw, unique_topic()), unique_group(), unique_group()
    with closing(Driver([str(go_program("kafkago"))], bootstrap)) as driver:
        for offset, commit in ((5, True), (6, False)):
            arguments = {"topic": topic, "group": group, "name": name, "offset": offset}
            ends = partial(_is_done, driver, {**arguments, "commit": commit})
            scenarios.eventually(ends, "the coordinators serve", s=30)
            scenarios.eventually(
                lambda: fetch_offset(raw, group, topic).committed_offset == 5, "committed"
            )
        with pytest.raises(ClientError) as caught:
            driver.call("zombie", topic=topic, name=name)
    assert caught.value.code == ErrorCode.PRODUCER_FENCED
