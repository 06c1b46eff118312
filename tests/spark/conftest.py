"""Fixtures of the tests of Spark's data sources: one Spark session, one broker, topics filled once.

pyspark and pyarrow are taken from the environment if it has them, else from the cache of other
people's clients. The session is made when the first test asks for it; tests share it, since a JVM
takes longer to start than most of them to run.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.broker_process import Broker, start_broker
from tests.conformance.clients import install, spark_java
from tests.spark import support

_numbers = itertools.count(1)

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
}


@pytest.fixture(scope="session", autouse=True)
def packages() -> None:
    """Make pyspark and pyarrow importable, here and in Spark's workers."""
    for module, pins in (("pyarrow", "arrow.txt"), ("pyspark", "spark.txt")):
        if importlib.util.find_spec(module) is None:
            sys.path.append(str(install.python_packages(pins)))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker that all tests share."""
    shared = start_broker(tmp_path_factory.mktemp("broker"))
    yield shared
    shared.close()


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[[], Broker]]:
    """Start brokers of the test's own."""
    started: list[Broker] = []

    def make() -> Broker:
        started.append(start_broker(tmp_path / f"broker-{len(started)}"))
        return started[-1]

    yield make
    for one in started:
        one.close()


@pytest.fixture(scope="session")
def spark(packages: None, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A Spark session on two cores, with our data sources and Spark's own Kafka connector.

    It starts as soon as it can, unless speed is measured: then Java compiles as well as it can.
    """
    settings = SETTINGS | {"spark.jars": install.spark_jars()}
    if not any(item.get_closest_marker("measures") for item in request.session.items):
        settings |= spark_java.settings()
    folders = [path for path in sys.path if path]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("JAVA_HOME", spark_java.java_home())
        patch.setenv("PYTHONPATH", os.pathsep.join(folders))
        from pyspark.sql import SparkSession

        from kraftrio.clients.spark.log_source import KraftrioLogSource
        from kraftrio.clients.spark.source import KraftrioSource

        builder = SparkSession.builder.master("local[2]").appName("kraftrio")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        session.dataSource.register(KraftrioSource)
        session.dataSource.register(KraftrioLogSource)
        yield session
        session.stop()


@pytest.fixture
def unique_topic() -> Callable[[], str]:
    """Return fresh names of topics."""
    return lambda: f"spark-{next(_numbers)}"


@pytest.fixture(scope="session")
def filled_topic(broker: Broker) -> str:
    """A topic of three partitions with records of every kind, in every codec."""
    support.fill_with_all_kinds(broker.address, "all-kinds")
    return "all-kinds"
