"""Topics, partitions, configs and log folders: what an admin may change, and the answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    TopicPartitions,
)
from kraftrio.wire.messages.cluster import MetadataRequest
from kraftrio.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SETTLE_DEADLINE_S,
    SUBTRACT,
    TOPIC,
    alter_config,
    append,
    create_topic,
    describe_topic,
    topic_id,
    wait_for_leaders,
)
from tests.conformance.cases.raw_client import RawClient

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
INVALID_REQUEST = ErrorCode.INVALID_REQUEST
INVALID_CONFIG = ErrorCode.INVALID_CONFIG

# Where a config's value comes from.
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT = 1, 2, 3, 4, 5


def creatable(name: str, partitions: int = 1, factor: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def create(
    client: RawClient, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(
        topics=list(topics), timeout_ms=10_000, validate_only=validate_only
    )
    results: list[CreatableTopicResult] = client.call(request, version).topics
    return results


def exists(client: RawClient, name: str) -> bool:
    return describe_topic(client, name).error_code == NONE


# CreateTopics


@pytest.mark.parametrize("version", range(2, 8))
def test_create_in_every_version(
    client: RawClient, unique_topic: Callable[[], str], version: int
) -> None:
    """The answer has the topic's counts and configs from version 5, its id from 7 on."""
    name = unique_topic()
    (result,) = create(client, creatable(name, 3, cleanup_policy="compact"), version=version)
    assert (result.name, result.error_code, result.error_message) == (name, NONE, None)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {one.name: one for one in result.configs or []}
        assert configs["cleanup.policy"].value == "compact"
        assert configs["cleanup.policy"].config_source == DYNAMIC_TOPIC
        assert configs["retention.ms"].config_source == DEFAULT
    wait_for_leaders(client, name, 3)
    if version >= 7:
        assert result.topic_id == topic_id(client, name)


