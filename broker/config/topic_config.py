"""Settings of topics: their names, defaults, rules, and the settings of one partition's log.

Owns the sheet of topic settings (Kafka 4.3's; form in `config/types`) and the rules between them.
A topic's setting comes from the topic itself, else from the broker's property in the last column
of the sheet, as it is in force now. Called by the replica manager (`log_config`), the controller's
validator (`config/validator`) and the config handlers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.types import (
    ConfigKey,
    ConfigValue,
    PropertyError,
    format_value,
    invalid,
    parse_value,
    read_sheet,
)
from kraftrio.broker.log.log_config import LogConfig
from kraftrio.wire.errors import ErrorCode, KafkaError

TOPIC_SHEET = """\
cleanup.policy | list | delete | compact,delete | medium | log.cleanup.policy
    What happens to old segments: delete, compact, both, or nothing.
compression.gzip.level | int | -1 | -1,1..9 | medium | compression.gzip.level
    Level used when the broker itself compresses with gzip.
compression.lz4.level | int | 9 | 1..17 | medium | compression.lz4.level
    Level used when the broker itself compresses with lz4.
compression.type | string | producer | uncompressed,zstd,lz4,snappy,gzip,producer | medium \
| compression.type
    Codec of stored batches; producer keeps what the producer chose.
compression.zstd.level | int | 3 | -131072..22 | medium | compression.zstd.level
    Level used when the broker itself compresses with zstd.
delete.retention.ms | long | 86400000 | 0.. | medium | log.cleaner.delete.retention.ms
    How long delete markers stay in a compacted topic.
file.delete.delay.ms | long | 60000 | 0.. | medium | log.segment.delete.delay.ms
    Wait before a deleted segment's files leave the disk.
flush.messages | long | 9223372036854775807 | 1.. | medium | log.flush.interval.messages
    Records after which a log is forced to disk.
flush.ms | long | 9223372036854775807 | 0.. | medium | log.flush.interval.ms
    Age at which unwritten records are forced to disk.
follower.replication.throttled.replicas | list | | | medium
    Replicas whose fetching may be slowed down, as partition:broker pairs, or * for all.
index.interval.bytes | int | 4096 | 0.. | medium | log.index.interval.bytes
    Bytes of log between two entries of the offset index.
internal.segment.bytes | int | null | 1.. | medium | internal
    Largest segment file of a partition, below what segment.bytes allows; for tests and Streams.
leader.replication.throttled.replicas | list | | | medium
    Replicas whose serving may be slowed down, as partition:broker pairs, or * for all.
local.retention.bytes | long | -2 | -2.. | medium | log.local.retention.bytes
    Size kept locally with tiered storage; -2 follows retention.bytes.
local.retention.ms | long | -2 | -2.. | medium | log.local.retention.ms
    Age of segments kept locally with tiered storage; -2 follows retention.ms.
max.compaction.lag.ms | long | 9223372036854775807 | 1.. | medium \
| log.cleaner.max.compaction.lag.ms
    Time after which a record must be compacted.
max.message.bytes | int | 1048588 | 0.. | medium | message.max.bytes
    Largest batch of records accepted.
message.timestamp.after.max.ms | long | 3600000 | 0.. | medium | log.message.timestamp.after.max.ms
    How far a record's time may lie ahead of the broker's.
message.timestamp.before.max.ms | long | 9223372036854775807 | 0.. | medium \
| log.message.timestamp.before.max.ms
    How far a record's time may lie behind the broker's.
message.timestamp.type | string | CreateTime | CreateTime,LogAppendTime | medium \
| log.message.timestamp.type
    Whose clock stamps a record: CreateTime or LogAppendTime.
min.cleanable.dirty.ratio | double | 0.5 | 0..1 | medium | log.cleaner.min.cleanable.ratio
    Share of uncompacted log at which compaction starts.
min.compaction.lag.ms | long | 0 | 0.. | medium | log.cleaner.min.compaction.lag.ms
    Time during which a record is not compacted.
min.insync.replicas | int | 1 | 1.. | medium | min.insync.replicas
    Replicas that must be in sync for acks=all writes.
preallocate | boolean | false | | medium | log.preallocate
    Reserve the whole file when a segment is created.
remote.log.copy.disable | boolean | false | | medium
    Stop copying segments to remote storage.
remote.log.delete.on.disable | boolean | false | | medium
    Delete the remote segments when remote storage is turned off.
remote.storage.enable | boolean | false | | medium
    Keep old segments in remote storage; not supported here.
retention.bytes | long | -1 | | medium | log.retention.bytes
    Size of a partition beyond which its oldest segments go; -1 means no limit.
