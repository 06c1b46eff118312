"""The options of the Spark data sources: names, defaults and refusals of Spark's `kafka` format.

Owns `ReadOptions` and `OffsetChoice`, made from the texts that Spark hands over. Rules:
1. Names are those of Spark's `kafka` format, whatever their case; an unknown one is refused with
   the nearest, a text that Spark would refuse with one sentence that names the option and what is
   allowed. `kafka.*` are settings of Kafka's consumer: what has a meaning here is taken, what Spark
   refuses is refused, the rest of Kafka's is ignored. No `repr` shows a password.
2. Where to start or end is chosen in Spark's order: a timestamp for all, timestamps by partition,
   offsets.
3. `pushFilters` is ours: it lets Spark hand conditions on topic, partition, offset and timestamp
   down to the source.

Pure. Called by: the data sources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from kraftrio.clients.arguments.nearest import nearest
from kraftrio.clients.config import ClientConfig, parse_bootstrap_servers
from kraftrio.clients.errors import ConfigError
from kraftrio.clients.security import SECRET_NAMES
from kraftrio.clients.spark.kafka_names import CONSUMER_NAMES
from kraftrio.wire.primitives import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2

_SOURCE_OPTIONS = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "includeHeaders",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix",
    "pushFilters",
)

# A mistyped address is to be reported within ten seconds, Spark's own time included.
REACH_TIMEOUT_MS: Final = 6_000

_STRATEGIES = ("assign", "subscribe", "subscribePattern")
_BOOLEANS = {"true": True, "false": False}
_DELAY_UNITS_MS = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "": 1,
}

_REFUSED_BY_SOURCE = {
    "auto.offset.reset": "use startingOffsets to say where to start",
    "key.deserializer": "keys are bytes; use DataFrame operations to deserialize them",
    "value.deserializer": "values are bytes; use DataFrame operations to deserialize them",
    "enable.auto.commit": "the query's checkpoint knows which offsets it has read",
    "interceptor.classes": "records are read as they are",
}

Options = Mapping[str, str]
T = TypeVar("T")


class IsolationLevel(int, Enum):
    """What of transactions is read, by Kafka's numbers."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class OffsetChoice:
    """Where to start or to end: exactly one field is given.

    `everywhere` is LATEST or EARLIEST; `offsets` may hold them too.
    """

    everywhere: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which partitions are read: exactly one field is given."""

    assign: tuple[TopicPartition, ...] | None = None
    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None

    def __str__(self) -> str:
        if self.assign is not None:
            return "Assign[" + ", ".join(map(partition_text, self.assign)) + "]"
        if self.subscribe is not None:
            return f"Subscribe[{', '.join(self.subscribe)}]"
        return f"SubscribePattern[{self.pattern}]"

    def wants(self, topic_partition: TopicPartition) -> bool:
        """Whether a partition that exists is among those read."""
        if self.assign is not None:
            return topic_partition in self.assign
        if self.subscribe is not None:
            return topic_partition.topic in self.subscribe
        assert self.pattern is not None
        return re.fullmatch(self.pattern, topic_partition.topic) is not None


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """How one range of offsets is read: what goes to the executors."""

    config: ClientConfig
    isolation_level: IsolationLevel
    include_headers: bool
    fail_on_data_loss: bool
    check_crcs: bool
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    poll_timeout_ms: int


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a query that reads."""

    fetch: FetchOptions
    topics: TopicChoice
    starting: OffsetChoice
    ending: OffsetChoice
    start_at_latest_if_none: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    num_retries: int
    retry_interval_ms: int
    push_filters: bool


