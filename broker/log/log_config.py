"""LogConfig: the settings of one partition's log, under Kafka's topic config names.

Attributes are Kafka's topic configs with underscores, defaults are Kafka's. Values are immutable: a
config change gives the log a new LogConfig. Parsing and validation of what users send is
`broker/config/topic_config.py`'s; `from_properties` here takes already valid text values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from kraftrio.wire.records.batch import Compression, TimestampType

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

_COMPRESSION_BY_NAME = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Topic-level settings that the log engine, cleaner and replica manager read."""

    cleanup_policy: str = "delete"
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False
    # No topic config: the broker's own bound against compression bombs.
    max_decompressed_batch_bytes: int = 64 * 1024 * 1024
    # Derived once, because the append path asks for them on every batch.
    compact: bool = dataclasses.field(init=False, default=False)
    delete: bool = dataclasses.field(init=False, default=True)
    log_append_time: bool = dataclasses.field(init=False, default=False)
    target_compression: Compression | None = dataclasses.field(init=False, default=None)
    roll_ms: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        policies = {policy.strip() for policy in self.cleanup_policy.split(",")}
        object.__setattr__(self, "compact", "compact" in policies)
        object.__setattr__(self, "delete", "delete" in policies)
        object.__setattr__(self, "log_append_time", self.message_timestamp_type == "LogAppendTime")
        # What waits in an active segment is not compacted: the lag has to end that too.
        lag_ms = self.max_compaction_lag_ms if self.compact else LONG_MAX
        object.__setattr__(self, "roll_ms", min(self.segment_ms, lag_ms))
        if self.compression_type != "producer":
            codec = _COMPRESSION_BY_NAME[self.compression_type]
            object.__setattr__(self, "target_compression", codec)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.log_append_time:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def compression_level(self) -> int | None:
        """The level to recompress with, where the codec has levels."""
        if self.target_compression is Compression.GZIP:
            return self.compression_gzip_level
        if self.target_compression is Compression.LZ4:
            return self.compression_lz4_level
        if self.target_compression is Compression.ZSTD:
            return self.compression_zstd_level
        return None

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], defaults: LogConfig | None = None
    ) -> LogConfig:
        """Apply valid topic configs (`segment.bytes`: `1000`) over `defaults`; skip other names."""
        values: dict[str, object] = {}
        for name, text in properties.items():
            attribute = name.replace(".", "_")
            kind = _SETTINGS.get(attribute)
            if kind == "int":
                values[attribute] = int(text)
            elif kind == "float":
                values[attribute] = float(text)
            elif kind == "bool":
                values[attribute] = text.strip().lower() == "true"
            elif kind == "str":
                values[attribute] = text.strip()
        return dataclasses.replace(defaults or cls(), **values)  # type: ignore[arg-type]  # by name


_SETTINGS = {field.name: field.type for field in dataclasses.fields(LogConfig) if field.init}
