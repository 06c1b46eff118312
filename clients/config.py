"""The settings of the clients: the Java clients' names in snake_case, with their defaults.

Owns `ClientConfig`, which all clients share, `ProducerConfig` and `AdminConfig`; each has a
TypedDict beside it, so that `Producer("localhost:9092", linger_ms=10)` is checked by type checkers.
Times are milliseconds, or a `timedelta`. A wrong value is a `ConfigError` with one sentence that
names the setting.

Called by: the clients when they are made. Kafka documentation, "Producer Configs", "Admin Configs".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal, TypeVar

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.arguments.nearest import did_you_mean
from kraftrio.clients.arguments.times import (
    Duration,
    Milliseconds,
    timeout_or_default,
    whole_milliseconds,
)
from kraftrio.clients.arguments.values import MAX_INT32, MAX_INT64, text
from kraftrio.clients.errors import ConfigError
from kraftrio.clients.security import SecurityConfig, SecuritySettings
from kraftrio.net.security_protocol import SecurityProtocol
from kraftrio.wire.records.compression import GZIP_LEVELS, LZ4_LEVELS, ZSTD_LEVELS, Compression

Acks = Literal["all", -1, 0, 1, "0", "1", "-1"]
CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]

_MAX_PORT = 65535
_USUAL_PORT = 9092
# Settings that are longs in the Java clients; all other numbers fit 32 bits, as requests hold them.
_LONGS = frozenset(
    {
        "metadata_max_age_ms",
        "metadata_max_idle_ms",
        "metadata_recovery_rebootstrap_trigger_ms",
        "reconnect_backoff_ms",
        "reconnect_backoff_max_ms",
        "retry_backoff_ms",
        "retry_backoff_max_ms",
        "connections_max_idle_ms",
        "socket_connection_setup_timeout_ms",
        "socket_connection_setup_timeout_max_ms",
        "linger_ms",
        "buffer_memory",
        "max_block_ms",
        "partitioner_availability_timeout_ms",
    }
)

DEFAULT_DELIVERY_TIMEOUT_MS = 120_000
_DEFAULT_LINGER_MS = 5
_FIRST_CONCURRENT_BACKOFF_MS = 5
_DEFAULT_REQUEST_TIMEOUT_MS = 30_000

C = TypeVar("C", bound="ClientConfig")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(SecurityConfig):
    """The settings of every client."""

    bootstrap_servers: str | Sequence[str]
    client_id: str = ""
    metadata_max_age_ms: int = 300_000
    metadata_recovery_strategy: Literal["rebootstrap", "none"] = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    request_timeout_ms: int = _DEFAULT_REQUEST_TIMEOUT_MS
    default_api_timeout_ms: int = 60_000
    connections_max_idle_ms: int = 540_000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    allow_auto_create_topics: bool = True

    def call_timeout_s(self, timeout_ms: Duration | None) -> float:
        """How long a call may take, in seconds; None: default_api_timeout_ms.

        Raises:
            TypeError, ValueError: that is no time.
        """
        given_ms = timeout_or_default("timeout_ms", timeout_ms, self.default_api_timeout_ms)
        return given_ms / 1000

    def check(self) -> None:
        """Check all values.

        Raises:
            ConfigError: one is wrong.
        """
        parse_bootstrap_servers(self.bootstrap_servers)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int":
                _require_int(field.name, value, minimum=0 if field.name.endswith("_ms") else None)
            elif field.type == "bool" and not isinstance(value, bool):
                raise ConfigError(f"{field.name} must be True or False, not {value!r}")
        require_text("client_id", self.client_id)
        require_choice(
            "metadata_recovery_strategy", self.metadata_recovery_strategy, ("rebootstrap", "none")
        )
        self.check_security()


class ClientSettings(SecuritySettings, total=False):
    """The keyword arguments that every client takes; see `ClientConfig`."""

    client_id: str
    metadata_max_age_ms: Milliseconds
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    metadata_recovery_rebootstrap_trigger_ms: Milliseconds
    reconnect_backoff_ms: Milliseconds
    reconnect_backoff_max_ms: Milliseconds
    retry_backoff_ms: Milliseconds
    retry_backoff_max_ms: Milliseconds
    request_timeout_ms: Milliseconds
    default_api_timeout_ms: Milliseconds
    connections_max_idle_ms: Milliseconds
    socket_connection_setup_timeout_ms: Milliseconds
    socket_connection_setup_timeout_max_ms: Milliseconds
    allow_auto_create_topics: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The settings of a producer."""

    acks: Acks = "all"
    enable_idempotence: bool | None = None  # None: where acks, retries and in-flight allow it
    batch_size: int = 16_384
    linger_ms: int = _DEFAULT_LINGER_MS
    buffer_memory: int = 33_554_432
    max_block_ms: int = 60_000
    max_request_size: int = 1_048_576
    compression_type: CompressionType = "none"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delivery_timeout_ms: int = DEFAULT_DELIVERY_TIMEOUT_MS
    retries: int = MAX_INT32
    max_in_flight_requests_per_connection: int = 5
    metadata_max_idle_ms: int = 300_000
    partitioner: Callable[[str, bytes | None, bytes | None, int], int] | None = None
    partitioner_ignore_keys: bool = False
    partitioner_adaptive_partitioning_enable: bool = True
    partitioner_availability_timeout_ms: int = 0
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    @property
    def required_acks(self) -> int:
        """`acks` as the protocol writes it: -1 is all."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def is_idempotent(self) -> bool:
        """Whether records carry producer ids and sequences."""
        if self.transactional_id is not None:
            return True
        if self.enable_idempotence is not None:
            return self.enable_idempotence
        return (
            self.required_acks == -1
            and self.retries > 0
            and self.max_in_flight_requests_per_connection <= 5
        )

    @property
    def concurrent_transactions_backoff(self) -> ExponentialBackoff:
        """How long to wait for the transaction before to be ended everywhere."""
        first_ms = min(_FIRST_CONCURRENT_BACKOFF_MS, self.retry_backoff_ms)
        return ExponentialBackoff(first_ms, self.retry_backoff_ms)

    @property
    def compression(self) -> Compression:
        """`compression_type` as the protocol writes it."""
        return Compression[self.compression_type.upper()]

    @property
    def compression_level(self) -> int | None:
        """The level for `compression`; None where it has none."""
        return {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }.get(self.compression_type)

    def check(self) -> None:
        """Check all values.

        Raises:
            ConfigError: one is wrong.
        """
        super(ProducerConfig, self).check()  # slots make another class
        require_choice("acks", self.acks, ("all", -1, 0, 1, "0", "1", "-1"))
        require_choice(
            "compression_type", self.compression_type, ("none", "gzip", "snappy", "lz4", "zstd")
        )
        for name in ("batch_size", "buffer_memory", "max_request_size", "retries"):
            _require_int(name, getattr(self, name), minimum=0)
        _require_int(
            "max_in_flight_requests_per_connection",
            self.max_in_flight_requests_per_connection,
            minimum=1,
        )
        if self.compression_gzip_level != -1:
            _require_level("compression_gzip_level", self.compression_gzip_level, GZIP_LEVELS)
        _require_level("compression_lz4_level", self.compression_lz4_level, LZ4_LEVELS)
        _require_level("compression_zstd_level", self.compression_zstd_level, ZSTD_LEVELS)
        if self.transactional_id is not None:
            require_text("transactional_id", self.transactional_id)
            if not self.transactional_id:
                raise ConfigError("transactional_id must not be empty")
            if self.transaction_timeout_ms == 0:
                raise ConfigError("transaction_timeout_ms must be at least 1, not 0")
            if self.enable_idempotence is False:
                raise ConfigError("enable_idempotence must not be False with a transactional_id")
            self._check_idempotent("a transactional")
        elif self.enable_idempotence:
            self._check_idempotent("an idempotent")
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ConfigError("delivery_timeout_ms must be at least linger_ms + request_timeout_ms")

    def _check_idempotent(self, kind: str) -> None:
        if self.required_acks != -1:
            raise ConfigError(f'acks must be "all" for {kind} producer')
        if self.retries == 0:
            raise ConfigError(f"retries must not be 0 for {kind} producer")
        if self.max_in_flight_requests_per_connection > 5:
            raise ConfigError(
                f"max_in_flight_requests_per_connection must be at most 5 for {kind} producer"
            )


class ProducerSettings(ClientSettings, total=False):
    """The keyword arguments of `Producer`; see `ProducerConfig`."""

    acks: Acks
    enable_idempotence: bool | None
    batch_size: int
    linger_ms: Milliseconds
    buffer_memory: int
    max_block_ms: Milliseconds
    max_request_size: int
    compression_type: CompressionType
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    delivery_timeout_ms: Milliseconds
    retries: int
    max_in_flight_requests_per_connection: int
    metadata_max_idle_ms: Milliseconds
    partitioner: Callable[[str, bytes | None, bytes | None, int], int] | None
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: Milliseconds
    transactional_id: str | None
    transaction_timeout_ms: Milliseconds


def fit_delivery_timeout(settings: ProducerSettings) -> ProducerSettings:
    """Let the default of delivery_timeout_ms give way to what it must not be less than."""
    times = in_milliseconds(settings)
    linger_ms = times.get("linger_ms", _DEFAULT_LINGER_MS)
    request_timeout_ms = times.get("request_timeout_ms", _DEFAULT_REQUEST_TIMEOUT_MS)
    if "delivery_timeout_ms" in settings or not (
        isinstance(linger_ms, int) and isinstance(request_timeout_ms, int)
    ):
        return settings
    least_ms = max(DEFAULT_DELIVERY_TIMEOUT_MS, linger_ms + request_timeout_ms)
    least_ms = min(least_ms, MAX_INT32)
    return {**settings, "delivery_timeout_ms": least_ms}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """The settings of an admin client."""

    connections_max_idle_ms: int = 300_000
    retries: int = MAX_INT32
    allow_auto_create_topics: bool = False

    def check(self) -> None:
        """Check all values.

        Raises:
            ConfigError: one is wrong.
        """
        super(AdminConfig, self).check()  # slots make another class
        _require_int("retries", self.retries, minimum=0)


class AdminSettings(ClientSettings, total=False):
    """The keyword arguments of `Admin`; see `AdminConfig`."""

    retries: int


def make_config(cls: type[C], bootstrap_servers: str | Sequence[str], settings: Any) -> C:
    """Make a configuration from keyword arguments and check it.

    Raises:
        ConfigError: a name is unknown or a value is wrong.
    """
    known = {field.name for field in fields(cls)}
    for name in settings:
        if name not in known:
            meant = did_you_mean(name.replace(".", "_"), known)
            raise ConfigError(f"unknown setting {name}{meant}")
    config = cls(bootstrap_servers=bootstrap_servers, **in_milliseconds(settings))
    config.check()
    return config


def describe_client(client: object, config: ClientConfig, *, is_open: bool) -> str:
    """Return what `repr` says of a client."""
    servers = ",".join(
        f"{host}:{port}" for host, port in parse_bootstrap_servers(config.bootstrap_servers)
    )
    name = f" {config.client_id!r}" if config.client_id else ""
    state = "open" if is_open else "not open"
    return f"<{type(client).__name__}{name} at {servers}, {state}>"


def in_milliseconds(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with times as numbers: what is in milliseconds may be given as a timedelta.

    Raises:
        ConfigError: a timedelta is negative, or of a setting that is no time.
    """
    found = dict(settings)
    for name, value in settings.items():
        if isinstance(value, timedelta):
            if not name.endswith("_ms"):
                raise ConfigError(f"{name} must not be a time, but is {value!r}")
            try:
                found[name] = whole_milliseconds(name, value)
            except ValueError as error:
                raise ConfigError(str(error)) from None
    return found