def read_options(options: Options, *, streaming: bool) -> ReadOptions:
    """Check and take the options of a query that reads.

    Raises:
        ConfigError: one is missing, wrong, or not for this kind of query.
    """
    check_names(options, _SOURCE_OPTIONS, CONSUMER_NAMES)
    values = {name.lower(): text for name, text in options.items()}
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if name.lower() in values:
                raise ConfigError(f"{name} is not valid in streaming queries")
    topics = topic_choice(values)
    starting = offset_spec(values, "starting", LATEST if streaming else EARLIEST)
    ending = offset_spec(values, "ending", LATEST)
    if not streaming:
        _check_batch_offsets(starting, ending)
    strategy = values.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(
            f"startingOffsetsByTimestampStrategy must be error or latest, not {strategy!r}"
        )
    min_offsets = _positive(values, "minOffsetsPerTrigger")
    max_offsets = _positive(values, "maxOffsetsPerTrigger")
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise ConfigError(
            f"minOffsetsPerTrigger ({min_offsets}) is above maxOffsetsPerTrigger ({max_offsets})"
        )
    return ReadOptions(
        fetch=_fetch_options(values),
        topics=topics,
        starting=starting,
        ending=ending,
        start_at_latest_if_none=strategy == "latest",
        min_partitions=_positive(values, "minPartitions"),
        max_records_per_partition=_positive(values, "maxRecordsPerPartition"),
        max_offsets_per_trigger=max_offsets,
        min_offsets_per_trigger=min_offsets,
        max_trigger_delay_ms=_delay_ms(values.get("maxtriggerdelay", "15m"), "maxTriggerDelay"),
        num_retries=_whole(values, "fetchOffset.numRetries", 3, minimum=1),
        retry_interval_ms=_whole(values, "fetchOffset.retryIntervalMs", 1000, minimum=0),
        push_filters=boolean(values, "pushFilters", False),
    )


def check_names(options: Options, known: Iterable[str], kafka_names: Iterable[str]) -> None:
    """Refuse options that there are not.

    Args:
        known: those of the format.
        kafka_names: those below `kafka.`.

    Raises:
        ConfigError: an option is not known; names the one that is most like it.
    """
    names = [*known, *(f"kafka.{name}" for name in kafka_names)]
    folded = {name.lower() for name in names}
    for given in options:
        if given.lower() not in folded:
            near = nearest(given, sorted(names))
            meant = f"did you mean {near!r}?" if near else f"there are {', '.join(known)}, kafka.*"
            raise ConfigError(f"there is no option {given!r}: {meant}")


def kafka_settings(values: Options, refused: Mapping[str, str]) -> dict[str, str]:
    """Return the options below `kafka.` without that prefix.

    Raises:
        ConfigError: one is refused, or the bootstrap servers are missing.
    """
    settings = {
        name[6:]: text for name, text in values.items() if name.lower().startswith("kafka.")
    }
    for name in settings:
        if name in refused:
            raise ConfigError(f"Kafka option '{name}' is not supported: {refused[name]}")
    if "bootstrap.servers" not in settings:
        raise ConfigError("Option 'kafka.bootstrap.servers' must be specified")
    parse_bootstrap_servers(settings["bootstrap.servers"])
    return settings


def client_settings(settings: Mapping[str, str], types: Mapping[str, type]) -> dict[str, Any]:
    """Return Kafka's settings as the keyword arguments of our clients' configuration.

    Args:
        types: the fields that there are, with bool, int, float or str for each.

    Raises:
        ConfigError: a value does not fit its setting's type.
    """
    found: dict[str, Any] = {}
    for name, text in settings.items():
        field = name.replace(".", "_")
        kind = types.get(field)
        if kind is bool:
            found[field] = boolean({name: text}, name, False)
        elif kind is int:
            found[field] = _number(name, text)
        elif kind is not None:
            found[field] = text if field in SECRET_NAMES else text.strip()
    return found