retention.ms | long | 604800000 | -1.. | medium | log.retention.ms
    Age at which a segment is deleted; -1 means never.
segment.bytes | int | 1073741824 | 1048576.. | medium | log.segment.bytes
    Largest segment file of a partition.
segment.index.bytes | int | 10485760 | 4.. | medium | log.index.size.max.bytes
    Largest offset index of a segment.
segment.jitter.ms | long | 0 | 0.. | medium | log.roll.jitter.ms
    Random time taken off segment.ms.
segment.ms | long | 604800000 | 1.. | medium | log.roll.ms
    Age at which a segment is rolled.
unclean.leader.election.enable | boolean | false | | medium | unclean.leader.election.enable
    Let a replica outside the ISR lead, at the price of lost data.
"""

INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"

TOPIC_KEYS: Final[dict[str, ConfigKey]] = {key.name: key for key in read_sheet(TOPIC_SHEET)}

_THROTTLED = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
)
_REPLICA = re.compile(r"[0-9]+:[0-9]+\Z")


def broker_value(key: ConfigKey, broker_config: BrokerConfig) -> ConfigValue:
    """Return a topic's or group's setting as the broker's properties have it."""
    if not key.synonym:
        return key.default
    value: ConfigValue = getattr(broker_config, key.synonym.replace(".", "_"))
    return value


def broker_default(key: ConfigKey, broker_config: BrokerConfig) -> str | None:
    """The same, as it is written."""
    return format_value(broker_value(key, broker_config))


def effective_topic_configs(
    overrides: Mapping[str, str], broker_config: BrokerConfig
) -> dict[str, str | None]:
    """Return every setting of a topic as it is in force."""
    return {
        name: overrides.get(name, broker_default(key, broker_config))
        for name, key in TOPIC_KEYS.items()
    }


@lru_cache(maxsize=4)
def _default_log_config(broker_config: BrokerConfig) -> LogConfig:
    defaults = effective_topic_configs({}, broker_config)
    config = LogConfig.from_properties(
        {name: text for name, text in defaults.items() if text is not None}
    )
    return replace(
        config, max_decompressed_batch_bytes=broker_config.kraftrio_max_decompressed_batch_bytes
    )


def log_config(topic_overrides: Mapping[str, str], broker_config: BrokerConfig) -> LogConfig:
    """Return the settings of a topic's logs.

    Args:
        topic_overrides: what the topic sets itself, already validated.
        broker_config: the broker's settings in force (see `dynamic_config`).
    """
    defaults = _default_log_config(broker_config)
    if not topic_overrides:
        return defaults
    config = LogConfig.from_properties(topic_overrides, defaults)
    smaller = topic_overrides.get(INTERNAL_SEGMENT_BYTES)
    return config if smaller is None else replace(config, segment_bytes=int(smaller))


def _parse_throttled(key: ConfigKey, text: str) -> list[str]:
    items = parse_value(key.type, key.name, text)
    assert isinstance(items, list)
    if items in ([], ["*"]) or all(_REPLICA.match(item) for item in items):
        return items
    raise invalid(
        key.name,
        f"[{', '.join(items)}]",
        f"{key.name} must be the literal '*' or a list of replicas in the following format: "
        f"[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    )


def parse_topic_configs(configs: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Parse the settings of a topic, each by its rule; PropertyError where one is not allowed.

    Names come first: an unknown one is what is said of settings that are wrong otherwise, too.
    """
    for name in configs:
        if name not in TOPIC_KEYS:
            raise PropertyError(f"Unknown topic config name: {name}")
    values: dict[str, ConfigValue] = {}
    for name, text in configs.items():
        key = TOPIC_KEYS[name]
        if name in _THROTTLED:
            values[name] = _parse_throttled(key, text)
        else:
            values[name] = key.parse(text)
    return values


def validate_topic_configs(configs: Mapping[str, str], broker_config: BrokerConfig) -> None:
    """Check what a topic sets itself, alone and together with the broker's defaults.

    Raises:
        KafkaError: INVALID_CONFIG, with the sentence for the client.
    """
    try:
        values = parse_topic_configs(configs)
        effective = {
            name: values[name] if name in values else key.parse(broker_default(key, broker_config))
            for name, key in TOPIC_KEYS.items()
        }
    except PropertyError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    shortest, longest = effective["min.compaction.lag.ms"], effective["max.compaction.lag.ms"]
    assert isinstance(shortest, int) and isinstance(longest, int)
    if shortest > longest:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > "
            f"max.compaction.lag.ms ({longest})",
        )
    if effective["remote.storage.enable"]:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage.",
        )
