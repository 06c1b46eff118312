"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.kraft_meta.controller.configuration_control import APPEND, DELETE, SET, SUBTRACT
from kraftrio.kraft_meta.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraftrio.kraft_meta.metadata.records import ConfigRecord
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.messages.cluster import ListConfigResourcesRequest
from kraftrio.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.support.sliced import finish
from tests.unit.broker.api.cluster_context import ClusterContext, context


def describe(
    cluster: ClusterContext, kind: int, name: str, keys: list[str] | None = None
) -> DescribeConfigsResult:
    """Describe one resource with synonyms and documentation."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    (result,) = finish(cluster.configs.describe_configs(request, context(4))).results
    return result


def entry(cluster: ClusterContext, kind: int, name: str, key: str) -> DescribeConfigsResourceResult:
    """Describe one setting."""
    (found,) = describe(cluster, kind, name, [key]).configs
    return found


def synonyms(found: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    """The synonyms of a setting as tuples."""
    return [(one.name, one.value, one.source) for one in found.synonyms]


def alter(
    cluster: ClusterContext,
    *changes: tuple[int, str, str, int, str | None],
    validate_only: bool = False,
) -> list[tuple[int, str | None]]:
    """Alter settings one by one: (type, resource, key, operation, value); gives the verdicts."""
    resources: dict[tuple[int, str], IncrementalAlterConfigsResource] = {}
    for kind, name, key, operation, value in changes:
        resource = resources.setdefault(
            (kind, name),
            IncrementalAlterConfigsResource(resource_type=kind, resource_name=name),
        )
        resource.configs.append(
            IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
        )
    request = IncrementalAlterConfigsRequest(
        resources=list(resources.values()), validate_only=validate_only
    )
    response: Any = finish(cluster.configs.incremental_alter_configs(request, context(1)))
    if isinstance(response, Deferred):
        response = response.value
    return [(one.error_code, one.error_message) for one in response.responses]


def test_topic_settings_come_with_their_sources() -> None:
    """A topic's own setting wins over the broker's static one, which wins over the default."""
    cluster = ClusterContext({"log.cleanup.policy": "compact", "log.retention.hours": "1"})
    cluster.create_topic("t", cleanup_policy="delete")
    policy = entry(cluster, TOPIC, "t", "cleanup.policy")
    assert (policy.value, policy.config_source, policy.config_type) == ("delete", 1, 7)
    assert synonyms(policy) == [
        ("cleanup.policy", "delete", 1),
        ("log.cleanup.policy", "compact", 4),
        ("log.cleanup.policy", "delete", 5),
    ]
    retention = entry(cluster, TOPIC, "t", "retention.ms")
    # Only the property's own name gives a source, as in Kafka; the value follows the hours.
    assert (retention.value, retention.config_source) == ("3600000", 5)
    segment = entry(cluster, TOPIC, "t", "segment.bytes")
    assert (segment.value, segment.config_source) == ("1073741824", 5)
    assert segment.documentation


def test_all_topic_settings_are_described() -> None:
    """Null keys and empty keys both mean everything that a 4.3 topic has."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    everything = describe(cluster, TOPIC, "t")
    assert (everything.error_code, everything.error_message) == (0, "")
    assert len(everything.configs) == 33
    assert len(describe(cluster, TOPIC, "t", []).configs) == 33
    assert describe(cluster, TOPIC, "t", ["no.such"]).configs == []


def test_synonyms_and_documentation_only_when_asked() -> None:
    """What was not asked for is left out."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name="t")]
    )
    (result,) = finish(cluster.configs.describe_configs(request, context(4))).results
    assert result.configs[0].synonyms == []
    assert result.configs[0].documentation is None


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_version_can_be_encoded(version: int) -> None:
    """The description of a broker survives the wire in each version."""
    cluster = ClusterContext({"ssl.key.password": "hunter2"})
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=BROKER, resource_name="1", configuration_keys=None
            )
        ]
    )
    response = finish(cluster.configs.describe_configs(request, context(version)))
    again, _ = decode(DescribeConfigsResponse, version, encode(response, version))
    assert len(again.results[0].configs) == len(response.results[0].configs) > 300
    assert b"hunter2" not in encode(response, version)


@pytest.mark.parametrize(
    ("kind", "name", "code", "words"),
    [
        (TOPIC, "missing", 3, ""),
        (TOPIC, "a b", 17, "Topic name is invalid"),
        (TOPIC, "", 17, "the empty string is not allowed"),
        (BROKER, "2", 42, "expected 1 or empty string, but received 2"),
        (BROKER, "x", 42, "Broker id must be an integer, but it is: x"),
        (BROKER_LOGGER, "", 42, "Broker id must not be empty"),
        (BROKER_LOGGER, "2", 42, "expected 1 but received 2"),
        (GROUP, "", 42, "Group name must not be empty"),
        (CLIENT_METRICS, "", 42, "must not be empty"),
        (99, "x", 42, ""),
    ],
)
def test_resources_that_cannot_be_described(kind: int, name: str, code: int, words: str) -> None:
    """Each resource fails for itself, with Kafka's code."""
    result = describe(ClusterContext(), kind, name)
    assert result.error_code == code
    assert words in (result.error_message or "")


