"""Settings of groups and of client metrics subscriptions: names, defaults, rules.

Owns the sheets of both resource types (Kafka 4.3's; form in `config/types`; a group's default is
the broker's property in the last column). Called by the controller's validator and the config
handlers; `group_settings` is how they are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kraftrio.broker.config.config import BROKER_KEYS, BrokerConfig
from kraftrio.broker.config.group_checks import KINDS
from kraftrio.broker.config.topic_config import broker_value
from kraftrio.broker.config.types import ConfigKey, ConfigValue, PropertyError, read_sheet
from kraftrio.wire.errors import ErrorCode, KafkaError

GROUP_CONFIG_SHEET = """\
consumer.assignment.interval.ms | int | 1000 | 0.. | medium | group.consumer.assignment.interval.ms
    Least time between two assignments of the group.
consumer.heartbeat.interval.ms | int | 5000 | 1.. | medium | group.consumer.heartbeat.interval.ms
    Heartbeat interval given to the members.
consumer.session.timeout.ms | int | 45000 | 1.. | medium | group.consumer.session.timeout.ms
    A member silent for this long is removed.
share.assignment.interval.ms | int | 1000 | 0.. | medium | group.share.assignment.interval.ms
    Least time between two assignments of the share group.
share.auto.offset.reset | string | latest | | medium
    Where a share group starts: latest, earliest, or by_duration: with a duration.
share.delivery.count.limit | int | 5 | 2.. | medium | group.share.delivery.count.limit
    Deliveries of a record before it is given up.
share.heartbeat.interval.ms | int | 5000 | 1.. | medium | group.share.heartbeat.interval.ms
    Heartbeat interval given to the members of the share group.
share.isolation.level | string | read_uncommitted | read_committed,read_uncommitted | medium
    Whether a share group sees records of open transactions.
share.partition.max.record.locks | int | 2000 | 100.. | medium \
| group.share.partition.max.record.locks
    Most records of a partition held at a time.
share.record.lock.duration.ms | int | 30000 | 1000.. | medium | group.share.record.lock.duration.ms
    How long a share consumer holds a record.
share.renew.acknowledge.enable | boolean | true | | medium
    Whether a share consumer may hold a record for longer.
share.session.timeout.ms | int | 45000 | 1.. | medium | group.share.session.timeout.ms
    A member of the share group silent for this long is removed.
streams.assignment.interval.ms | int | 1000 | 0.. | medium | group.streams.assignment.interval.ms
    Least time between two assignments of the streams group.
streams.heartbeat.interval.ms | int | 5000 | 1.. | medium | group.streams.heartbeat.interval.ms
    Heartbeat interval given to the members of the streams group.
streams.initial.rebalance.delay.ms | int | 3000 | 0.. | medium \
| group.streams.initial.rebalance.delay.ms
    Wait for more members before the first assignment.
streams.num.standby.replicas | int | 0 | 0.. | medium | group.streams.num.standby.replicas
    Standby copies of each stateful task.
streams.session.timeout.ms | int | 45000 | 1.. | medium | group.streams.session.timeout.ms
    A member of the streams group silent for this long is removed.
"""

CLIENT_METRICS_SHEET = """\
interval.ms | int | 300000 | | medium
    Time between two pushes of a client.
match | list | | | medium
    Which clients push, as selector=pattern pairs; all when empty.
metrics | list | | | medium
    Prefixes of the names of the metrics to push.
"""

GROUP_KEYS: Final[dict[str, ConfigKey]] = {k.name: k for k in read_sheet(GROUP_CONFIG_SHEET)}
CLIENT_METRICS_KEYS: Final[dict[str, ConfigKey]] = {
    key.name: key for key in read_sheet(CLIENT_METRICS_SHEET)
}

_CLIENT_SELECTORS = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_DURATION = re.compile(
    r"by_duration:P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?\Z",
    re.IGNORECASE,
)
_MIN_INTERVAL_MS, _MAX_INTERVAL_MS = 100, 3_600_000


def bounds_of(name: str) -> tuple[str | None, str | None]:
    """The broker's properties that a group's setting must not be below, and not above."""
    kind, _, setting = name.partition(".")
    least = f"group.{kind}.min.{setting}"
    most = f"group.{kind}.max.{setting.removeprefix('num.')}"
    return least if least in BROKER_KEYS else None, most if most in BROKER_KEYS else None


def validate_group_configs(configs: Mapping[str, str], broker_config: BrokerConfig) -> None:
    """Check what a group sets itself; KafkaError INVALID_CONFIG when it is not allowed."""
    try:
        for name in configs:
            if name not in GROUP_KEYS:
                raise PropertyError(f"Unknown group config name: {name}")
        values = {
            name: key.parse(configs[name]) if name in configs else broker_value(key, broker_config)
            for name, key in GROUP_KEYS.items()
        }
        reset = values["share.auto.offset.reset"]
        if reset not in ("latest", "earliest") and not _DURATION.match(str(reset)):
            setting = "share.auto.offset.reset"
            raise PropertyError(  # as Kafka has it: a sentence within a sentence
                f"Invalid value {reset} for configuration {setting}: Invalid value `{reset}` for"
                f" configuration {setting}. The value must be either 'earliest', 'latest' or of the"
                " format 'by_duration:<PnDTnHnMn.nS>'."
            )
        for name, value in values.items():
            _check_bounds(name, value, broker_config)
        for kind in KINDS:
            _check_session(kind, values)
    except PropertyError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _check_bounds(name: str, value: ConfigValue, broker_config: BrokerConfig) -> None:
    """Hold a value between the broker's group.KIND.min.* and group.KIND.max.*."""
    least_name, most_name = bounds_of(name)
    least = None if least_name is None else broker_config.value(least_name)
    most = None if most_name is None else broker_config.value(most_name)
    if isinstance(value, int) and isinstance(least, int) and value < least:
        raise PropertyError(f"{name} must be greater than or equal to {least_name}")
    if isinstance(value, int) and isinstance(most, int) and value > most:
        raise PropertyError(f"{name} must be less than or equal to {most_name}")


def _check_session(kind: str, values: Mapping[str, ConfigValue]) -> None:
    session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
    session_ms, heartbeat_ms = values[session], values[heartbeat]
    assert isinstance(session_ms, int) and isinstance(heartbeat_ms, int)
    if session_ms <= heartbeat_ms:
        raise PropertyError(f"{session} must be greater than {heartbeat}")


def validate_client_metrics_configs(name: str, configs: Mapping[str, str]) -> None:
    """Check a client metrics subscription; KafkaError as Kafka gives it."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key_name in configs:
        if key_name not in CLIENT_METRICS_KEYS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key_name}"
            )
    try:
        values = {key: CLIENT_METRICS_KEYS[key].parse(text) for key, text in configs.items()}
    except PropertyError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    interval_ms = values.get("interval.ms", _MIN_INTERVAL_MS)
    assert isinstance(interval_ms, int)
    if not _MIN_INTERVAL_MS <= interval_ms <= _MAX_INTERVAL_MS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval_ms} for interval.ms, interval must be between "
            f"{_MIN_INTERVAL_MS} and {_MAX_INTERVAL_MS} (1 hour)",
        )
    patterns = values.get("match", [])
    assert isinstance(patterns, list)
    for pattern in patterns:
        _check_match(pattern)


def _check_match(pattern: str) -> None:
    selector, _, expression = pattern.partition("=")
    if selector.strip() not in _CLIENT_SELECTORS or not expression or "=" in expression:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
    try:
        re.compile(expression.strip())
    except re.error as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}"
        ) from error