@pytest.mark.parametrize(
    ("name", "partitions", "factor", "code"),
    [
        ("", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (".", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a/b", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("refused", 0, 1, ErrorCode.INVALID_PARTITIONS),
        ("refused", -2, 1, ErrorCode.INVALID_PARTITIONS),
        ("refused", 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("refused", 1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("refused", 1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_refused_creations(
    client: RawClient, name: str, partitions: int, factor: int, code: ErrorCode
) -> None:
    """Nothing is created, and the answer gives the reason."""
    for version in (2, 7):
        (result,) = create(client, creatable(name, partitions, factor), version=version)
        assert result.error_code == code
        assert result.error_message
    assert not exists(client, "refused")


def test_topic_exists(client: RawClient, new_topic: Callable[..., str]) -> None:
    """Also if it is only to be validated."""
    topic = new_topic()
    for validate_only in (False, True):
        (result,) = create(client, creatable(topic), validate_only=validate_only)
        assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_defaults_of_the_cluster(client: RawClient, unique_topic: Callable[[], str]) -> None:
    """-1 stands for num.partitions and default.replication.factor, from version 4 on."""
    for version in (4, 7):
        name = unique_topic()
        (result,) = create(client, creatable(name, -1, -1), version=version)
        assert result.error_code == NONE
        wait_for_leaders(client, name)
        assert len(describe_topic(client, name).partitions) == 1


def test_validation_creates_nothing(client: RawClient, unique_topic: Callable[[], str]) -> None:
    """But says what would be created."""
    name = unique_topic()
    (result,) = create(client, creatable(name, 4), validate_only=True)
    assert (result.error_code, result.num_partitions, result.replication_factor) == (NONE, 4, 1)
    assert not exists(client, name)
    (result,) = create(client, creatable(name, 4, 3), validate_only=True)
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_one_failure_does_not_hold_up_others(
    client: RawClient, unique_topic: Callable[[], str], new_topic: Callable[..., str]
) -> None:
    """Each topic of a request has its own answer."""
    good, old = unique_topic(), new_topic()
    results = create(client, creatable(good), creatable(old), creatable("bad name"))
    codes = {one.name: one.error_code for one in results}
    assert codes == {
        good: NONE,
        old: ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    wait_for_leaders(client, good)


def test_topic_named_twice(client: RawClient, unique_topic: Callable[[], str]) -> None:
    """Which of the two is meant?"""
    name = unique_topic()
    results = create(client, creatable(name), creatable(name, 2))
    assert {one.error_code for one in results} == {INVALID_REQUEST}
    assert not exists(client, name)


def test_failed_creation_leaves_no_configs(
    client: RawClient, unique_topic: Callable[[], str]
) -> None:
    """They are not found by the topic that is created later."""
    name = unique_topic()
    (failed,) = create(client, creatable(name, 1, 5, retention_ms="1234"))
    assert failed.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    create_topic(client, name)
    config = describe_configs(client, TOPIC, name)["retention.ms"]
    assert (config.value, config.config_source) == ("604800000", DEFAULT)


@pytest.mark.parametrize(
    "configs",
    [{"no_such_config": "1"}, {"retention_ms": "soon"}, {"cleanup_policy": "shred"}],
    ids=str,
)
def test_invalid_configs_of_a_creation(
    client: RawClient, unique_topic: Callable[[], str], configs: dict[str, str]
) -> None:
    """Unknown names as well as bad values."""
    name = unique_topic()
    (result,) = create(client, creatable(name, 1, 1, **configs))
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert not exists(client, name)


def test_metadata_topic_cannot_be_created(client: RawClient) -> None:
    """It is the cluster's own."""
    (result,) = create(client, creatable("__cluster_metadata"))
    assert result.error_code == INVALID_REQUEST


def test_names_that_collide(client: RawClient, unique_name: Callable[[str], str]) -> None:
    """Dots and underscores are the same in the names of metrics."""
    base = unique_name("collide")
    create_topic(client, f"{base}.a_b")
    (result,) = create(client, creatable(f"{base}_a.b"))
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_manual_assignment(client: RawClient, unique_topic: Callable[[], str]) -> None:
    """Names brokers by id; its partitions must be all from 0 on."""
    (broker,) = client.call(MetadataRequest(topics=[])).brokers

    def assigned(name: str, *rows: tuple[int, list[int]]) -> CreatableTopic:
        return CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
                for index, ids in rows
            ],
        )

    node, name = broker.node_id, unique_topic()
    (result,) = create(client, assigned(name, (0, [node]), (1, [node])))
    assert (result.error_code, result.num_partitions) == (NONE, 2)
    invalid = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    wrong: list[tuple[int, list[int]]] = [(0, [999]), (1, [node]), (0, [node, node]), (0, [])]
    for row in wrong:
        (result,) = create(client, assigned(unique_topic(), row))
        assert result.error_code == invalid, row
    both = assigned(unique_topic(), (0, [node]))
    both.num_partitions = 3
    (result,) = create(client, both)
    assert result.error_code == INVALID_REQUEST


def test_longest_topic_name(client: RawClient, unique_name: Callable[[str], str]) -> None:
    """249 characters can be created, written, read and deleted."""
    name = unique_name("long").ljust(249, "x")
    create_topic(client, name)
    assert append(client, name, b"v") == 0
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
    assert [one.error_code for one in client.call(request).responses] == [NONE]
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while exists(client, name):
        assert time.monotonic() < deadline
    create_topic(client, name)
    assert append(client, name, b"v") == 0


def test_an_oversized_request_leaves_the_controller_alive(
    client: RawClient, unique_name: Callable[[str], str]
) -> None:
    """More partitions than one batch of metadata may hold are refused up front."""
    prefix = unique_name("many")
    results = create(client, *[creatable(f"{prefix}-{one}", 5000) for one in range(4)])
    assert {one.error_code for one in results} == {ErrorCode.POLICY_VIOLATION}
    assert not exists(client, f"{prefix}-0")
    create_topic(client, f"{prefix}-small")


# DeleteTopics


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_in_every_version(
    client: RawClient, new_topic: Callable[..., str], unique_topic: Callable[[], str], version: int
) -> None:
    """An unknown topic is answered as unknown."""
    topic, missing = new_topic(), unique_topic()
    request = DeleteTopicsRequest(
        topic_names=[topic, missing],
        topics=[DeleteTopicState(name=topic), DeleteTopicState(name=missing)],
        timeout_ms=5000,
    )
    if version < 6:
        request.topics = []
    else:
        request.topic_names = []
    results = {one.name: one for one in client.call(request, version).responses}
    assert {name: one.error_code for name, one in results.items()} == {
        topic: NONE,
        missing: UNKNOWN,
    }
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while exists(client, topic):
        assert time.monotonic() < deadline


def test_delete_by_id(client: RawClient, new_topic: Callable[..., str]) -> None:
    """The answer names the topic; an unknown id has none; name and id together mean nothing."""
    topic = new_topic()
    identity = topic_id(client, topic)

    def delete(**state: Any) -> Any:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(**state)], timeout_ms=5000)
        (result,) = client.call(request).responses
        return result

    unknown = delete(topic_id=b"\x07" * 16)
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert delete(name=topic, topic_id=identity).error_code == INVALID_REQUEST
    assert delete().error_code == INVALID_REQUEST
    done = delete(topic_id=identity)
    assert (done.error_code, done.name, done.topic_id) == (NONE, topic, identity)


def test_deletion_can_be_turned_off(make_broker: Callable[..., Broker]) -> None:
    """delete.topic.enable=false: every topic stays."""
    broker = make_broker(delete_topic_enable="false")
    with RawClient(broker.address) as client:
        create_topic(client, "kept")
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="kept")], timeout_ms=5000)
        (result,) = client.call(request).responses
        assert result.error_code == ErrorCode.TOPIC_DELETION_DISABLED
        assert exists(client, "kept")


# CreatePartitions


def grow(
    client: RawClient, topic: str, count: int, *, version: int = 3, validate_only: bool = False
) -> tuple[int, str | None]:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
        timeout_ms=10_000,
        validate_only=validate_only,
    )
    (result,) = client.call(request, version).results
    return result.error_code, result.error_message


