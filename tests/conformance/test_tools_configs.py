"""kafka-configs: settings of topics, brokers, all brokers and groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.java_tools import KafkaTools

TOOL = "kafka-configs"


def described(kafka: KafkaTools, *entity: str) -> dict[str, tuple[str, str]]:
    """Return what --describe shows: name -> (value, synonyms)."""
    found = {}
    for line in kafka.run(TOOL, "--describe", *entity).lines:
        match = re.match(r"(\S+?)=(.*) sensitive=(true|false) synonyms=\{(.*)\}$", line)
        if match:
            found[match.group(1)] = (match.group(2), match.group(4))
    return found


def alter(kafka: KafkaTools, *options: str) -> None:
    """Change settings, which must succeed."""
    done = kafka.run(TOOL, "--alter", *options)
    assert "Completed updating" in done.stdout, done.describe()


def test_topic_config(kafka: KafkaTools, topic: str) -> None:
    """A topic's settings are added, replaced and deleted, each shown with its synonyms."""
    entity = ["--topic", topic]
    assert "retention.ms" not in described(kafka, *entity)
    alter(kafka, *entity, "--add-config", "retention.ms=5000000,cleanup.policy=[compact,delete]")
    shown = described(kafka, *entity)
    assert shown["cleanup.policy"] == (
        "compact,delete",
        "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete,"
        " DEFAULT_CONFIG:log.cleanup.policy=delete",
    )
    assert shown["retention.ms"][0] == "5000000"
    alter(kafka, *entity, "--add-config", "retention.ms=6000000")
    assert described(kafka, *entity)["retention.ms"][0] == "6000000"
    alter(kafka, *entity, "--delete-config", "retention.ms,cleanup.policy")
    assert not {"retention.ms", "cleanup.policy"} & described(kafka, *entity).keys()


def test_all_topic_configs(kafka: KafkaTools, topic: str) -> None:
    """--all shows every setting of a topic with Kafka's default."""
    shown = {
        name: value for name, (value, _) in described(kafka, "--topic", topic, "--all").items()
    }
    expected = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "delete.retention.ms": "86400000",
        "file.delete.delay.ms": "60000",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "index.interval.bytes": "4096",
        "max.compaction.lag.ms": "9223372036854775807",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "1",
        "preallocate": "false",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "segment.index.bytes": "10485760",
        "segment.jitter.ms": "0",
        "segment.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }
    assert {name: shown.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ("nope=1", "Unknown topic config name: nope"),
        ("retention.ms=abc", "Invalid value abc for configuration retention.ms"),
        ("cleanup.policy=nope", "cleanup.policy"),
        ("min.insync.replicas=0", "min.insync.replicas"),
        ("compression.type=nope", "compression.type"),
    ],
)
def test_topic_config_errors(kafka: KafkaTools, topic: str, config: str, error: str) -> None:
    """A setting that is not one, or a value that can't be, is InvalidConfigurationException."""
    refused = kafka.run(TOOL, "--alter", "--topic", topic, "--add-config", config, check=False)
    assert refused.exit_code == 1, refused.describe()
    assert "InvalidConfigurationException" in refused.output, refused.describe()
    assert error in refused.output, refused.describe()


def test_missing_topic(kafka: KafkaTools, unique_topic: Callable[[], str]) -> None:
    """Settings of a topic that is not there can be neither changed nor shown."""
    entity = ["--topic", unique_topic()]
    refused = kafka.run(TOOL, "--alter", *entity, "--add-config", "retention.ms=1", check=False)
    assert refused.exit_code == 1
    assert "UnknownTopicOrPartitionException" in refused.output
    shown = kafka.run(TOOL, "--describe", *entity, check=False)
    assert "doesn't exist" in shown.output, shown.describe()


@pytest.fixture
def restored(kafka: KafkaTools) -> Iterator[None]:
    """Take back what the test set for the shared broker, whether it passed or not."""
    yield
    for entity in (["--broker", "1"], ["--broker-defaults"]):
        left = {"message.max.bytes", "log.retention.ms"} & described(kafka, *entity).keys()
        if left:
            alter(kafka, *entity, "--delete-config", ",".join(sorted(left)))