def _fetch_options(values: Options) -> FetchOptions:
    settings = kafka_settings(values, _REFUSED_BY_SOURCE)
    types: dict[str, type] = {
        name: int if name.endswith("_ms") else str
        for name in ClientConfig.__dataclass_fields__
        if name != "allow_auto_create_topics"
    }
    config = ClientConfig(
        **{
            "client_id": "kraftrio-spark",
            "default_api_timeout_ms": REACH_TIMEOUT_MS,
            **client_settings(settings, types),
            "allow_auto_create_topics": False,
        }
    )
    config.check()
    return FetchOptions(
        config=config,
        isolation_level=isolation_level(settings),
        include_headers=boolean(values, "includeHeaders", False),
        fail_on_data_loss=boolean(values, "failOnDataLoss", True),
        check_crcs=boolean(settings, "check.crcs", True),
        fetch_min_bytes=_whole(settings, "fetch.min.bytes", 1, minimum=0),
        fetch_max_wait_ms=_whole(settings, "fetch.max.wait.ms", 500, minimum=0),
        max_partition_fetch_bytes=_whole(settings, "max.partition.fetch.bytes", 4 << 20, minimum=1),
        poll_timeout_ms=_whole(values, "kafkaConsumer.pollTimeoutMs", 120_000, minimum=1),
    )


def isolation_level(values: Options, prefix: str = "") -> IsolationLevel:
    """Take what of transactions is read.

    Raises:
        ConfigError: there is no such level.
    """
    level = values.get(f"{prefix}isolation.level", "read_uncommitted").strip()
    if level.upper() not in IsolationLevel.__members__:
        raise ConfigError(
            f"kafka.isolation.level must be read_uncommitted or read_committed, not {level!r}"
        )
    return IsolationLevel[level.upper()]


