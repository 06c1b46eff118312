"""`kraftrio log` on what brokers leave behind, ours and Apache Kafka's: nothing is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from kraftrio import NewTopic, Producer
from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.errors import KafkaClientError
from kraftrio.wire.primitives import TopicPartition
from tests.conformance.broker_process import Broker
from tests.conformance.cli.terminal import run


async def work(bootstrap: str) -> None:
    """Write with every codec, in transactions, into segments that roll; delete and compact."""
    small = {"segment.bytes": "1048576", "index.interval.bytes": "500"}
    compacted = {
        **small,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "100",
    }
    async with Admin(bootstrap) as admin:
        await admin.create_topics(
            [
                NewTopic("plain", 2, configs=small),
                NewTopic("compacted", 1, configs=compacted),
                NewTopic("transactions", 1, configs=small),
            ]
        )
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            async with Producer(bootstrap, compression_type=codec) as producer:
                for number in range(3_000):
                    key = b"%d" % (number % 50)
                    await producer.send("plain", b"%d" % number * 40, key=key)
                    await producer.send("compacted", b"%d" % number, key=key)
        await admin.delete_records({TopicPartition("plain", 0): 1_000})
        async with Producer(bootstrap, transactional_id="worker") as producer:
            for number in range(6):
                try:
                    async with producer.transaction():
                        await producer.send("transactions", b"%d" % number)
                        if number % 2:
                            raise KafkaClientError("to be aborted")
                except KafkaClientError:
                    continue


@pytest.mark.parametrize("width", [None, 60, 160])
def test_what_a_stopped_broker_leaves(
    make_broker: Callable[..., Broker], width: int | None
) -> None:
    broker = make_broker(log_cleaner_backoff_ms=100, log_retention_check_interval_ms=200)
    trio.run(work, broker.address)
    broker.restart()
    run("produce", "plain", bootstrap=broker.address, typed=b"after the restart\n")
    run("consume", "plain", "--group", "readers", bootstrap=broker.address)
    broker.terminate()
    data = str(broker.data_directory)
    ended = run("log", "verify", data, bootstrap=broker.address, width=width)
    assert ended.status == 0, ended.everything
    assert "nothing is damaged" in ended.output
    found = run("log", "stats", data, "--json", bootstrap=broker.address)
    topics = {row["topic"]: row for row in map(json.loads, found.output.splitlines())}
    assert topics["plain"]["keys"] == 50
    assert set(topics["plain"]["compression"]) == {"none", "gzip", "snappy", "lz4", "zstd"}
    log_file = str(sorted(Path(data, "plain-1").glob("*.log"))[0])
    dumped = run("log", "dump", log_file, bootstrap=broker.address, width=width)
    assert dumped.output.startswith("position=0 size_bytes=")


def test_what_a_killed_broker_leaves(make_broker: Callable[..., Broker]) -> None:
    """What was being written may be incomplete; nothing before it is damaged."""
    broker = make_broker()
    trio.run(work, broker.address)
    broker.kill9()
    ended = run("log", "verify", str(broker.data_directory), "--json", bootstrap=broker.address)
    logs = [
        row for row in map(json.loads, ended.output.splitlines()) if row["path"].endswith(".log")
    ]
    assert not logs
    broker.start()
