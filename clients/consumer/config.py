"""The settings of a consumer: the Java client's names in snake_case, with its defaults.

Owns `ConsumerConfig`, its TypedDict `ConsumerSettings`, and `OffsetReset`, which is what
`auto_offset_reset` means. A wrong value is a `ConfigError` with one sentence that names it.

Called by: `consumer`. Kafka documentation, "Consumer Configs"; KIP-848, KIP-1106 (by_duration).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from kraftrio.clients.arguments.times import Milliseconds
from kraftrio.clients.config import ClientConfig, ClientSettings, require_choice, require_text
from kraftrio.clients.consumer.membership.assignors import ASSIGNORS, Assignor
from kraftrio.clients.errors import ConfigError

IsolationLevel = Literal["read_uncommitted", "read_committed"]
GroupProtocol = Literal["classic", "consumer"]

Strategy = str | Assignor | list[str | Assignor] | tuple[str | Assignor, ...]

_DURATION = re.compile(
    r"by_duration:P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


class ResetTo(Enum):
    """Where a partition without a valid position begins."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    TIME = "by_duration"


class OffsetReset(NamedTuple):
    """What `auto_offset_reset` says; `ago_ms` goes with TIME."""

    to: ResetTo
    ago_ms: int = 0


def parse_offset_reset(text: str) -> OffsetReset:
    """Read `auto_offset_reset`: earliest, latest, none, or by_duration:<ISO 8601 duration>.

    Raises:
        ConfigError: it is something else.
    """
    if text in ("earliest", "latest", "none"):
        return OffsetReset(ResetTo(text))
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    parts = {} if found is None else {name: v for name, v in found.groupdict().items() if v}
    if not parts:
        raise ConfigError(
            "auto_offset_reset must be earliest, latest, none or by_duration:<ISO 8601 duration>"
            f" such as by_duration:PT1H, not {text!r}"
        )
    units_s = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
    ago_s = sum(float(value) * units_s[name] for name, value in parts.items())
    return OffsetReset(ResetTo.TIME, int(ago_s * 1000))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The settings of a consumer."""

    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: GroupProtocol = "classic"
    group_remote_assignor: str | None = None  # None: the broker's first
    partition_assignment_strategy: Strategy = (
        "range",
        "cooperative-sticky",
    )
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    auto_offset_reset: str = "latest"
    isolation_level: IsolationLevel = "read_uncommitted"
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1_048_576
    check_crcs: bool = True
    client_rack: str = ""
    exclude_internal_topics: bool = True

    @property
    def has_consumer_protocol(self) -> bool:
        """Whether the group's coordinator shares partitions out, and not a member (KIP-848)."""
        return self.group_protocol == "consumer"

    @property
    def is_read_committed(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.isolation_level == "read_committed"

    @property
    def offset_reset(self) -> OffsetReset:
        """`auto_offset_reset`, read."""
        return parse_offset_reset(self.auto_offset_reset)

    def make_assignors(self) -> list[Assignor]:
        """Make the assignors of `partition_assignment_strategy`."""
        given = self.partition_assignment_strategy
        chosen = list(given) if isinstance(given, list | tuple) else [given]
        made: list[Assignor] = []
        for each in chosen:
            if not isinstance(each, str):
                made.append(each)
            elif each in ASSIGNORS:
                made.append(ASSIGNORS[each]())
            else:
                raise ConfigError(
                    f"partition_assignment_strategy must be of {', '.join(ASSIGNORS)}, not {each!r}"
                )
        if not made:
            raise ConfigError("partition_assignment_strategy names no assignor")
        if len({assignor.name for assignor in made}) < len(made):
            raise ConfigError("partition_assignment_strategy names an assignor twice")
        return made

    def check(self) -> None:
        """Check all values.

        Raises:
            ConfigError: one is wrong.
        """
        super(ConsumerConfig, self).check()  # slots make another class
        for name, minimum in _MINIMA.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
                raise ConfigError(
                    f"{name} must be a whole number of at least {minimum}, not {value!r}"
                )
        require_choice("group_protocol", self.group_protocol, ("classic", "consumer"))
        for name in ("group_id", "group_instance_id", "group_remote_assignor"):
            value = getattr(self, name)
            if value == "":
                raise ConfigError(f"{name} must be a string that is not empty")
            if value is not None:
                require_text(name, value)
        require_text("client_rack", self.client_rack)
        if self.group_instance_id is not None and self.group_id is None:
            raise ConfigError("group_instance_id needs a group_id")
        require_choice(
            "isolation_level", self.isolation_level, ("read_uncommitted", "read_committed")
        )
        parse_offset_reset(self.auto_offset_reset)
        self.make_assignors()
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError("heartbeat_interval_ms must be below session_timeout_ms")


# What only one of the protocols has: in the other the broker decides, or nobody.
_SETTINGS_OF_PROTOCOLS: Mapping[str, tuple[str, ...]] = {
    "classic": ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms"),
    "consumer": ("group_remote_assignor",),
}


def check_protocol_settings(settings: ConsumerSettings) -> None:
    """Check that what a program sets has a meaning in the group protocol that it has chosen.

    Raises:
        ConfigError: a setting has none.
    """
    chosen = settings.get("group_protocol", "classic")
    for protocol, names in _SETTINGS_OF_PROTOCOLS.items():
        for name in names:
            if chosen in _SETTINGS_OF_PROTOCOLS and protocol != chosen and name in settings:
                raise ConfigError(f'{name} cannot be set with group_protocol="{chosen}"')


_MINIMA = {
    "session_timeout_ms": 1,
    "heartbeat_interval_ms": 1,
    "max_poll_interval_ms": 1,
    "max_poll_records": 1,
    "fetch_min_bytes": 0,
    "fetch_max_bytes": 1,
    "max_partition_fetch_bytes": 1,
}


class ConsumerSettings(ClientSettings, total=False):
    """The keyword arguments of `Consumer`; see `ConsumerConfig`."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    partition_assignment_strategy: Strategy
    session_timeout_ms: Milliseconds
    heartbeat_interval_ms: Milliseconds
    max_poll_interval_ms: Milliseconds
    max_poll_records: int
    enable_auto_commit: bool
    auto_commit_interval_ms: Milliseconds
    auto_offset_reset: str
    isolation_level: IsolationLevel
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: Milliseconds
    max_partition_fetch_bytes: int
    check_crcs: bool
    client_rack: str
    exclude_internal_topics: bool
