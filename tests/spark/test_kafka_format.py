"""Spark with its own connector, as it is: a topic read in batch, and one written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.conformance.broker_process import Broker
from tests.conformance.clients import scenarios
from tests.conformance.clients.confluent import ConfluentKafka
from tests.conformance.clients.records import check_received
from tests.conformance.clients.scenarios import Story
from tests.spark import support

pytestmark = support.MARKS


def test_batch_source_and_sink(spark: Any, broker: Broker, unique_topic: Callable[[], str]) -> None:
    """What Spark reads from one topic and writes to another arrives there as it was."""
    from pyspark.sql import functions

    client = ConfluentKafka(broker.address, enable_idempotence=True)
    story = Story(client, unique_topic(), "written")
    story.send_in_all_codecs(3000)
    target = unique_topic()
    client.create_topic(target, scenarios.PARTITIONS)

    def read(**options: str) -> Any:
        all_options = {"subscribe": story.topic, "includeHeaders": "true"} | options
        return support.reader(spark, "kafka", broker.address, **all_options)

    everything = read()
    spans = everything.groupBy("partition").agg(
        functions.count("*"), functions.min("offset"), functions.max("offset")
    )
    placed = sorted(story.placed.values())
    ends = [sum(1 for p, _ in placed if p == partition) for partition in range(3)]
    assert sorted(map(tuple, spans.collect())) == [(p, n, 0, n - 1) for p, n in enumerate(ends)]

    some = read(
        startingOffsets=json.dumps({story.topic: {"0": 10, "1": -2, "2": -2}}),
        endingOffsets=json.dumps({story.topic: {"0": 30, "1": 5, "2": -1}}),
    )
    chosen = {0: range(10, 30), 1: range(5), 2: range(ends[2])}
    found = sorted((row.partition, row.offset) for row in some.collect())
    assert found == [(partition, n) for partition in chosen for n in chosen[partition]]

    rows = everything.orderBy("key").coalesce(1).select("key", "value", "headers")
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", broker.address)
    writer.option("topic", target).save()
    expected = [record._replace(timestamp_ms=None) for record in story.sent]
    with client.member(target, "copied", "reader") as reader:
        story.wait_for(story.sent, [reader])
    check_received(expected, reader.received)
