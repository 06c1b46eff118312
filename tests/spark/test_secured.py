"""Spark's own source and sink, and ours, over TLS with certificates and over SASL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.secured.access import Access
from tests.conformance.secured.broker import PASSWORD, SecuredBroker
from tests.spark import support

pytestmark = support.MARKS

FORMATS = ("kafka", "kraftrio")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """The broker of this module."""
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


def options(access: Access) -> dict[str, str]:
    """Return how Spark gets in."""
    settings = access.java() | {"bootstrap.servers": access.address}
    return {f"kafka.{name}": value for name, value in settings.items()}


def accesses(secured: SecuredBroker) -> dict[str, Access]:
    return {
        "certificate": secured.access("SSL"),
        "scram": secured.access("SASL_SSL", "SCRAM-SHA-512"),
        "plain": secured.access("SASL_SSL", "PLAIN"),
    }


@pytest.mark.parametrize("how", ["certificate", "scram", "plain"])
@pytest.mark.parametrize("format", FORMATS)
def test_written_and_read(
    spark: Any, secured: SecuredBroker, unique_topic: Callable[[], str], format: str, how: str
) -> None:
    """What the one writes both read, and no plan shows a password."""
    topic = unique_topic()
    support.create_topic(secured.broker.address, topic, partitions=1)
    access = options(accesses(secured)[how])
    frame = spark.range(20).selectExpr("cast(id as string) as value")
    writer = frame.write.format(format).options(**access).option("topic", topic)
    writer.mode("append").save()
    for reading in FORMATS:
        reader = spark.read.format(reading).options(**access).option("subscribe", topic)
        found = reader.load()
        values = sorted(int(row.value) for row in found.collect())
        assert values == list(range(20)), reading
        plan = found._jdf.queryExecution().toString()
        assert PASSWORD not in plan and PASSWORD not in repr(found)


def test_a_stream(
    spark: Any, secured: SecuredBroker, unique_topic: Callable[[], str], tmp_path: Any
) -> None:
    """In transactions, from one topic into another."""
    source, target = unique_topic(), unique_topic()
    for topic in (source, target):
        support.create_topic(secured.broker.address, topic, partitions=1)
    access = options(accesses(secured)["scram"])
    frame = spark.range(20).selectExpr("cast(id as string) as value")
    frame.write.format("kraftrio").options(**access).option("topic", source).mode("append").save()
    reader = spark.readStream.format("kraftrio").options(**access).option("subscribe", source)
    stream = reader.option("startingOffsets", "earliest").load().select("value")
    writer = stream.writeStream.format("kraftrio").options(**access).option("topic", target)
    writer = writer.option("checkpointLocation", str(tmp_path)).option("transactional", "true")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert query.exception() is None
    assert PASSWORD not in query.lastProgress.json
    support.wait_decided(secured.broker.address, target)
    found = spark.read.format("kafka").options(**access).option("subscribe", target)
    found = found.option("kafka.isolation.level", "read_committed").load()
    assert sorted(int(row.value) for row in found.collect()) == list(range(20))


def test_a_wrong_password_is_said(
    spark: Any, secured: SecuredBroker, unique_topic: Callable[[], str]
) -> None:
    access = options(accesses(secured)["scram"].but(password="wrong-password"))
    reader = spark.read.format("kraftrio").options(**access).option("subscribe", unique_topic())
    with pytest.raises(Exception, match="invalid credentials") as caught:
        reader.load().collect()
    assert "wrong-password" not in str(caught.value)
