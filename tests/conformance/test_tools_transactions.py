"""Transactions through Apache's tools, and kafka-transactions itself.

What every test relies on: read_committed consumers see what a transaction wrote only after its
commit, and an open one holds back what was written after it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import append, create_topic, fetch
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import (
    READ_COMMITTED,
    TransactionalProducer,
    markers_in,
    wait_for_state,
    wait_for_transactions,
    wait_stable,
)
from tests.conformance.java_tools import KafkaTools

TOOL = "kafka-transactions"


def perf(topic: str, transactional_id: str, records: int) -> list[str]:
    """Return the options of a producer that commits every 100 ms."""
    options = ["--topic", topic, "--num-records", str(records), "--record-size", "20"]
    options += ["--throughput", "1000", "--transactional-id", transactional_id]
    return [*options, "--transaction-duration-ms", "100"]


def test_committed_records_are_read(
    kafka: KafkaTools, topic: str, unique_name: Callable[[str], str]
) -> None:
    """All records of committed transactions are read; the id is listed as completed."""
    name = unique_name("txn")
    kafka.run("kafka-producer-perf-test", *perf(topic, name, 500))
    read = kafka.consume(topic, "--isolation-level", "read_committed", count=500)
    assert len(read) == 500
    end = kafka.run("kafka-get-offsets", "--topic", topic).lines[0]
    assert int(end.split(":")[2]) > 500, "the markers take offsets of their own"
    with RawClient(kafka.address) as client:
        wait_for_state(client, name, "CompleteCommit")  # noted once all markers are written
    assert ids(kafka)[name] == "CompleteCommit"
    described = kafka.run(TOOL, "describe", "--transactional-id", name)
    assert "CompleteCommit" in described.stdout


def test_open_transaction_blocks_until_aborted(
    kafka: KafkaTools, topic: str, unique_name: Callable[[str], str]
) -> None:
    """A producer killed in mid-transaction holds read_committed back until the abort."""
    name = unique_name("txn")
    kafka.produce(topic, ["before"])
    options = ["--topic", topic, "--num-records", "100000", "--record-size", "20"]
    options += ["--throughput", "200", "--transactional-id", name, "--transaction-duration-ms"]
    with kafka.start("kafka-producer-perf-test", *options, "600000") as producer:
        start = wait_for_open_transaction(kafka, topic)
        producer.process.kill()
        producer.process.wait()
    kafka.produce(topic, ["after"])
    committed = ["--isolation-level", "read_committed"]
    assert kafka.consume(topic, *committed, timeout_ms=1500) == ["before"]
    assert kafka.consume(topic, timeout_ms=1500)[-1] == "after"
    chosen = ["--topic", topic, "--partition", "0", "--start-offset", start]
    kafka.run(TOOL, "abort", *chosen)
    assert kafka.consume(topic, *committed, count=2) == ["before", "after"]


def wait_for_open_transaction(kafka: KafkaTools, topic: str) -> str:
    """Return the start offset of the partition's open transaction, once it has begun."""
    deadline = time.monotonic() + 20
    while True:
        shown = kafka.run(TOOL, "describe-producers", "--topic", topic, "--partition", "0")
        starts = [row["CurrentTransactionStartOffset"] for row in shown.rows("ProducerId")]
        opened = [start for start in starts if start.isdigit()]
        if opened:
            return opened[0]
        assert time.monotonic() < deadline, shown.describe()
        time.sleep(0.1)


def test_copier_is_exactly_once(
    kafka: KafkaTools,
    topic: str,
    unique_topic: Callable[[], str],
    unique_name: Callable[[str], str],
) -> None:
    """Copying in transactions, some aborted at random, gives each record once and in order."""
    output = kafka.create_topic(unique_topic())
    kafka.produce(topic, [str(i) for i in range(300)])
    options = ["--broker-list", kafka.address, "--input-topic", topic, "--input-partition", "0"]
    options += ["--output-topic", output, "--transactional-id", unique_name("txn")]
    options += ["--consumer-group", unique_name("group"), "--max-messages", "300"]
    options += ["--transaction-size", "20", "--enable-random-aborts"]
    kafka.run("kafka-transactional-message-copier", *options)
    committed = ["--isolation-level", "read_committed"]
    assert kafka.consume(output, *committed, count=300) == [str(i) for i in range(300)]


def ids(kafka: KafkaTools, *filters: str) -> dict[str, str]:
    """Return the state of each transactional id that is listed."""
    rows = kafka.run(TOOL, "list", *filters).rows("TransactionalId")
    return {row["TransactionalId"]: row["TransactionState"] for row in rows}


@pytest.fixture
def client(bootstrap: str) -> Iterator[RawClient]:
    """A connection to the shared broker."""
    with RawClient(bootstrap) as made:
        wait_for_transactions(made)
        yield made


