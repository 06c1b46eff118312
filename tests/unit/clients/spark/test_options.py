"""The options of the Spark data sources: what is taken, what is refused and how that is said."""

from __future__ import annotations

import pytest

from kraftrio.clients.config import ClientConfig, ProducerConfig
from kraftrio.clients.errors import ConfigError
from kraftrio.clients.spark.kafka_names import CONSUMER_NAMES, PRODUCER_NAMES
from kraftrio.clients.spark.options import (
    EARLIEST,
    LATEST,
    IsolationLevel,
    OffsetChoice,
    ReadOptions,
    TopicChoice,
    read_options,
)
from kraftrio.wire.primitives import TopicPartition

NEEDED = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a"}


def batch(**options: str) -> ReadOptions:
    """Take the options of a batch query beside those it must have."""
    return read_options(NEEDED | options, streaming=False)


def test_defaults() -> None:
    """A batch query reads everything, a stream what comes from now on."""
    options = batch()
    assert options.topics == TopicChoice(subscribe=("a",))
    assert options.starting == OffsetChoice(everywhere=EARLIEST)
    assert options.ending == OffsetChoice(everywhere=LATEST)
    assert options.fetch.isolation_level is IsolationLevel.READ_UNCOMMITTED
    assert options.fetch.fail_on_data_loss
    assert not options.fetch.include_headers
    assert not options.fetch.config.allow_auto_create_topics
    assert options.min_partitions is options.max_offsets_per_trigger is None
    assert options.max_trigger_delay_ms == 15 * 60_000
    assert read_options(NEEDED, streaming=True).starting == OffsetChoice(everywhere=LATEST)


def test_names_in_any_case() -> None:
    """Spark hands names over in lower case, people write them in any."""
    for name in ("includeHeaders", "includeheaders", "INCLUDEHEADERS"):
        assert batch(**{name: " True "}).fetch.include_headers


def test_kafka_settings() -> None:
    """Settings of Kafka's consumer that have a meaning here are taken, unknown ones ignored."""
    fetch = batch(
        **{
            "kafka.isolation.level": "read_committed",
            "kafka.request.timeout.ms": "7000",
            "kafka.client.id": "me",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.fetch.max.wait.ms": "20",
            "kafka.check.crcs": "false",
            "kafka.max.poll.records": "5000",
            "kafka.allow.auto.create.topics": "true",
            "kafka.security.protocol": "PLAINTEXT",
        }
    ).fetch
    assert fetch.isolation_level is IsolationLevel.READ_COMMITTED
    assert (fetch.config.request_timeout_ms, fetch.config.client_id) == (7000, "me")
    assert (fetch.max_partition_fetch_bytes, fetch.fetch_max_wait_ms) == (1000, 20)
    assert not fetch.check_crcs
    assert not fetch.config.allow_auto_create_topics


def test_settings_of_security() -> None:
    """They are taken as they are, blanks at the end of a password too, and shown nowhere."""
    options = batch(
        **{
            "kafka.security.protocol": " SSL ",
            "kafka.ssl.truststore.location": "/trust.jks",
            "kafka.ssl.truststore.password": "hush-hush ",
            "kafka.ssl.keymanager.algorithm": "PKIX",
        }
    )
    config = options.fetch.config
    assert (config.security_protocol, config.ssl_truststore_location) == ("SSL", "/trust.jks")
    assert config.ssl_truststore_password == "hush-hush "
    assert "hush-hush" not in repr(options)


def test_where_to_start_by_preference() -> None:
    """A timestamp for all goes before timestamps by partition, these before offsets."""
    both = {"startingOffsets": '{"a":{"0":5,"1":-2}}'}
    offsets = {TopicPartition("a", 0): 5, TopicPartition("a", 1): EARLIEST}
    assert batch(**both).starting == OffsetChoice(offsets=offsets)
    both["startingOffsetsByTimestamp"] = '{"a":{"0":1000}}'
    by_time = OffsetChoice(timestamps_ms={TopicPartition("a", 0): 1000})
    assert batch(**both).starting == by_time
    both["startingTimestamp"] = " 2000 "
    assert batch(**both).starting == OffsetChoice(timestamp_ms=2000)


def test_assign_and_pattern() -> None:
    """Partitions may be named, or topics be matched as a whole."""
    options = dict(NEEDED)
    del options["subscribe"]
    chosen = read_options(options | {"assign": '{"a":[0,2],"b":[1]}'}, streaming=False).topics
    assert chosen.assign == (
        TopicPartition("a", 0),
        TopicPartition("a", 2),
        TopicPartition("b", 1),
    )
    assert chosen.wants(TopicPartition("a", 2))
    assert not chosen.wants(TopicPartition("b", 0))
    pattern = read_options(options | {"subscribePattern": "a.?"}, streaming=False).topics
    assert pattern.wants(TopicPartition("ab", 5))
    assert not pattern.wants(TopicPartition("abc", 0))


