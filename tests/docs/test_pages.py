"""The pages of the documentation, played as they stand there."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.broker_process import ApacheBroker, Broker, start_broker
from tests.conformance.clients import install, spark_java
from tests.conformance.requirements import need_program
from tests.docs.pages import Reader, blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"

# Pages that use a broker at localhost:9092; TEST_BROKER=apache plays them against Apache Kafka.
WITH_A_BROKER = [
    "how-to/asyncio.md",
    "how-to/exactly-once.md",
    "how-to/lag.md",
    "how-to/seek-by-time.md",
    "how-to/serializers.md",
    "how-to/share-groups.md",
    "how-to/worker.md",
    "operate/service.md",
]
OURS_ALONE = {"operate/service.md"}  # about what Apache Kafka does not have

EXAMPLES = "examples/README.md"
SPARK = "how-to/spark.md"
TESTS = "testing/how-to.md"

# Pages that start what they use: each tour goes on where its last page ended.
TOURS = [
    ["quick-start.md"],
    ["operate/security.md"],
    [
        "operate/three-machines.md",
        "operate/rolling-restart.md",
        "operate/backup.md",
        "operate/nodes.md",
    ],
]

# Pages that are not played, with the reason.
NOT_PLAYED = {
    "operate/console.md": "what it shows is for a browser, which has a test of its own",
    "install.md": "a dependency of another program is not a command",
    **dict.fromkeys(
        (
            TESTS,
            "testing/index.md",
            "testing/snapshots.md",
            "testing/tutorial.md",
            "testing/virtual-time.md",
        ),
        "its programs are tests, which the test of the plugin plays",
    ),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker of all pages that use one; their topics have names of their own."""
    started = start_broker(tmp_path_factory.mktemp("broker"))
    yield started
    started.close()


@pytest.mark.parametrize("name", WITH_A_BROKER)
def test_page(name: str, broker: Broker, tmp_path: Path) -> None:
    if name in OURS_ALONE and broker.kind != Broker.kind:
        pytest.skip("about what Apache Kafka does not have")
    with Reader(tmp_path, broker.address) as reader:
        reader.play((DOCS / name).read_text())


@pytest.mark.parametrize("kind", [Broker, ApacheBroker], ids=lambda kind: kind.kind)
def test_examples(kind: type[Broker], tmp_path: Path) -> None:
    """They do the same with ours and with Apache Kafka."""
    with kind(tmp_path / "broker") as started, Reader(tmp_path, started.address) as reader:
        for path in sorted((DOCS / "examples").glob("*.py")):
            reader.take(path)
        reader.play((DOCS / EXAMPLES).read_text())


@pytest.fixture(scope="module")
def spark() -> dict[str, str]:
    """The variables for the Spark of the environment, or that of the cache of other people's."""
    if "JAVA_HOME" not in os.environ:
        need_program("java")
    missing = {"pyspark": "spark.txt", "pyarrow": "arrow.txt"}
    folders = [
        str(install.python_packages(pins))
        for module, pins in missing.items()
        if importlib.util.find_spec(module) is None
    ]
    return {
        "JDK_JAVA_OPTIONS": spark_java.QUICK,
        "PYTHONPATH": os.pathsep.join(folders),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
    }


@pytest.mark.timeout(300)  # Spark starts slowly
def test_spark(broker: Broker, spark: dict[str, str], tmp_path: Path) -> None:
    with Reader(tmp_path, broker.address, **spark) as reader:
        reader.play((DOCS / SPARK).read_text())


@pytest.mark.timeout(300)
def test_the_test_of_a_spark_job(spark: dict[str, str], tmp_path: Path) -> None:
    """The job and its test, as they stand in their section."""
    section = (DOCS / TESTS).read_text().partition("## Your Spark job\n")[2]
    assert "pytest test_totals.py" in section
    with Reader(tmp_path, **spark) as reader:
        reader.play(section)


@pytest.mark.timeout(300)  # nodes are restarted one by one, beside other tests
@pytest.mark.parametrize("names", TOURS, ids=lambda names: names[0])
def test_tour(names: list[str], tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        for name in names:
            reader.play((DOCS / name).read_text())


APART = """
```console title="controller-101"
$ kraftrio start --config controller-101.properties
```

```console title="broker-1"
$ kraftrio start --config broker-1.properties
...
kraftrio ready store-1:9092 node=1 data=/var/lib/broker-1
...
```

```console title="broker-2"
$ sed 's/node.id=1$/node.id=2/; s/-1$/-2/; s/store-1:9092/store-2:9092/' \\
    broker-1.properties > broker-2.properties; kraftrio start --config broker-2.properties
...
kraftrio ready store-2:9092 node=2 data=/var/lib/broker-2
...
```

```console
$ export KRAFTRIO_BOOTSTRAP_SERVER=store-1:9092,store-2:9092
$ kraftrio topic create orders --partitions 1 --replication-factor 2
topic orders created
$ printf 'one\\ntwo\\n' | kraftrio produce orders
2 records (6 B of values) are in topic orders
$ kraftrio cluster describe
...
BROKER  HOST       PORT  RACK    LEADERS  REPLICAS
1       localhost  …     room-1  …        1
2       localhost  …     room-2  …        1
$ kraftrio cluster quorum
leader:         101
...
```
"""


def test_controllers_and_brokers_apart(tmp_path: Path) -> None:
    """The files of a machine of each role; here one controller is all of its quorum."""
    page = (DOCS / "operate/three-machines.md").read_text()
    files = page.partition("## Controllers and brokers apart\n")[2].partition("\n## ")[0]
    assert files.count(",102@meta-2:9093,103@meta-3:9093") == files.count("```properties") == 2
    with Reader(tmp_path) as reader:
        reader.play(files.replace(",102@meta-2:9093,103@meta-3:9093", "") + APART)


def test_each_page_is_played() -> None:
    played = {*WITH_A_BROKER, EXAMPLES, SPARK, *NOT_PLAYED}.union(*TOURS)
    for path in DOCS.rglob("*.md"):
        name = str(path.relative_to(DOCS))
        if name not in played and not name.startswith(("changes/", "reference/")):
            assert not [block for block in blocks(path.read_text()) if block.language != "text"], (
                name
            )