@pytest.mark.parametrize("version", range(4))
def test_topics_grow(client: RawClient, new_topic: Callable[..., str], version: int) -> None:
    """And never shrink."""
    topic = new_topic(partitions=2)
    assert grow(client, topic, 5, validate_only=True, version=version)[0] == NONE
    assert len(describe_topic(client, topic).partitions) == 2
    assert grow(client, topic, 5, version=version) == (NONE, None)
    wait_for_leaders(client, topic, 5)
    assert append(client, topic, b"v", partition=4) == 0
    for count in (5, 4, 0, -1):
        code, message = grow(client, topic, count, version=version)
        assert code == ErrorCode.INVALID_PARTITIONS
        assert message
    assert len(describe_topic(client, topic).partitions) == 5


def test_unknown_topics_do_not_grow(client: RawClient, unique_topic: Callable[[], str]) -> None:
    """Nor are they created."""
    missing = unique_topic()
    assert grow(client, missing, 5)[0] == UNKNOWN
    assert not exists(client, missing)


# Configs


def describe(
    client: RawClient, kind: int, name: str, *keys: str, version: int = 4, **options: bool
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[resource], **options)
    (result,) = client.call(request, version).results
    assert isinstance(result, DescribeConfigsResult)
    return result


def describe_configs(
    client: RawClient, kind: int, name: str, *keys: str, **options: bool
) -> dict[str, DescribeConfigsResourceResult]:
    result = describe(client, kind, name, *keys, **options)
    assert result.error_code == NONE
    return {one.name: one for one in result.configs}


def value_of(client: RawClient, topic: str, name: str) -> str | None:
    return describe_configs(client, TOPIC, topic, name)[name].value


