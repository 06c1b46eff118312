"""Checks of several of the broker's settings together, and refusal of what cannot be honoured.

Rule: a setting that would change what the broker promises (who may connect, where data is kept) is
refused when we cannot keep the promise; a setting that only tunes something we do not have is
accepted, with a warning (`config/without_effect`).
Called by `config.BrokerConfig`; raises `PropertyError` with one sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from kraftrio.broker.config.attributes import (
    HostPort,
    ListenerAddress,
    VoterAddress,
    address_text,
    ip_version,
)
from kraftrio.broker.config.group_checks import check_groups
from kraftrio.broker.config.types import ConfigValue, PropertyError
from kraftrio.broker.config.without_effect import warnings_without_effect

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_REPLICA_SELECTORS = (LEADER_SELECTOR, RACK_AWARE_SELECTOR)
_WILDCARDS = ("0.0.0.0", "::", "0:0:0:0:0:0:0:0")
STANDARD_AUTHORIZERS = (
    "StandardAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
# Settings that name Java classes, with those that do what is done here.
SUPPORTED_CLASSES: Final[dict[str, tuple[str, ...]]] = {
    "authorizer.class.name": STANDARD_AUTHORIZERS,
    "ssl.engine.factory.class": ("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",),
    "alter.config.policy.class.name": (),
    "client.quota.callback.class": (),
    "create.topic.policy.class.name": (),
    "principal.builder.class": (
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    ),
    "group.share.persister.class.name": (
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
    ),
}
# What the segments of a topic hold at least; the internal topics' own settings allow less.
_LEAST_SEGMENT_BYTES = 1 << 20
_INTERNAL_SEGMENTS = (
    "offsets.topic.segment.bytes",
    "transaction.state.log.segment.bytes",
    "share.coordinator.state.topic.segment.bytes",
)
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class Settings(Protocol):
    """The part of `BrokerConfig` that the checks read."""

    originals: dict[str, str]
    values: dict[str, ConfigValue]
    node_id: int
    process_roles: list[str]
    listeners: list[ListenerAddress]
    advertised_listeners: list[ListenerAddress]
    controller_listener_names: list[str]
    listener_security_protocol_map: dict[str, str]
    inter_broker_listener_name: str
    controller_quorum_voters: list[VoterAddress]
    controller_quorum_bootstrap_servers: list[HostPort]
    log_dirs: list[str]
    cordoned_log_dirs: list[str]
    log_retention_ms: int
    log_cleaner_threads: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: dict[str, int]
    group_coordinator_rebalance_protocols: list[str]
    super_users: str

    def value(self, name: str) -> ConfigValue:
        """A property's own value."""

    @property
    def is_broker(self) -> bool:
        """Whether the node has the broker role."""

    @property
    def is_controller(self) -> bool:
        """Whether the node has the controller role."""

    @property
    def broker_listeners(self) -> list[ListenerAddress]:
        """Listeners of the broker role."""

    @property
    def controller_listeners(self) -> list[ListenerAddress]:
        """Listeners of the controller role."""


def check_config(config: Settings) -> None:
    """Check settings against each other."""
    if not config.process_roles:
        raise PropertyError("process.roles is empty: it must name broker, controller or both")
    _check_listeners(config)
    _check_advertised(config)
    _check_roles(config)
    _check_voters(config)
    _check_limits(config)
    _check_cordoned(config)
    _check_super_users(config)