def topic_choice(values: Options, *, default: TopicChoice | None = None) -> TopicChoice:
    """Take assign, subscribe or subscribePattern.

    Raises:
        ConfigError: there is none of them (and no default), or two, or it says nothing.
    """
    given = [name for name in _STRATEGIES if name.lower() in values]
    if not given and default is not None:
        return default
    if len(given) != 1:
        count = "One" if not given else "Only one"
        raise ConfigError(
            f"{count} of the options {', '.join(_STRATEGIES)} must be given, and"
            f" {' and '.join(given) + ' are' if given else 'none is'}"
        )
    name = given[0]
    text = values[name.lower()].strip()
    if name == "subscribe":
        topics = tuple(part.strip() for part in text.split(",") if part.strip())
        if not topics:
            raise ConfigError(f"subscribe names no topic: {text!r}")
        return TopicChoice(subscribe=topics)
    if name == "subscribePattern":
        if not text:
            raise ConfigError("subscribePattern is empty")
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(f"subscribePattern is not a pattern: {error}") from None
        return TopicChoice(pattern=text)
    return TopicChoice(assign=_assigned(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    example = '{"topicA":[0,1],"topicB":[0,1]}'
    found = _json(text, "assign", example)
    wanted: dict[TopicPartition, None] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not all(map(_is_whole, partitions)):
            raise ConfigError(f"assign must be like {example}, not {text}")
        wanted.update(dict.fromkeys(TopicPartition(topic, number) for number in partitions))
    if not wanted:
        raise ConfigError(f"assign names no partition: {text}")
    return tuple(wanted)


def offset_spec(values: Options, side: str, default: int) -> OffsetChoice:
    """Take where to start or to end.

    Args:
        side: "starting" or "ending".

    Raises:
        ConfigError: the text is neither earliest nor latest nor such a map.
    """
    name = f"{side}Timestamp"
    if name.lower() in values:
        return OffsetChoice(timestamp_ms=_number(name, values[name.lower()]))
    name = f"{side}OffsetsByTimestamp"
    if name.lower() in values:
        example = '{"topicA":{"0":1000,"1":1000},"topicB":{"0":1000,"1":1000}}'
        return OffsetChoice(timestamps_ms=_by_partition(values[name.lower()], name, example))
    name = f"{side}Offsets"
    text = values.get(name.lower())
    if text is None:
        return OffsetChoice(everywhere=default)
    if text.strip().lower() == "latest":
        return OffsetChoice(everywhere=LATEST)
    if text.strip().lower() == "earliest":
        return OffsetChoice(everywhere=EARLIEST)
    offsets = _by_partition(
        text, name, 'earliest, latest, or like {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    )
    for topic_partition, offset in offsets.items():
        if offset < EARLIEST:
            raise ConfigError(f"{name}: {partition_text(topic_partition)} cannot be at {offset}")
    return OffsetChoice(offsets=offsets)


def _check_batch_offsets(starting: OffsetChoice, ending: OffsetChoice) -> None:
    if starting.everywhere == LATEST:
        raise ConfigError("startingOffsets cannot be latest in batch queries")
    if ending.everywhere == EARLIEST:
        raise ConfigError("endingOffsets cannot be earliest in batch queries")
    for topic_partition, offset in (starting.offsets or {}).items():
        if offset == LATEST:
            raise ConfigError(
                f"startingOffsets of {partition_text(topic_partition)} cannot be latest (-1) in"
                " batch queries"
            )
    for topic_partition, offset in (ending.offsets or {}).items():
        if offset == EARLIEST:
            raise ConfigError(
                f"endingOffsets of {partition_text(topic_partition)} cannot be earliest (-2) in"
                " batch queries"
            )
    for what, starts, ends in (
        ("offset", starting.offsets, ending.offsets),
        ("timestamp", starting.timestamps_ms, ending.timestamps_ms),
    ):
        if starts is None or ends is None:
            continue
        if starts.keys() != ends.keys():
            differing = ", ".join(map(partition_text, sorted(starts.keys() ^ ends.keys())))
            raise ConfigError(
                f"the starting and ending {what}s must be of the same partitions, but only one of"
                f" them names {differing}"
            )
        for topic_partition, start in starts.items():
            end = ends[topic_partition]
            if start > end and start >= 0 and end >= 0:
                raise ConfigError(
                    f"{partition_text(topic_partition)}: the starting {what} {start} is above the"
                    f" ending {what} {end}"
                )


def _by_partition(text: str, name: str, example: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json(text, name, example).items():
        if not isinstance(numbers, dict):
            raise ConfigError(_unlike(name, example, text))
        for partition, number in numbers.items():
            if not partition.isascii() or not partition.isdigit() or not _is_whole(number):
                raise ConfigError(_unlike(name, example, text))
            found[TopicPartition(topic, int(partition))] = number
    return found


def _json(text: str, name: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(_unlike(name, example, text))
    return found


def _unlike(name: str, example: str, text: str) -> str:
    allowed = example if "like" in example else f"like {example}"
    return f"{name} must be {allowed}, not {text}"


def partition_text(topic_partition: TopicPartition) -> str:
    """Name a partition as Kafka does."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def boolean(values: Options, name: str, default: bool) -> bool:
    """Take an option that is true or false.

    Raises:
        ConfigError: it is neither.
    """
    text = values.get(name.lower())
    if text is None:
        return default
    found = _BOOLEANS.get(text.strip().lower())
    if found is None:
        raise ConfigError(f"{name} must be true or false, not {text!r}")
    return found


def _positive(values: Options, name: str) -> int | None:
    if name.lower() not in values:
        return None
    return _whole(values, name, 0, minimum=1)


def _whole(values: Options, name: str, default: int, *, minimum: int) -> int:
    text = values.get(name.lower())
    if text is None:
        return default
    number = _number(name, text)
    if number < minimum:
        raise ConfigError(f"{name} must be at least {minimum}, not {number}")
    return number


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name} must be a whole number, not {text!r}") from None


def _delay_ms(text: str, name: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _DELAY_UNITS_MS:
        units = ", ".join(filter(None, _DELAY_UNITS_MS))
        raise ConfigError(
            f"{name} must be a number of milliseconds, or a time like 15m with one of the units"
            f" {units}, not {text!r}"
        )
    return int(int(match[1]) * _DELAY_UNITS_MS[match[2]])


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