@pytest.mark.parametrize(
    ("text", "delay_ms"), [("15m", 900_000), ("500ms", 500), ("2 h", 7_200_000), ("3", 3)]
)
def test_delays(text: str, delay_ms: int) -> None:
    """Delays are written as Spark reads them."""
    assert batch(maxTriggerDelay=text).max_trigger_delay_ms == delay_ms


REFUSED = [
    ({"startingOffsets": "soon"}, "startingOffsets must be earliest, latest, or like"),
    ({"startingOffsets": '{"a":[1]}'}, "startingOffsets must be earliest, latest, or like"),
    ({"startingOffsets": '{"a":{"x":1}}'}, "startingOffsets must be earliest, latest, or like"),
    ({"startingOffset": "latest"}, "no option 'startingOffset': did you mean 'startingOffsets'?"),
    ({"kafka.fetch.min.byte": "1"}, "did you mean 'kafka.fetch.min.bytes'?"),
    ({"kafka.acks": "all"}, "no option 'kafka.acks'"),
    ({"xyzzy": "1"}, "no option 'xyzzy': there are assign, subscribe, subscribePattern, "),
    ({"startingOffsets": '{"a":{"0":-3}}'}, "a-0 cannot be at -3"),
    ({"startingOffsets": '{"a":{"0":-1}}'}, "a-0 cannot be latest"),
    ({"endingOffsets": "earliest"}, "cannot be earliest in batch queries"),
    ({"endingOffsets": '{"a":{"0":-2}}'}, "a-0 cannot be earliest"),
    (
        {"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"a":{"0":3}}'},
        "a-0: the starting offset 9 is above the ending offset 3",
    ),
    (
        {"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"a":{"1":30}}'},
        "but only one of them names a-0, a-1",
    ),
    ({"startingTimestamp": "yesterday"}, "startingTimestamp must be a whole number"),
    ({"startingOffsetsByTimestampStrategy": "never"}, "must be error or latest"),
    ({"minPartitions": "-1"}, "minPartitions must be at least 1"),
    (
        {"maxTriggerDelay": "long"},
        "like 15m with one of the units us, ms, s, m, min, h, d",
    ),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "is above maxOffsetsPerTrigger"),
    ({"kafka.isolation.level": "dirty"}, "must be read_uncommitted or read_committed"),
    ({"kafka.request.timeout.ms": "1s"}, "request.timeout.ms must be a whole number"),
    ({"kafka.value.deserializer": "x"}, "Kafka option 'value.deserializer' is not supported"),
    ({"kafka.security.protocol": "TLS"}, "security_protocol must be one of PLAINTEXT, SSL"),
    (
        {"kafka.security.protocol": "SSL", "kafka.ssl.keystore.type": "PFX"},
        "ssl_keystore_type is PFX",
    ),
    ({"subscribe": " , "}, "subscribe names no topic"),
    ({"subscribePattern": "a"}, "subscribe and subscribePattern are"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_refusals(options: dict[str, str], sentence: str) -> None:
    """What is wrong is said with the option's name."""
    with pytest.raises(ConfigError) as caught:
        batch(**options)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_streams_do_not_end(name: str) -> None:
    """A stream refuses an option for its end."""
    with pytest.raises(ConfigError, match=f"{name} is not valid in streaming queries"):
        read_options(NEEDED | {name: "1"}, streaming=True)


def test_what_must_be_given() -> None:
    """Bootstrap servers and topics are needed."""
    with pytest.raises(ConfigError, match=r"'kafka.bootstrap.servers' must be specified"):
        read_options({"subscribe": "a"}, streaming=False)
    with pytest.raises(ConfigError, match="must be given, and none is"):
        read_options({"kafka.bootstrap.servers": "a:1"}, streaming=False)


def test_kafkas_settings_without_effect_are_taken() -> None:
    """A query moves here from Spark's own format by one word; what our client has is known, too."""
    options = {"kafka.max.poll.records": "5000", "Kafka.Group.Id": "g", "groupIdPrefix": "p"}
    read_options(NEEDED | options, streaming=True)
    ours = {name.replace("_", ".") for name in ClientConfig.__dataclass_fields__}
    assert ours - CONSUMER_NAMES == set()
    ours = {name.replace("_", ".") for name in ProducerConfig.__dataclass_fields__}
    assert ours - PRODUCER_NAMES == {"partitioner", "allow.auto.create.topics"}


def test_a_broker_that_cannot_be_reached_is_reported_soon() -> None:
    """Six seconds here leave Spark some of the ten that a user waits."""
    assert read_options(NEEDED, streaming=False).fetch.config.default_api_timeout_ms == 6000
    patient = NEEDED | {"kafka.default.api.timeout.ms": "90000"}
    assert read_options(patient, streaming=False).fetch.config.default_api_timeout_ms == 90000