def test_resource_named_twice_is_described_twice() -> None:
    """Each time with the keys that are asked for then."""
    cluster = ClusterContext()
    resources = [
        DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=[key])
        for key in ("node.id", "log.dirs")
    ]
    request = DescribeConfigsRequest(resources=resources)
    results = finish(cluster.configs.describe_configs(request, context(4))).results
    assert [[one.name for one in result.configs] for result in results] == [
        ["node.id"],
        ["log.dirs"],
    ]


def test_broker_settings_show_what_may_change() -> None:
    """Static settings are read-only, dynamic ones are not; passwords are never shown."""
    cluster = ClusterContext({"num.partitions": "3", "sasl.jaas.config": "secret"})
    partitions = entry(cluster, BROKER, "1", "num.partitions")
    assert (partitions.value, partitions.config_source, partitions.read_only) == ("3", 4, True)
    assert synonyms(partitions) == [("num.partitions", "3", 4), ("num.partitions", "1", 5)]
    assert not entry(cluster, BROKER, "1", "log.retention.ms").read_only
    password = entry(cluster, BROKER, "1", "sasl.jaas.config")
    assert (password.value, password.is_sensitive) == (None, True)
    assert synonyms(password) == [("sasl.jaas.config", None, 4)]
    node_id = entry(cluster, BROKER, "1", "node.id")
    assert (node_id.value, node_id.config_source) == ("1", 5)
    named = ClusterContext({"node.id": "4"}, brokers={4: True})
    assert synonyms(entry(named, BROKER, "4", "broker.id")) == [
        ("broker.id", "4", 4),
        ("broker.id", "-1", 5),
    ]


def test_internal_settings_are_hidden() -> None:
    """Settings of tests and of unfinished things are not described."""
    assert describe(ClusterContext(), BROKER, "1", ["unstable.api.versions.enable"]).configs == []


def test_whatever_the_broker_was_started_with_is_described() -> None:
    """An internal setting with its value; unknown ones and the authorizer's without."""
    hidden = {"super.users": "User:a", "allow.everyone.if.no.acl.found": "true", "my.plugin": "x"}
    cluster = ClusterContext({"unstable.api.versions.enable": "true", **hidden})
    internal = entry(cluster, BROKER, "1", "unstable.api.versions.enable")
    assert (internal.value, internal.config_source, internal.is_sensitive) == ("true", 4, False)
    assert synonyms(internal) == [
        ("unstable.api.versions.enable", "true", 4),
        ("unstable.api.versions.enable", "false", 5),
    ]
    for name in hidden:
        found = entry(cluster, BROKER, "1", name)
        assert (found.value, found.config_source, found.is_sensitive) == (None, 4, True)
        assert (found.read_only, synonyms(found)) == (True, [(name, None, 4)])