def parse_bootstrap_servers(servers: str | Iterable[str]) -> list[tuple[str, int]]:
    """Split "host:port,[::1]:port" (or several such) into addresses.

    Raises:
        ConfigError: there is none, or one is not HOST:PORT.
    """
    if isinstance(servers, bytes) or not isinstance(servers, Iterable):
        raise ConfigError(f"bootstrap_servers must be HOST:PORT, or several, not {servers!r}")
    addresses = []
    for given in servers.split(",") if isinstance(servers, str) else servers:
        if not isinstance(given, str):
            raise ConfigError(f"bootstrap_servers must be HOST:PORT, not {given!r}")
        if not (server := given.strip()):
            continue
        scheme, colon, rest = server.rpartition("://")
        address = _parse_address(rest)
        if address is None or (colon and scheme.upper() not in SecurityProtocol.__members__):
            raise ConfigError(
                f"bootstrap_servers must be HOST:PORT, not {server!r}{_meant_address(rest)}"
            )
        addresses.append(address)
    if not addresses:
        raise ConfigError("bootstrap_servers names no broker")
    return addresses


def _parse_address(given: str) -> tuple[str, int] | None:
    host, _, port = given.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT
    return (host, int(port)) if host and is_port and not set(host) & set("/@ ") else None


def _meant_address(given: str) -> str:
    """Return the address that was most likely meant: without a path, with Kafka's usual port."""
    bare = given.rstrip("/")
    for meant in (bare, f"{bare}:{_USUAL_PORT}"):
        if _parse_address(meant) is not None and "::" not in meant:
            return f"; did you mean {meant!r}?"
    return ""