def test_list_and_describe(
    kafka: KafkaTools, client: RawClient, topic: str, unique_name: Callable[[str], str]
) -> None:
    """By how long it has been open and by a pattern; an open one can be ended by force."""
    name = unique_name("txn")
    producer = TransactionalProducer(client, name).init()
    assert ids(kafka)[name] == "Empty"
    producer.write(topic, b"v")
    assert ids(kafka)[name] == "Ongoing"
    assert name not in ids(kafka, "--duration-filter", "600000")
    assert ids(kafka, "--transactional-id-pattern", f"{name[:-1]}.") == {name: "Ongoing"}
    assert ids(kafka, "--transactional-id-pattern", name[1:]) == {}
    described = kafka.run(TOOL, "describe", "--transactional-id", name)
    (row,) = described.rows("CoordinatorId")
    assert (row["ProducerId"], row["TransactionState"]) == (str(producer.producer_id), "Ongoing")
    assert row["TopicPartitions"] == f"{topic}-0"
    shown = kafka.run(TOOL, "describe-producers", "--topic", topic, "--partition", "0")
    (row,) = shown.rows("ProducerId")
    assert (row["ProducerEpoch"], row["CurrentTransactionStartOffset"]) == ("0", "0")
    kafka.run(TOOL, "forceTerminateTransaction", "--transactionalId", name)
    wait_stable(client, topic)
    assert fetch(client, topic, 0, isolation_level=READ_COMMITTED).aborted_transactions


def test_find_hanging(
    make_broker: Callable[..., Broker], tools_for: Callable[[Broker], KafkaTools]
) -> None:
    """A transaction that its coordinator does not know is found, and aborted by hand."""
    broker = make_broker(transaction_partition_verification_enable="false")
    kafka = tools_for(broker)
    find = ["find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"]
    with RawClient(broker.address) as client:
        wait_for_transactions(client)
        topic, other = create_topic(client, "hangs"), create_topic(client, "goes-on")
        producer = TransactionalProducer(client, "late", version=1).init()
        TransactionalProducer(client, "known", version=1).init().write(other, b"v")
        append(client, topic, b"before")
        assert producer.try_write(topic, b"late").error_code == 0
        rows = kafka.run(TOOL, *find).rows("Topic")
        assert [(row["Topic"], row["ProducerId"]) for row in rows] == [
            (topic, str(producer.producer_id))
        ]
        chosen = ["--topic", topic, "--partition", "0", "--start-offset", "1"]
        kafka.run(TOOL, "abort", *chosen)
        assert wait_stable(client, topic) == 3
        assert kafka.run(TOOL, *find).rows("Topic") == []
        assert fetch(client, other, 0, isolation_level=READ_COMMITTED).last_stable_offset == 0


def test_dump_of_the_coordinators_log(
    make_broker: Callable[..., Broker], tools_for: Callable[[Broker], KafkaTools]
) -> None:
    """Apache's decoder reads every state, and the tombstone of an id that expired."""
    broker = make_broker(
        transaction_state_log_num_partitions=1,
        transactional_id_expiration_ms=700,
        transaction_remove_expired_transaction_cleanup_interval_ms=100,
    )
    kafka = tools_for(broker)
    with RawClient(broker.address) as client:
        wait_for_transactions(client)
        topic = create_topic(client, "t")
        for name, commit in (("c", True), ("a", False)):
            producer = TransactionalProducer(client, name).init()
            producer.write(topic, b"v")
            producer.end(commit=commit)
            wait_stable(client, topic)
            deadline = time.monotonic() + 20
            while name in ids(kafka):
                assert time.monotonic() < deadline
    broker.terminate()
    folder = broker.data_directory / "__transaction_state-0"
    (log,) = folder.glob("*.log")
    shown = kafka.run("kafka-dump-log", "--files", str(log), "--transaction-log-decoder")
    assert "Exception" not in shown.output, shown.describe()
    for name, states in (("c", (0, 1, 2, 4)), ("a", (0, 1, 3, 5))):
        lines = [line for line in shown.lines if f'"transactionalId":"{name}"' in line]
        found = [int(n) for line in lines for n in re.findall(r'"transactionStatus":(\d)', line)]
        assert tuple(found) == states
        assert re.search(r"payload:\s*(null|<DELETE>)?$", lines[-1]), lines[-1]
    assert "isvalid: false" not in shown.stdout


def test_transaction_versions(
    make_broker: Callable[..., Broker], tools_for: Callable[[Broker], KafkaTools]
) -> None:
    """kafka-features lowers and raises transaction.version; Java's producers go by it.

    Under version 2 each transaction has an epoch of its own, under 1 a producer keeps its epoch.
    """
    broker = make_broker()
    kafka = tools_for(broker)
    epochs: list[set[int]] = []
    for version, command in ((2, ""), (1, "downgrade"), (2, "upgrade")):
        if command:
            kafka.run("kafka-features", command, "--feature", f"transaction.version={version}")
        with RawClient(broker.address) as client:
            topic = create_topic(client, f"topic-{len(epochs)}")
            kafka.run("kafka-producer-perf-test", *perf(topic, topic, 400))
            wait_stable(client, topic)
            epochs.append({epoch for _, epoch, _ in markers_in(client, topic)})
    assert len(epochs[0]) > 1
    assert epochs[1] == {0}
    assert len(epochs[2]) > 1


@pytest.mark.usefixtures("client")
def test_settings_of_the_coordinators_topic(kafka: KafkaTools) -> None:
    """It is compacted, never compressed, and no replica that is out of sync may lead it."""
    named = ["--entity-type", "topics", "--entity-name", "__transaction_state"]
    shown = kafka.run("kafka-configs", "--describe", *named).stdout
    found = dict(re.findall(r"^\s+([a-z.]+)=(\S+) sensitive", shown, re.M))
    assert found == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