def test_dynamic_broker_settings_take_effect() -> None:
    """The cluster's default is overridden by the broker's own, both by nothing else."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    assert alter(cluster, (BROKER, "", "log.retention.ms", SET, "77")) == [(0, None)]
    assert cluster.dynamic.current.log_retention_ms == 77
    assert alter(cluster, (BROKER, "1", "log.retention.ms", SET, "55")) == [(0, None)]
    assert cluster.dynamic.current.log_retention_ms == 55
    retention = entry(cluster, BROKER, "1", "log.retention.ms")
    assert (retention.value, retention.config_source) == ("55", 2)
    assert synonyms(retention) == [
        ("log.retention.ms", "55", 2),
        ("log.retention.ms", "77", 3),
        ("log.retention.hours", "168", 5),
    ]
    of_topic = entry(cluster, TOPIC, "t", "retention.ms")
    assert (of_topic.value, of_topic.config_source) == ("55", 2)
    assert cluster.dynamic.log_config(cluster.metadata.image, "t").retention_ms == 55
    default = describe(cluster, BROKER, "").configs
    assert [(one.name, one.value, one.config_source) for one in default] == [
        ("log.retention.ms", "77", 3)
    ]
    alter(cluster, (BROKER, "1", "log.retention.ms", DELETE, None))
    assert cluster.dynamic.current.log_retention_ms == 77


def test_names_that_are_not_kafkas_hide_their_values() -> None:
    """A broker accepts foreign dynamic names, as Kafka, and does not show what they hold."""
    cluster = ClusterContext()
    assert alter(cluster, (BROKER, "1", "my.plugin", SET, "s3cret")) == [(0, None)]
    found = entry(cluster, BROKER, "1", "my.plugin")
    assert (found.value, found.is_sensitive, found.read_only) == (None, True, True)


def test_throttles_exist_only_dynamically() -> None:
    """kafka-reassign-partitions sets rates that no file knows."""
    cluster = ClusterContext()
    key = "leader.replication.throttled.rate"
    assert describe(cluster, BROKER, "1", [key]).configs == []
    assert alter(cluster, (BROKER, "1", key, SET, "1000")) == [(0, None)]
    assert entry(cluster, BROKER, "1", key).value == "1000"
    assert cluster.dynamic.dynamic_value(key) == 1000


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("1", "num.partitions", "3", "Cannot update these configs dynamically: [num.partitions]"),
        ("1", "log.retention.hours", "3", "Cannot update these configs dynamically"),
        ("", "ssl.protocol", "3", "broker id must be specified: [ssl.protocol]"),
        ("7", "log.retention.ms", "3", "expected 1, but received 7"),
        ("x", "log.retention.ms", "3", "Node id must be an integer, but it is: x"),
        ("1", "log.retention.ms", "x", "Not a number of type LONG"),
        ("1", "log.retention.ms", "0", "log.retention.ms is 0"),
        ("", "compression.type", "brotli", "String must be one of"),
        ("1", "listeners", "PLAINTEXT://h:1", "cannot be changed while it runs"),
        ("", "compression.gzip.level", "99", "Value must be between 1 and 9 or equal to -1"),
    ],
)
def test_broker_settings_that_cannot_change(name: str, key: str, value: str, words: str) -> None:
    """The broker itself refuses what it could not apply."""
    cluster = ClusterContext()
    ((code, message),) = alter(cluster, (BROKER, name, key, SET, value))
    assert code == 42
    assert words in (message or "")
    assert cluster.submitted == []


def test_topic_settings_change() -> None:
    """SET and DELETE of a topic's setting are seen in the next description."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    assert alter(cluster, (TOPIC, "t", "retention.ms", SET, "9")) == [(0, None)]
    assert entry(cluster, TOPIC, "t", "retention.ms").value == "9"
    assert alter(cluster, (TOPIC, "t", "retention.ms", DELETE, "ignored")) == [(0, None)]
    assert entry(cluster, TOPIC, "t", "retention.ms").value == "604800000"


def test_lists_grow_and_shrink() -> None:
    """APPEND and SUBTRACT work on items, start from the default, and keep no item twice."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    alter(cluster, (TOPIC, "t", "cleanup.policy", APPEND, "compact"))
    assert entry(cluster, TOPIC, "t", "cleanup.policy").value == "delete,compact"
    alter(cluster, (TOPIC, "t", "cleanup.policy", APPEND, "delete,compact"))
    assert entry(cluster, TOPIC, "t", "cleanup.policy").value == "delete,compact"
    alter(cluster, (TOPIC, "t", "cleanup.policy", SUBTRACT, "delete,compact"))
    assert entry(cluster, TOPIC, "t", "cleanup.policy").value == ""
    config = cluster.dynamic.log_config(cluster.metadata.image, "t")
    assert not config.compact and not config.delete


@pytest.mark.parametrize(
    ("key", "operation", "value", "code", "words"),
    [
        ("retention.ms", SET, "abc", 40, "Not a number of type LONG"),
        ("segment.bytes", SET, "1", 40, "Value must be at least 1048576"),
        ("foo.bar", SET, "1", 40, "Unknown topic config name: foo.bar"),
        ("cleanup.policy", SET, "x,delete", 40, "compact, delete"),
        ("retention.ms", APPEND, "1", 40, "not LIST"),
        ("retention.ms", SET, None, 42, "Null value not supported for : retention.ms"),
        ("retention.ms", 9, "1", -1, ""),
    ],
)
def test_topic_settings_that_are_refused(
    key: str, operation: int, value: str | None, code: int, words: str
) -> None:
    """Values, names and operations that make no sense get Kafka's codes."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    ((found, message),) = alter(cluster, (TOPIC, "t", key, operation, value))
    assert found == code
    assert words in (message or "")