def check_supported(config: Settings, defaults: Mapping[str, ConfigValue]) -> list[str]:
    """Refuse what would be a false promise; give warnings for what has no effect."""
    for name, allowed in SUPPORTED_CLASSES.items():
        if config.originals.get(name, "") not in ("", *allowed):
            instead = f"only {allowed[0]} is known" if allowed else "remove it"
            raise PropertyError(
                f"{name} is {config.originals[name]}: Java classes cannot be run, {instead}"
            )
    selector = config.originals.get("replica.selector.class", "")
    if selector and selector not in _REPLICA_SELECTORS:
        raise PropertyError(
            f"replica.selector.class is {selector}: Java classes cannot be run, only "
            f"{' and '.join(_REPLICA_SELECTORS)} are known"
        )
    if config.value("config.providers"):
        raise PropertyError(
            f"config.providers is {config.originals['config.providers']}: providers are not "
            f"supported, write the values themselves"
        )
    if config.value("remote.log.storage.system.enable"):
        raise PropertyError(
            "remote.log.storage.system.enable is true: tiered storage is not supported"
        )
    if "classic" not in config.group_coordinator_rebalance_protocols:
        raise PropertyError(
            f"group.coordinator.rebalance.protocols is"
            f" {','.join(config.group_coordinator_rebalance_protocols)}: it must name classic,"
            f" which cannot be turned off"
        )
    warnings = warnings_without_effect(config.originals, config.values, defaults)
    warnings += [
        f"max.connections.per.ip.overrides has no effect for {host}: it is compared with addresses"
        for host in config.max_connections_per_ip_overrides
        if ip_version(host) is None
    ]
    if config.log_cleaner_threads > 1:
        warnings.append(
            f"log.cleaner.threads is {config.log_cleaner_threads}: one thread does the compaction"
        )
    if config.originals.get("controller.quorum.voters") and (
        config.controller_quorum_bootstrap_servers
    ):
        warnings.append(
            "controller.quorum.bootstrap.servers has no effect: controller.quorum.voters names the"
            " controllers"
        )
    if "zookeeper.connect" in config.originals:
        warnings.append("zookeeper.connect has no effect: the broker keeps its metadata itself")
    return warnings


def _check_super_users(config: Settings) -> None:
    """Principals are TYPE:NAME; a name without a type would match none."""
    for text in super_users(config.super_users):
        if ":" not in text:
            raise PropertyError(f"super.users has {text!r}: expected TYPE:NAME, as in User:admin")


def super_users(text: str) -> list[str]:
    """Return the principals that the setting names."""
    return [one for one in (part.strip() for part in text.split(";")) if one]


def _check_listeners(config: Settings) -> None:
    if not config.listeners:
        raise PropertyError("listeners is empty: at least one address is needed")
    _check_unique("listeners", (one.name for one in config.listeners))
    _check_ports(config.listeners)


def _check_ports(listeners: Iterable[ListenerAddress]) -> None:
    """A port is used once, or once for each of IPv4 and IPv6 (KIP-797)."""
    used: dict[int, list[ListenerAddress]] = {}
    for one in listeners:
        if one.port:
            used.setdefault(one.port, []).append(one)
    for port, sharing in used.items():
        if len(sharing) > 1 and sorted(map(_ip_version, sharing)) != [4, 6]:
            raise PropertyError(
                f"listeners has port {port} twice: each may be used once, or once for an IPv4"
                " address and once for an IPv6 address"
            )


def _ip_version(listener: ListenerAddress) -> int:
    return ip_version(listener.host) or 0


def _check_unique(name: str, items: Iterable[str]) -> None:
    seen: set[str] = set()
    for item in items:
        if item in seen:
            raise PropertyError(f"{name} has {item} twice: each may be used once")
        seen.add(item)


def _check_advertised(config: Settings) -> None:
    names = {one.name for one in config.listeners}
    _check_unique("advertised.listeners", (one.name for one in config.advertised_listeners))
    for one in config.advertised_listeners:
        if one.name not in names:
            raise PropertyError(f"advertised.listeners has {one}, but listeners has no {one.name}")
        if one.host in _WILDCARDS and config.is_broker:
            raise PropertyError(
                f"advertised.listeners would be {one}, which no client can reach: set "
                f"advertised.listeners to a name or address of this machine"
            )


