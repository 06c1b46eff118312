"""kafka-topics: create, list, describe, alter, delete, and what it says when it can't."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.conformance.java_tools import KafkaTools

TOOL = "kafka-topics"


def partitions_of(kafka: KafkaTools, topic: str) -> list[int]:
    """Return the partition numbers that --describe lists, with each line's other fields checked."""
    lines = kafka.run(TOOL, "--describe", "--topic", topic).lines
    found = []
    for line in lines[1:]:
        pattern = rf"Topic: {topic}\s+Partition: (\d+)\s+Leader: 1\s+Replicas: 1\s+Isr: 1"
        match = re.match(pattern, line)
        assert match, line
        found.append(int(match.group(1)))
    return found


def test_create_list_describe_delete(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """A topic appears with its partitions and settings, and is gone after --delete."""
    topic = unique_topic()
    options = [
        "--partitions",
        "3",
        "--replication-factor",
        "1",
        "--config",
        "retention.ms=86400000",
    ]
    created = kafka.run(TOOL, "--create", "--topic", topic, *options)
    assert created.lines == [f"Created topic {topic}."]
    assert topic in kafka.run(TOOL, "--list").lines
    head = kafka.run(TOOL, "--describe", "--topic", topic).lines[0]
    fields = dict(part.split(": ", 1) for part in head.split("\t") if ": " in part)
    assert fields["Topic"] == topic
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", fields["TopicId"])
    assert (fields["PartitionCount"], fields["ReplicationFactor"]) == ("3", "1")
    assert "retention.ms=86400000" in fields["Configs"].split(",")
    assert partitions_of(kafka, topic) == [0, 1, 2]
    kafka.run(TOOL, "--delete", "--topic", topic)
    assert topic not in kafka.run(TOOL, "--list").lines


def test_defaults_of_create(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """Without options the broker's num.partitions and replication factor are used."""
    topic = unique_topic()
    kafka.run(TOOL, "--create", "--topic", topic)
    assert partitions_of(kafka, topic) == [0]


def test_create_with_replica_assignment(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """A given assignment says how many partitions there are and where."""
    topic = unique_topic()
    kafka.run(TOOL, "--create", "--topic", topic, "--replica-assignment", "1,1")
    assert partitions_of(kafka, topic) == [0, 1]


def test_if_exists_options(kafka: KafkaTools, topic: str, unique_topic: Callable[[], str]) -> None:
    """--if-not-exists and --if-exists make the second time no error."""
    kafka.run(TOOL, "--create", "--topic", topic, "--if-not-exists")
    kafka.run(TOOL, "--delete", "--topic", unique_topic(), "--if-exists")
    kafka.run(TOOL, "--alter", "--topic", unique_topic(), "--if-exists", "--partitions", "2")


def test_add_partitions(kafka: KafkaTools, topic: str) -> None:
    """--alter adds partitions and refuses to take any away."""
    kafka.produce(topic, ["before"])
    kafka.run(TOOL, "--alter", "--topic", topic, "--partitions", "4")
    assert partitions_of(kafka, topic) == [0, 1, 2, 3]
    refused = kafka.run(TOOL, "--alter", "--topic", topic, "--partitions", "2", check=False)
    assert refused.exit_code == 1
    assert "currently has 4 partition(s); 2 would not be an increase" in refused.output
    assert kafka.consume(topic, "--partition", "0", "--offset", "0", count=1) == ["before"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--topic", "bad/name"], "InvalidTopicException"),
        (["--topic", "x" * 250], "InvalidTopicException"),
        (["--topic", "rf", "--replication-factor", "3"], "InvalidReplicationFactorException"),
        (["--topic", "unknown-config", "--config", "nope=1"], "Unknown topic config name: nope"),
        (["--topic", "bad-value", "--config", "cleanup.policy=nope"], "cleanup.policy"),
        (["--topic", "no-broker", "--replica-assignment", "1,77"], "77"),
    ],
)
def test_create_errors(kafka: KafkaTools, options: list[str], error: str) -> None:
    """What can't be created is refused with Kafka's error, and nothing is created."""
    refused = kafka.run(TOOL, "--create", *options, check=False)
    assert refused.exit_code == 1, refused.describe()
    assert error in refused.output, refused.describe()
    assert options[1] not in kafka.run(TOOL, "--list").lines


def test_create_twice(kafka: KafkaTools, topic: str) -> None:
    """The second creation of a name is TopicExistsException."""
    refused = kafka.run(TOOL, "--create", "--topic", topic, check=False)
    assert refused.exit_code == 1
    assert f"Topic '{topic}' already exists" in refused.output


def test_colliding_names(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """Names that differ in . and _ alone collide, as they would in the names of metrics."""
    base = unique_topic()
    kafka.create_topic(f"{base}_1")
    refused = kafka.run(TOOL, "--create", "--topic", f"{base}.1", check=False)
    assert refused.exit_code == 1
    assert "collides" in refused.output


def test_missing_topic(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """Describing, altering and deleting a topic that is not there each fail."""
    for action in (["--describe"], ["--delete"], ["--alter", "--partitions", "9"]):
        refused = kafka.run(TOOL, *action, "--topic", unique_topic(), check=False)
        assert refused.exit_code == 1
        assert "does not exist as expected" in refused.output


def test_longest_name(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """A name of 249 characters can be created, written, read and deleted."""
    topic = unique_topic().ljust(249, "x")
    kafka.create_topic(topic)
    kafka.produce(topic, ["kept"])
    assert kafka.consume(topic, count=1) == ["kept"]
    kafka.run(TOOL, "--delete", "--topic", topic)
    assert topic not in kafka.run(TOOL, "--list").lines


def test_recreated_topic_is_empty_and_new(
    kafka: KafkaTools, unique_topic: Callable[[], str]
) -> None:
    """A topic deleted and created again has another id and none of the old records."""
    topic = kafka.create_topic(unique_topic())
    kafka.produce(topic, ["old"])
    before = kafka.run(TOOL, "--describe", "--topic", topic).lines[0]
    kafka.run(TOOL, "--delete", "--topic", topic)
    kafka.create_topic(topic)
    after = kafka.run(TOOL, "--describe", "--topic", topic).lines[0]
    assert before.split("\t")[1] != after.split("\t")[1]
    kafka.produce(topic, ["new"])
    assert kafka.consume(topic, count=1) == ["new"]


def test_filters(kafka: KafkaTools, topic: str, unique_topic: Callable[[], str]) -> None:
    """The filters of --describe list only what matches; on one healthy node nothing does."""
    special = kafka.create_topic(unique_topic(), segment_bytes=2000000)
    overrides = kafka.run(TOOL, "--describe", "--topics-with-overrides")
    assert any(special in line and "segment.bytes=2000000" in line for line in overrides.lines)
    for option in (
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
    ):
        assert kafka.run(TOOL, "--describe", option, "--topic", special).lines == []
    at_min = kafka.run(TOOL, "--describe", "--at-min-isr-partitions")
    assert any(topic in line for line in at_min.lines)


def test_list_by_pattern(kafka: KafkaTools, unique_name: Callable[[str], str]) -> None:
    """--topic takes a pattern, and internal topics can be left out."""
    name = unique_name("pattern")
    kafka.create_topic(f"{name}.one")
    kafka.create_topic(f"{name}.two")
    listed = kafka.run(TOOL, "--list", "--topic", f"{name}.*").lines
    assert listed == [f"{name}.one", f"{name}.two"]
    visible = kafka.run(TOOL, "--list", "--exclude-internal").lines
    assert f"{name}.one" in visible
    assert not [topic for topic in visible if topic.startswith("__")]