def test_lists_are_appended_to_and_subtracted_from(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Item by item; appending what is there, or subtracting what is not, changes nothing."""
    topic, policy = new_topic(), "cleanup.policy"
    assert alter_config(client, topic, (policy, SUBTRACT, "delete"))[0] in (NONE, INVALID_CONFIG)
    assert alter_config(client, topic, (policy, SET, "delete")) == (NONE, None)
    assert alter_config(client, topic, (policy, APPEND, "compact")) == (NONE, None)
    assert sorted(str(value_of(client, topic, policy)).split(",")) == ["compact", "delete"]
    assert alter_config(client, topic, (policy, APPEND, "delete,compact")) == (NONE, None)
    assert sorted(str(value_of(client, topic, policy)).split(",")) == ["compact", "delete"]
    assert alter_config(client, topic, (policy, SUBTRACT, "delete")) == (NONE, None)
    assert value_of(client, topic, policy) == "compact"
    assert alter_config(client, topic, (policy, DELETE, "whatever")) == (NONE, None)
    assert value_of(client, topic, policy) == "delete"
    code, _ = alter_config(client, topic, ("retention.ms", APPEND, "5"))
    assert code == INVALID_CONFIG


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], INVALID_REQUEST),
        ([("retention.ms", SET, None)], INVALID_REQUEST),
        ([("no.such.config", SET, "1")], INVALID_CONFIG),
        ([("retention.ms", SET, "soon")], INVALID_CONFIG),
        ([("cleanup.policy", APPEND, "shred")], INVALID_CONFIG),
    ],
    ids=str,
)
def test_refused_config_changes(
    client: RawClient,
    new_topic: Callable[..., str],
    changes: list[tuple[str, int, str | None]],
    code: ErrorCode,
) -> None:
    """Nothing changes, and the answer gives the reason."""
    topic = new_topic()
    found, message = alter_config(client, topic, ("flush.ms", SET, "9"), *changes)
    assert (found, bool(message)) == (code, True)
    assert value_of(client, topic, "flush.ms") != "9"


def test_values_are_shown_as_they_are_understood(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """However they were written."""
    topic = new_topic()
    changes = [("retention.ms", SET, " 005000 "), ("preallocate", SET, "TRUE")]
    assert alter_config(client, topic, *changes) == (NONE, None)
    assert value_of(client, topic, "retention.ms") == "5000"
    assert value_of(client, topic, "preallocate") == "true"


def test_validation_changes_nothing(client: RawClient, new_topic: Callable[..., str]) -> None:
    """Of configs."""
    topic = new_topic()
    change = ("retention.ms", SET, "5000")
    assert alter_config(client, topic, change, validate_only=True) == (NONE, None)
    assert value_of(client, topic, "retention.ms") == "604800000"


def test_configs_of_a_topic_that_does_not_exist(
    client: RawClient, unique_topic: Callable[[], str]
) -> None:
    """Can neither be changed nor described, nor do they wait for it."""
    missing = unique_topic()
    assert alter_config(client, missing, ("retention.ms", SET, "5000"))[0] == UNKNOWN
    assert describe(client, TOPIC, missing).error_code == UNKNOWN
    create_topic(client, missing)
    assert value_of(client, missing, "retention.ms") == "604800000"


def test_replacing_all_configs(client: RawClient, new_topic: Callable[..., str]) -> None:
    """AlterConfigs, deprecated but used: what it does not name goes back to its default."""
    topic = new_topic(retention_ms="5000", cleanup_policy="compact")
    for version in range(3):
        request = AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name=topic,
                    configs=[AlterableConfig(name="retention.ms", value=f"{version + 1}000")],
                )
            ],
            validate_only=False,
        )
        (result,) = client.call(request, version).responses
        assert result.error_code == NONE
        assert value_of(client, topic, "retention.ms") == f"{version + 1}000"
        assert value_of(client, topic, "cleanup.policy") == "delete"


def test_every_config_of_a_topic_is_described(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """Without keys, all of them, set or not; schema registries and Connect look for the policy."""
    topic = new_topic(retention_ms="5000")
    found = describe_configs(client, TOPIC, topic)
    assert {"cleanup.policy", "retention.ms", "max.message.bytes", "segment.bytes"} <= found.keys()
    assert (found["cleanup.policy"].value, found["cleanup.policy"].config_source) == (
        "delete",
        DEFAULT,
    )
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == (
        "5000",
        DYNAMIC_TOPIC,
    )
    assert not any(one.read_only or one.is_sensitive or one.synonyms for one in found.values())
    assert all(one.documentation is None for one in found.values())
    only = describe_configs(client, TOPIC, topic, "cleanup.policy", "no.such.config")
    assert list(only) == ["cleanup.policy"]


def test_a_resource_may_be_described_twice(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """With other keys, say."""
    topic = new_topic()
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=TOPIC, resource_name=topic, configuration_keys=[key]
            )
            for key in ("retention.ms", "cleanup.policy")
        ]
    )
    results = client.call(request).results
    assert [one.error_code for one in results] == [NONE, NONE]
    assert {one.name for result in results for one in result.configs} == {
        "retention.ms",
        "cleanup.policy",
    }


def test_topics_have_no_default_resource(client: RawClient) -> None:
    """Unlike brokers."""
    code, message = alter_config(client, "", ("retention.ms", SET, "1"))
    assert (code, bool(message)) == (INVALID_REQUEST, True)


def test_synonyms_and_documentation_when_asked_for(
    client: RawClient, new_topic: Callable[..., str]
) -> None:
    """From the most to the least specific source."""
    topic = new_topic(retention_ms="5000")
    found = describe_configs(
        client, TOPIC, topic, "retention.ms", include_synonyms=True, include_documentation=True
    )["retention.ms"]
    assert found.documentation
    assert [(one.name, one.value, one.source) for one in found.synonyms] == [
        ("retention.ms", "5000", DYNAMIC_TOPIC)
    ]
    found = describe_configs(client, TOPIC, topic, "segment.bytes", include_synonyms=True)[
        "segment.bytes"
    ]
    assert [(one.name, one.source) for one in found.synonyms] == [("log.segment.bytes", DEFAULT)]


def test_configs_of_brokers(make_broker: Callable[..., Broker]) -> None:
    """Each value has its source: the file, or a change for all brokers or for one."""
    broker = make_broker(log_retention_ms=77_000)
    with RawClient(broker.address) as client:
        (node,) = client.call(MetadataRequest(topics=[])).brokers
        name = str(node.node_id)
        found = describe_configs(client, BROKER, name)
        assert (found["log.retention.ms"].value, found["log.retention.ms"].config_source) == (
            "77000",
            STATIC_BROKER,
        )
        assert found["node.id"].read_only
        assert not found["log.retention.ms"].read_only
        assert found["ssl.keystore.password"].value is None
        assert found["ssl.keystore.password"].is_sensitive
        topic = create_topic(client, "inherits")
        inherited = describe_configs(client, TOPIC, topic)["retention.ms"]
        assert (inherited.value, inherited.config_source) == ("77000", STATIC_BROKER)
        for kind, value, source in (
            ("", "88000", DYNAMIC_DEFAULT),
            (name, "99000", DYNAMIC_BROKER),
        ):
            change = ("log.retention.ms", SET, value)
            assert alter_config(client, kind, change, kind=BROKER) == (NONE, None)
            wait_for_config(client, BROKER, name, "log.retention.ms", (value, source))
            wait_for_config(client, TOPIC, topic, "retention.ms", (value, source))
        defaults = describe_configs(client, BROKER, "")
        # Apache Kafka's own cluster sets this one itself when its ELR feature is on (KIP-966).
        defaults.pop("min.insync.replicas", None)
        assert {key: one.value for key, one in defaults.items()} == {"log.retention.ms": "88000"}


def wait_for_config(
    client: RawClient, kind: int, name: str, key: str, expected: tuple[str, int]
) -> None:
    """A change is in force soon after it was answered."""
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while True:
        found = describe_configs(client, kind, name)[key]
        if (found.value, found.config_source) == expected:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("kind", "name"), [(BROKER, "x"), (BROKER, "999"), (3, "x"), (1, "x")], ids=str
)
def test_resources_that_cannot_be_described(client: RawClient, kind: int, name: str) -> None:
    """Brokers are named by number, and each describes only itself."""
    result = describe(client, kind, name)
    assert result.error_code == INVALID_REQUEST
    assert result.configs == []


def test_static_configs_cannot_be_changed(client: RawClient) -> None:
    """While the broker runs."""
    (node,) = client.call(MetadataRequest(topics=[])).brokers
    code, message = alter_config(
        client, str(node.node_id), ("log.dirs", SET, "/elsewhere"), kind=BROKER
    )
    assert (code, bool(message)) == (INVALID_REQUEST, True)


# Log folders


@pytest.mark.parametrize("version", range(1, 6))
def test_log_folders_are_described(
    client: RawClient, new_topic: Callable[..., str], version: int
) -> None:
    """Null topics mean all; a partition that is not there is left out, and so is its topic."""
    topic = new_topic(partitions=2)
    append(client, topic, b"x" * 1000, partition=1)
    every = client.call(DescribeLogDirsRequest(topics=None), version)
    assert every.error_code == NONE
    (folder,) = every.results
    assert folder.error_code == NONE
    assert (folder.total_bytes > folder.usable_bytes > 0) == (version >= 4)
    (found,) = [one for one in folder.topics if one.name == topic]
    sizes = {one.partition_index: one.partition_size for one in found.partitions}
    assert sizes[0] == 0
    assert 1000 < sizes[1] < 1200
    assert {(one.offset_lag, one.is_future_key) for one in found.partitions} == {(0, False)}
    assert all(one.partitions for one in folder.topics)
    asked = [
        DescribableLogDirTopic(topic=topic, partitions=[1, 7]),
        DescribableLogDirTopic(topic="no-such-topic", partitions=[0]),
    ]
    (folder,) = client.call(DescribeLogDirsRequest(topics=asked), version).results
    assert [(one.name, [p.partition_index for p in one.partitions]) for one in folder.topics] == [
        (topic, [1])
    ]
    (folder,) = client.call(DescribeLogDirsRequest(topics=[]), version).results
    assert folder.topics == []


# Elections


@pytest.mark.parametrize("version", range(3))
def test_elections_that_are_not_needed(
    client: RawClient, new_topic: Callable[..., str], unique_topic: Callable[[], str], version: int
) -> None:
    """The preferred replica leads already; asked for all partitions, the answer omits these."""
    topic, missing = new_topic(partitions=2), unique_topic()
    request = ElectLeadersRequest(
        topic_partitions=[
            TopicPartitions(topic=topic, partitions=[0, 1, 9]),
            TopicPartitions(topic=missing, partitions=[0]),
        ],
        timeout_ms=5000,
    )
    response = client.call(request, version)
    assert response.error_code == NONE
    codes = {
        (one.topic, partition.partition_id): partition.error_code
        for one in response.replica_election_results
        for partition in one.partition_result
    }
    assert codes == {
        (topic, 0): ErrorCode.ELECTION_NOT_NEEDED,
        (topic, 1): ErrorCode.ELECTION_NOT_NEEDED,
        (topic, 9): UNKNOWN,
        (missing, 0): UNKNOWN,
    }
    every = client.call(ElectLeadersRequest(topic_partitions=None, timeout_ms=5000), version)
    assert every.error_code == NONE
    assert topic in [one.topic for one in every.replica_election_results]
    assert not any(one.partition_result for one in every.replica_election_results)
