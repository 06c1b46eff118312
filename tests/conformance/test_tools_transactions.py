"""Transactions through Apache's tools, and kafka-transactions itself.

Behind every test: what a transaction wrote is seen by read_committed consumers only after its
commit, and an open one holds back what was written after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

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
    rows = kafka.run(TOOL, "list").rows("TransactionalId")
    states = {row["TransactionalId"]: row["TransactionState"] for row in rows}
    assert states[name] == "CompleteCommit"
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