def test_each_resource_is_judged_for_itself_in_the_requests_order() -> None:
    """Answers of this broker and of the controller keep the order of the request."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    verdicts = alter(
        cluster,
        (TOPIC, "missing", "retention.ms", SET, "1"),
        (BROKER, "9", "log.retention.ms", SET, "1"),
        (TOPIC, "t", "retention.ms", SET, "1"),
        (BROKER_LOGGER, "1", "root", SET, "DEBUG"),
        (99, "x", "y", SET, "1"),
    )
    assert [code for code, _ in verdicts] == [3, 42, 0, 0, 42]
    assert cluster.loggers.now["root"] == "DEBUG"


def test_repeated_resources_and_keys_are_refused() -> None:
    """A resource or a key named twice has no clear meaning."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    twice = alter(
        cluster, (TOPIC, "t", "retention.ms", SET, "1"), (TOPIC, "t", "retention.ms", SET, "2")
    )
    assert twice == [(42, "Error due to duplicate config keys")]
    resource = IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name="t")
    response = finish(
        cluster.configs.incremental_alter_configs(
            IncrementalAlterConfigsRequest(resources=[resource, resource]), context(1)
        )
    )
    assert not isinstance(response, Deferred)
    assert [one.error_code for one in response.responses] == [42, 42]


