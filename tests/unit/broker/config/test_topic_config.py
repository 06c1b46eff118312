"""Settings of topics: defaults, rules, and the settings of a log."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict

import pytest

from kraftrio.broker.config.config import BROKER_KEYS, BrokerConfig
from kraftrio.broker.config.describe import TOPIC_SOURCE, describe_topic
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.config.group_config import GROUP_KEYS
from kraftrio.broker.config.topic_config import TOPIC_KEYS, log_config, validate_topic_configs
from kraftrio.broker.config.types import format_value
from kraftrio.broker.config.validator import NodeConfigValidator
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.kraft_meta.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from kraftrio.wire.errors import ErrorCode, KafkaError


def config(**settings: str) -> BrokerConfig:
    """A broker's settings by attribute names."""
    return BrokerConfig.load(
        None, {name.replace("_", "."): value for name, value in settings.items()}, {}
    )


def refusal(broker: BrokerConfig, **settings: str) -> str:
    """The sentence with which a topic's settings are refused."""
    with pytest.raises(KafkaError) as error:
        validate_topic_configs(
            {name.replace("_", "."): value for name, value in settings.items()}, broker
        )
    assert error.value.code is ErrorCode.INVALID_CONFIG
    return error.value.message or ""


def test_default_log_is_kafkas() -> None:
    """Without any setting a log has the defaults of its own class, which are Kafka's."""
    assert log_config({}, config()) == LogConfig()


def test_every_setting_of_a_log_is_a_topics() -> None:
    """No log setting but the broker's own bound is out of a topic's reach; defaults agree."""
    names = {key.attribute for key in TOPIC_KEYS.values()} | {"max_decompressed_batch_bytes"}
    for field in dataclasses.fields(LogConfig):
        if field.init:
            assert field.name in names
    for key in TOPIC_KEYS.values():
        if key.synonym:
            of_broker = BROKER_KEYS[key.synonym]
            if of_broker.default is not None:
                assert format_value(of_broker.default) == format_value(key.default), key.name


def test_synonyms_of_groups_are_the_brokers() -> None:
    """A group's default is the broker's property, of the same default."""
    for key in GROUP_KEYS.values():
        if key.synonym:
            assert BROKER_KEYS[key.synonym].default == key.default


def test_segments_may_be_smaller_than_users_may_ask_for() -> None:
    """internal.segment.bytes goes before segment.bytes; it is shown only of topics that set it."""
    broker = config(log_segment_bytes="2000000")
    own = {"internal.segment.bytes": "500", "segment.bytes": "3000000"}
    validate_topic_configs(own, broker)
    assert log_config(own, broker).segment_bytes == 500
    assert log_config({"segment.bytes": "3000000"}, broker).segment_bytes == 3000000
    assert "Value must be at least 1" in refusal(broker, internal_segment_bytes="0")
    assert "Not a number of type INT" in refusal(broker, internal_segment_bytes="x")
    dynamic = DynamicConfig(broker, lambda _: None)
    shown = {entry.name: entry for entry in describe_topic(own, dynamic)}
    entry = shown.pop("internal.segment.bytes")
    assert (entry.value, entry.config_source, entry.is_sensitive) == ("500", TOPIC_SOURCE, False)
    assert [(one.name, one.value, one.source) for one in entry.synonyms] == [
        ("internal.segment.bytes", "500", TOPIC_SOURCE)
    ]
    assert shown.keys() == {entry.name for entry in describe_topic({}, dynamic)}


def test_topic_overrides_the_broker() -> None:
    """A topic's own settings win; the broker's fill in for the rest."""
    broker = config(
        log_retention_minutes="2",
        log_roll_hours="1",
        log_segment_bytes="2000000",
        log_cleanup_policy="compact,delete",
        log_flush_scheduler_interval_ms="9",
        message_max_bytes="77",
    )
    found = log_config({"segment.bytes": "3000000", "preallocate": "true"}, broker)
    assert (found.segment_bytes, found.retention_ms, found.segment_ms) == (3000000, 120000, 3600000)
    assert (found.flush_ms, found.max_message_bytes, found.preallocate) == (9, 77, True)
    assert found.compact and found.delete


def test_no_policy_keeps_everything() -> None:
    """An empty cleanup.policy neither deletes nor compacts."""
    found = log_config({"cleanup.policy": ""}, config())
    assert not found.compact and not found.delete


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact, delete"),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", ""),
        ("compression.gzip.level", "-1"),
        ("compression.zstd.level", "-5"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-7"),
        ("local.retention.ms", "99999999999"),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
        ("follower.replication.throttled.replicas", ""),
        ("min.cleanable.dirty.ratio", "1"),
        ("unclean.leader.election.enable", "TRUE"),
        ("message.timestamp.type", "LogAppendTime"),
    ],
)
def test_values_that_kafka_takes(name: str, value: str) -> None:
    """Each of these may be set, and the log that it gives differs by this setting alone."""
    validate_topic_configs({name: value}, config())
    plain, changed = asdict(log_config({}, config())), asdict(log_config({name: value}, config()))
    settings = {key.replace(".", "_") for key in TOPIC_KEYS}
    different = {key for key in settings & plain.keys() if plain[key] != changed[key]}
    assert different <= {name.replace(".", "_")}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("foo.bar", "1", "Unknown topic config name: foo.bar"),
        ("retention.ms", "abc", "Not a number of type LONG"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("segment.bytes", "1", "Value must be at least 1048576"),
        ("cleanup.policy", "x,delete", "compact, delete"),
        ("compression.type", "brotli", "uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "between 1 and 9 or"),
        ("compression.zstd.level", "90", "no more than 22"),
        ("min.cleanable.dirty.ratio", "2", "Invalid value 2.0"),
        ("preallocate", "2", "either true or false"),
        ("leader.replication.throttled.replicas", "x", "must be the literal '*'"),
        ("remote.storage.enable", "true", "Tiered Storage functionality is disabled"),
        ("min.insync.replicas", "0", "at least 1"),
    ],
)
def test_values_that_are_refused(name: str, value: str, words: str) -> None:
    """The sentence names the setting and what is allowed."""
    assert words in refusal(config(), **{name: value})