def _require_int(name: str, value: object, *, minimum: int | None) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        wanted = "milliseconds as a whole number, or a timedelta"
        raise ConfigError(
            f"{name} must be {wanted if name.endswith('_ms') else 'a whole number'}, not {value!r}"
        )
    if minimum is not None and value < minimum:
        raise ConfigError(f"{name} must be at least {minimum}, not {value}")
    maximum = MAX_INT64 if name in _LONGS else MAX_INT32
    if value > maximum:
        raise ConfigError(f"{name} must be at most {maximum}, not {value}")


def require_text(name: str, value: object) -> None:
    """Check that a setting is a string that can be sent.

    Raises:
        ConfigError: it is not.
    """
    try:
        text(name, value)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None


def _require_level(name: str, value: object, levels: range) -> None:
    if not isinstance(value, int) or value not in levels:
        raise ConfigError(
            f"{name} must be between {levels.start} and {levels.stop - 1}, not {value!r}"
        )


def require_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Check that a setting has one of some values.

    Raises:
        ConfigError: it has another.
    """
    if isinstance(value, bool) or value not in choices:
        names = list(dict.fromkeys(map(str, choices)))
        meant = did_you_mean(str(value), names)
        raise ConfigError(f"{name} must be one of {', '.join(names)}, not {value!r}{meant}")