def test_validate_only_changes_nothing() -> None:
    """A dry run judges and leaves everything as it is."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    verdicts = alter(
        cluster,
        (TOPIC, "t", "retention.ms", SET, "1"),
        (BROKER_LOGGER, "1", "root", SET, "DEBUG"),
        validate_only=True,
    )
    assert verdicts == [(0, None), (0, None)]
    assert entry(cluster, TOPIC, "t", "retention.ms").value == "604800000"
    assert cluster.loggers.now["root"] == "INFO"


@pytest.mark.parametrize(
    ("name", "key", "operation", "value", "code", "words"),
    [
        ("1", "root", SET, "BOGUS", 40, "is not a supported log level"),
        ("1", "nologger", SET, "INFO", 40, "Logger nologger does not exist!"),
        ("1", "root", DELETE, None, 42, "root logger is not allowed"),
        ("1", "root", APPEND, "INFO", 42, "APPEND operation is not allowed"),
        ("2", "root", SET, "INFO", 42, "Expected 1, but received 2"),
        ("", "root", SET, "INFO", 42, "must be an integer"),
    ],
)
def test_logger_changes_that_are_refused(
    name: str, key: str, operation: int, value: str | None, code: int, words: str
) -> None:
    """Levels change on this broker, for loggers there are, to levels there are."""
    cluster = ClusterContext()
    ((found, message),) = alter(cluster, (BROKER_LOGGER, name, key, operation, value))
    assert (found, words in (message or "")) == (code, True)


def test_loggers_are_described() -> None:
    """Levels are settings with the source of loggers."""
    cluster = ClusterContext()
    alter(cluster, (BROKER_LOGGER, "1", "kraftrio.raft", SET, "TRACE"))
    found = describe(cluster, BROKER_LOGGER, "1").configs
    assert [(one.name, one.value, one.config_source) for one in found] == [
        ("root", "INFO", 6),
        ("kraftrio.raft", "TRACE", 6),
    ]


def test_group_settings() -> None:
    """A group's settings lie within the broker's bounds and show its default."""
    cluster = ClusterContext()
    assert alter(cluster, (GROUP, "g", "consumer.session.timeout.ms", SET, "50000")) == [(0, None)]
    found = entry(cluster, GROUP, "g", "consumer.session.timeout.ms")
    assert (found.value, found.config_source) == ("50000", 8)
    assert synonyms(found) == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert len(describe(cluster, GROUP, "g").configs) == 17
    ((code, message),) = alter(cluster, (GROUP, "g", "consumer.session.timeout.ms", SET, "10"))
    assert (code, message) == (
        40,
        "consumer.session.timeout.ms must be greater than or equal to "
        "group.consumer.min.session.timeout.ms",
    )
    ((code, message),) = alter(cluster, (GROUP, "g", "foo", SET, "10"))
    assert (code, message) == (40, "Unknown group config name: foo")
    ((code, message),) = alter(cluster, (GROUP, "", "consumer.session.timeout.ms", SET, "50000"))
    assert (code, message) == (42, "Default group resources are not allowed.")


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("interval.ms", "500", 0),
        ("interval.ms", "5", 42),
        ("match", "client_id=app-.*,client_software_name=x", 0),
        ("match", "xx", 40),
        ("match", "client_id=(", 40),
        ("match", "client_id=", 40),
        ("match", "client_id=a=b", 40),
        ("match", "", 0),
        ("metrics", "org.apache", 0),
        ("metrics", "org.apache,", 40),
        ("foo", "xx", 42),
    ],
)
def test_client_metrics_settings(key: str, value: str, code: int) -> None:
    """A subscription has an interval, selectors and metric prefixes."""
    cluster = ClusterContext()
    ((found, _),) = alter(cluster, (CLIENT_METRICS, "m", key, SET, value))
    assert found == code
    if code == 0:
        assert entry(cluster, CLIENT_METRICS, "m", key).config_source == 7


def test_alter_configs_replaces_everything() -> None:
    """The older API leaves nothing of what was set before."""
    cluster = ClusterContext()
    cluster.create_topic("t", retention_ms="9", segment_ms="8")
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="t",
                configs=[AlterableConfig(name="retention.ms", value="7")],
            ),
            AlterConfigsResource(resource_type=BROKER_LOGGER, resource_name="1"),
        ]
    )
    response = finish(cluster.configs.alter_configs(request, context(2)))
    assert isinstance(response, Deferred)
    assert [one.error_code for one in response.value.responses] == [0, 42]
    assert dict(cluster.metadata.image.config(TOPIC, "t")) == {"retention.ms": "7"}


def test_answer_waits_for_the_controller() -> None:
    """Nothing is answered before the controller has decided."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    cluster.hold()
    request = AlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=TOPIC, resource_name="t")]
    )
    response = finish(cluster.configs.alter_configs(request, context(2)))
    assert isinstance(response, Deferred) and not response.done
    cluster.settle()
    assert response.value.responses[0].error_code == 0


def test_resources_are_listed_by_type() -> None:
    """No types mean all, version 0 knows client metrics only, unknown types are refused."""
    cluster = ClusterContext()
    cluster.create_topic("t")
    alter(cluster, (GROUP, "g", "consumer.session.timeout.ms", SET, "50000"))
    alter(cluster, (CLIENT_METRICS, "m", "interval.ms", SET, "500"))

    def listed(version: int, *types: int) -> list[tuple[str, int]]:
        response = cluster.configs.list_config_resources(
            ListConfigResourcesRequest(resource_types=list(types)), context(version)
        )
        assert response.error_code == 0
        return [(one.resource_name, one.resource_type) for one in response.config_resources]

    assert listed(1) == [("g", 32), ("m", 16), ("1", 8), ("1", 4), ("t", 2)]
    assert listed(1, TOPIC, BROKER) == [("1", 4), ("t", 2)]
    assert listed(0) == [("m", 16)]
    refused = cluster.configs.list_config_resources(
        ListConfigResourcesRequest(resource_types=[99]), context(1)
    )
    assert (refused.error_code, refused.config_resources) == (35, [])


def test_dynamic_settings_that_do_not_fit_are_left_out() -> None:
    """A broker keeps running when committed settings cannot be applied together."""
    cluster = ClusterContext()
    cluster.apply([ConfigRecord(BROKER, "", "log.retention.ms", "0")])
    assert cluster.dynamic.current.log_retention_ms == 604_800_000
    assert cluster.warnings and "log.retention.ms is 0" in cluster.warnings[0]