@pytest.mark.usefixtures("restored")
def test_broker_config(kafka: KafkaTools, topic: str) -> None:
    """A broker's dynamic setting is the default of every topic that has not its own."""
    entity = ["--broker", "1"]
    alter(kafka, *entity, "--add-config", "message.max.bytes=2000000")
    assert described(kafka, *entity)["message.max.bytes"] == (
        "2000000",
        "DYNAMIC_BROKER_CONFIG:message.max.bytes=2000000, DEFAULT_CONFIG:message.max.bytes=1048588",
    )
    assert described(kafka, "--topic", topic, "--all")["max.message.bytes"][0] == "2000000"
    alter(kafka, *entity, "--delete-config", "message.max.bytes")
    assert "message.max.bytes" not in described(kafka, *entity)
    assert described(kafka, "--topic", topic, "--all")["max.message.bytes"][0] == "1048588"


@pytest.mark.usefixtures("restored")
def test_broker_defaults(kafka: KafkaTools, topic: str) -> None:
    """A default for all brokers is shown as such, and one broker's own setting wins over it."""
    alter(kafka, "--broker-defaults", "--add-config", "log.retention.ms=7000000")
    shown = described(kafka, "--broker-defaults")["log.retention.ms"]
    assert shown == ("7000000", "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7000000")
    assert described(kafka, "--topic", topic, "--all")["retention.ms"][0] == "7000000"
    alter(kafka, "--broker", "1", "--add-config", "log.retention.ms=8000000")
    assert described(kafka, "--topic", topic, "--all")["retention.ms"][0] == "8000000"


def test_broker_static_configs(kafka: KafkaTools) -> None:
    """--all shows a broker's settings, with those of its properties file as static."""
    shown = described(kafka, "--broker", "1", "--all")
    assert shown["node.id"][0] == "1"
    assert shown["group.initial.rebalance.delay.ms"] == (
        "0",
        "STATIC_BROKER_CONFIG:group.initial.rebalance.delay.ms=0,"
        " DEFAULT_CONFIG:group.initial.rebalance.delay.ms=3000",
    )
    assert shown["log.retention.hours"][0] == "168"


@pytest.mark.parametrize("config", ["log.dirs=/elsewhere", "process.roles=controller"])
def test_static_broker_config_is_refused(kafka: KafkaTools, config: str) -> None:
    """What a broker reads at its start alone can't be changed while it runs."""
    refused = kafka.run(TOOL, "--alter", "--broker", "1", "--add-config", config, check=False)
    assert refused.exit_code == 1
    assert "Cannot update these configs dynamically" in refused.output, refused.describe()


def test_group_config(kafka: KafkaTools, unique_group: Callable[[], str]) -> None:
    """A group's settings are set, shown and deleted, also before the group is there."""
    entity = ["--group", unique_group()]
    alter(kafka, *entity, "--add-config", "consumer.session.timeout.ms=50000")
    assert described(kafka, *entity)["consumer.session.timeout.ms"] == (
        "50000",
        "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000,"
        " DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000",
    )
    alter(kafka, *entity, "--delete-config", "consumer.session.timeout.ms")
    gone = kafka.run(TOOL, "--describe", *entity, check=False)
    assert "doesn't exist and doesn't have dynamic config" in gone.output


def test_describe_all_of_a_type(kafka: KafkaTools, topic: str) -> None:
    """Without a name, every topic and every broker is described."""
    topics = kafka.run(TOOL, "--entity-type", "topics", "--describe").lines
    assert f"Dynamic configs for topic {topic} are:" in topics
    brokers = kafka.run(TOOL, "--entity-type", "brokers", "--describe").lines
    assert "Dynamic configs for broker 1 are:" in brokers
    assert "Default configs for brokers in the cluster are:" in brokers