def test_compaction_lags_must_fit_together() -> None:
    """The least lag cannot be longer than the greatest, the broker's default included."""
    words = "min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    assert words in refusal(config(), min_compaction_lag_ms="10", max_compaction_lag_ms="5")
    broker = config(log_cleaner_max_compaction_lag_ms="5")
    assert words in refusal(broker, min_compaction_lag_ms="10")


def validator() -> NodeConfigValidator:
    """What the controller asks."""
    return NodeConfigValidator(DynamicConfig(config(log_cleanup_policy="compact"), lambda _: None))


def test_controller_learns_lists_and_defaults() -> None:
    """APPEND needs to know which settings are lists and where they start."""
    ours = validator()
    assert ours.is_list(TOPIC, "cleanup.policy") and not ours.is_list(TOPIC, "retention.ms")
    assert ours.is_list(BROKER, "log.cleanup.policy")
    assert not ours.is_list(CLIENT_METRICS, "match"), "it is only set as a whole"
    assert not ours.is_list(GROUP, "no.such") and not ours.is_list(99, "match")
    assert ours.default_value(TOPIC, "cleanup.policy") == "compact"
    assert ours.default_value(BROKER, "log.cleanup.policy") == "compact"
    assert ours.default_value(GROUP, "consumer.session.timeout.ms") == "45000"
    assert ours.default_value(TOPIC, "no.such") is None


@pytest.mark.parametrize(
    ("kind", "name", "configs", "code"),
    [
        (TOPIC, "t", {"foo": "1"}, ErrorCode.INVALID_CONFIG),
        (BROKER, "1", {"num.partitions": "1"}, ErrorCode.INVALID_REQUEST),
        (BROKER, "", {"ssl.protocol": "x"}, ErrorCode.INVALID_REQUEST),
        (GROUP, "g", {"foo": "1"}, ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "", {}, ErrorCode.INVALID_REQUEST),
        (8, "1", {}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_controller_refuses_by_resource_type(
    kind: int, name: str, configs: dict[str, str], code: ErrorCode
) -> None:
    """Each type of resource has its own rules and its own code."""
    with pytest.raises(KafkaError) as error:
        validator().validate(kind, name, configs)
    assert error.value.code is code


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("consumer.heartbeat.interval.ms", "5000", True),
        ("consumer.heartbeat.interval.ms", "20000", False),
        ("streams.num.standby.replicas", "3", False),
        ("share.auto.offset.reset", "by_duration:PT1H", True),
        ("share.auto.offset.reset", "by_duration:1h", False),
        ("share.isolation.level", "read_committed", True),
        ("share.isolation.level", "serializable", False),
    ],
)
def test_group_settings_are_bounded(name: str, value: str, allowed: bool) -> None:
    """A group stays within what the broker allows all groups."""
    if allowed:
        validator().validate(GROUP, "g", {name: value})
    else:
        with pytest.raises(KafkaError):
            validator().validate(GROUP, "g", {name: value})


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        (
            {"consumer.heartbeat.interval.ms": "1"},
            "consumer.heartbeat.interval.ms must be greater than or equal to"
            " group.consumer.min.heartbeat.interval.ms",
        ),
        (
            {"share.partition.max.record.locks": "4001"},
            "share.partition.max.record.locks must be less than or equal to"
            " group.share.max.partition.max.record.locks",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            "streams.num.standby.replicas must be less than or equal to"
            " group.streams.max.standby.replicas",
        ),
        (
            {"streams.assignment.interval.ms": "15001"},
            "streams.assignment.interval.ms must be less than or equal to"
            " group.streams.max.assignment.interval.ms",
        ),
    ],
)
def test_sentences_of_group_settings(configs: dict[str, str], sentence: str) -> None:
    """Are Kafka's."""
    with pytest.raises(KafkaError) as error:
        validator().validate(GROUP, "g", configs)
    assert error.value.message == sentence


def test_group_session_above_its_heartbeat() -> None:
    """Also when only one of the two is the group's own."""
    broker = config(
        group_consumer_min_session_timeout_ms="1000",
        group_consumer_min_heartbeat_interval_ms="1000",
    )
    ours = NodeConfigValidator(DynamicConfig(broker, lambda _: None))
    with pytest.raises(KafkaError) as error:
        ours.validate(GROUP, "g", {"consumer.session.timeout.ms": "5000"})
    sentence = "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
    assert error.value.message == sentence
    ours.validate(
        GROUP,
        "g",
        {"consumer.session.timeout.ms": "5000", "consumer.heartbeat.interval.ms": "4999"},
    )