def _check_roles(config: Settings) -> None:
    if config.is_broker:
        brokers = [one.name for one in config.broker_listeners]
        if not brokers:
            raise PropertyError(
                "listeners has only listeners of the controller: a broker needs one of its own"
            )
        if {"inter.broker.listener.name", "security.inter.broker.protocol"} <= set(
            config.originals
        ):
            raise PropertyError(
                "inter.broker.listener.name and security.inter.broker.protocol are both set:"
                " choose one"
            )
        if config.inter_broker_listener_name not in brokers:
            raise PropertyError(
                f"inter.broker.listener.name is {config.inter_broker_listener_name}: it must be "
                f"one of {', '.join(brokers)}"
            )
        if not config.is_controller and config.controller_listeners:
            raise PropertyError(
                f"listeners has {config.controller_listeners[0].name}, a listener of the "
                f"controller: remove it, since process.roles is broker"
            )
    elif config.value("console.listener"):
        raise PropertyError(
            "console.listener is set, but process.roles has no broker: the console is served beside"
            " one"
        )
    elif config.broker_listeners:
        raise PropertyError(
            f"listeners has {config.broker_listeners[0].name}: with process.roles=controller all "
            f"must be named in controller.listener.names"
        )


def _check_voters(config: Settings) -> None:
    voters = config.controller_quorum_voters
    _check_unique("controller.quorum.voters", (f"node {one.node_id}" for one in voters))
    ids = [one.node_id for one in voters]
    if config.is_controller:
        if config.node_id not in ids:
            raise PropertyError(
                f"controller.quorum.voters does not name node {config.node_id}, but process.roles "
                f"has controller"
            )
        if len(ids) > 1 and not config.controller_listeners:
            raise PropertyError(
                "controller.listener.names names none of the listeners: several controllers "
                "need a listener to reach each other"
            )
        if config.originals.get("controller.quorum.voters", "") == "":
            _check_bootstrap_servers(config)
    elif config.node_id in ids:
        raise PropertyError(
            f"controller.quorum.voters names node {config.node_id}, but process.roles is broker"
        )
    elif not voters:
        raise PropertyError(
            "controller.quorum.voters is empty: a broker needs the controllers as id@host:port "
            "(finding them by bootstrap servers alone is not supported yet)"
        )


def _check_bootstrap_servers(config: Settings) -> None:
    """Without voters this node alone is the quorum: another server would split the cluster."""
    own = {
        (host, one.port)
        for one in (*config.advertised_listeners, *config.controller_listeners)
        if one.name in config.controller_listener_names
        for host in (one.host, *_LOCAL_HOSTS)
    }
    for server in config.controller_quorum_bootstrap_servers:
        if server not in own:
            raise PropertyError(
                f"controller.quorum.bootstrap.servers names"
                f" {address_text(server.host, server.port)}, which is not this node: name the"
                f" controllers in controller.quorum.voters as id@host:port (finding them by"
                f" bootstrap servers alone is not supported yet)"
            )


def _check_cordoned(config: Settings) -> None:
    cordoned = config.cordoned_log_dirs
    if "*" in cordoned:
        if len(cordoned) > 1:
            raise PropertyError(
                "When cordoned.log.dirs is set to *, it must not contain other values"
            )
        return
    missing = [directory for directory in cordoned if directory not in config.log_dirs]
    if missing:
        raise PropertyError(
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(missing)}"
        )


def _check_limits(config: Settings) -> None:
    for name in _INTERNAL_SEGMENTS:
        size = config.value(name)
        assert isinstance(size, int)
        if size < _LEAST_SEGMENT_BYTES:
            raise PropertyError(
                f"{name} is {size}: a topic's segments have at least {_LEAST_SEGMENT_BYTES} bytes"
            )
    if config.log_retention_ms == 0:
        raise PropertyError("log.retention.ms is 0: it must be -1 for no limit, or at least 1")
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        raise PropertyError(
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set."
        )
    buffer_bytes = config.value("log.cleaner.dedupe.buffer.size")
    assert isinstance(buffer_bytes, int)
    if config.log_cleaner_threads and buffer_bytes // config.log_cleaner_threads <= 1 << 20:
        raise PropertyError(
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
        )
    _check_order(config, "replica.fetch.wait.max.ms", "replica.socket.timeout.ms")
    _check_order(config, "replica.fetch.wait.max.ms", "replica.lag.time.max.ms")
    check_groups(config.value)


def _check_order(config: Settings, low_name: str, high_name: str) -> None:
    low, high = config.value(low_name), config.value(high_name)
    assert isinstance(low, int) and isinstance(high, int)
    if low > high:
        raise PropertyError(
            f"{low_name} is {low}: it must not be above {high_name}, which is {high}"
        )
