"""The broker's configuration: Kafka's property names, parsed and checked once, at the start.

Owns `BrokerConfig`. Later sources win: defaults, the properties file, the environment
(`KRAFTRIO_LOG_RETENTION_MS` for log.retention.ms), overrides of the command line. Without any
setting it describes one node that is broker and controller on localhost:9092. What kraftrio
cannot honour is refused by `config/checks`; unknown names become warnings.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from typing import Final

from kraftrio.base.properties import parse_properties
from kraftrio.broker.config.attributes import (
    BrokerProperties,
    HostPort,
    ListenerAddress,
    VoterAddress,
    plain_host,
)
from kraftrio.broker.config.broker_table import CORE_SHEET
from kraftrio.broker.config.checks import check_config, check_supported
from kraftrio.broker.config.extra_table import EXTRA_SHEET
from kraftrio.broker.config.group_table import GROUP_SHEET
from kraftrio.broker.config.types import ConfigKey, ConfigValue, PropertyError, read_sheet

__all__ = [
    "BROKER_KEYS",
    "BrokerConfig",
    "HostPort",
    "ListenerAddress",
    "PropertyError",
    "VoterAddress",
]

BROKER_KEYS: Final[dict[str, ConfigKey]] = {
    key.name: key for sheet in (CORE_SHEET, GROUP_SHEET, EXTRA_SHEET) for key in read_sheet(sheet)
}

# Names a setting may also be given under, the one that counts first.
BROKER_SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}

ENVIRONMENT_PREFIX = "KRAFTRIO_"
# Read by the command line itself, not settings of the broker.
_COMMAND_LINE_NAMES = frozenset(
    {"bootstrap.server", "config", "data", "listen", "log.level", "set"}
)
_FOREIGN_PREFIXES = ("listener.name.", "rsm.config.", "rlmm.config.")
_MS = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}
_IPV6 = r"[0-9A-Fa-f:.]+(?:%[0-9A-Za-z_.-]+)?"  # with its zone, as in fe80::1%eth0
_ENDPOINT = re.compile(rf"([A-Za-z0-9_.-]+)://(?:\[({_IPV6})\]|([^:\[\]/]*)):(-?[0-9]+)\Z")
_HOST_PORT = re.compile(rf"(?:\[({_IPV6})\]|([^:\[\]/@]+)):([0-9]+)\Z")


def _port(name: str, item: str, text: str) -> int:
    if not 0 <= int(text) <= 65535:
        raise PropertyError(f"{name} has the port {text} in {item!r}: allowed are 0 to 65535")
    return int(text)


def parse_host_port(name: str, item: str) -> HostPort:
    """Parse `host:port` or `[address]:port`; name is the property, for the error."""
    match = _HOST_PORT.match(item)
    if match is None:
        raise PropertyError(f"{name} has {item!r}: expected host:port")
    return HostPort(match[1] or match[2], _port(name, item, match[3]))


def parse_listeners(
    name: str, items: list[str], protocols: Mapping[str, str]
) -> list[ListenerAddress]:
    """Parse endpoints `NAME://host:port`; name is the property, for the errors."""
    listeners = []
    for item in items:
        match = _ENDPOINT.match(item)
        if match is None:
            raise PropertyError(f"{name} has {item!r}: expected NAME://host:port")
        listener_name = match[1].upper()
        if listener_name not in protocols:
            raise PropertyError(
                f"{name} has the listener {listener_name}, whose protocol is missing in "
                f"listener.security.protocol.map"
            )
        host = match[2] if match[2] is not None else match[3]
        port = _port(name, item, match[4])
        listeners.append(ListenerAddress(listener_name, host, port, protocols[listener_name]))
    return listeners


def _parse_pairs(name: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, colon, value = item.rpartition(":")
        if not colon or not key or not value:
            raise PropertyError(f"{name} has {item!r}: expected name:value")
        pairs[key.strip()] = value.strip()
    return pairs


def environment_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in environment variables, by property name."""
    settings = {}
    for variable in sorted(environ):
        if variable.startswith(ENVIRONMENT_PREFIX):
            name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
            if name and name not in _COMMAND_LINE_NAMES:
                settings[name] = environ[variable]
    return settings


def _read_file(config_file: str) -> dict[str, str]:
    try:
        with open(config_file, "rb") as file:
            data = file.read()
    except OSError as error:
        raise PropertyError(f"cannot read {config_file}: {error.strerror}") from error
    try:
        return parse_properties(data.decode("utf-8"))
    except UnicodeDecodeError:  # Java's own encoding of these files
        return parse_properties(data.decode("latin-1"))


class BrokerConfig(BrokerProperties):
    """All settings of one node, checked.

    Attributes: see `BrokerProperties`. `originals` holds the texts that were set by someone,
    `values` every property's own value, `warnings` sentences for the log.
    """

    def __init__(
        self, originals: Mapping[str, str], *, host_name: Callable[[], str] = socket.gethostname
    ) -> None:
        self.originals: dict[str, str] = dict(originals)
        self.warnings: list[str] = []
        self.values: dict[str, ConfigValue] = {
            key.name: key.default for key in BROKER_KEYS.values()
        }
        self._host_name = host_name
        for name, text in self.originals.items():
            key = BROKER_KEYS.get(name)
            if key is not None:
                self.values[name] = key.parse(text)
            elif not name.startswith(_FOREIGN_PREFIXES):
                self.warnings.append(f"{name} is not a setting of kraftrio: ignored")
        for key in BROKER_KEYS.values():
            setattr(self, key.attribute, self.values[key.name])
        self._resolve_identity()
        self._resolve_log()
        self._resolve_listeners()
        self._resolve_quorum()
        self.metrics_listener = self._address("metrics.listener")
        self.console_listener = self._address("console.listener")
        check_config(self)
        defaults = {key.name: key.default for key in BROKER_KEYS.values()}
        self.warnings.extend(check_supported(self, defaults))

    @classmethod
    def load(
        cls,
        config_file: str | None,
        overrides: Mapping[str, str],
        environ: Mapping[str, str],
        *,
        host_name: Callable[[], str] = socket.gethostname,
    ) -> BrokerConfig:
        """Gather the settings from file, environment and command line, and check them.

        Raises:
            PropertyError: one sentence that names the property, its value and what is allowed.
        """
        originals = {} if config_file is None else _read_file(config_file)
        for source in (environment_settings(environ), overrides):
            originals.update(source)
        return cls(originals, host_name=host_name)

    def with_overrides(self, overrides: Mapping[str, str]) -> BrokerConfig:
        """Return this configuration with other texts for some properties, checked again."""
        return BrokerConfig({**self.originals, **overrides}, host_name=self._host_name)

    def value(self, name: str) -> ConfigValue:
        """Return a property's own value, its synonyms left aside."""
        return self.values[name]

    def is_set(self, name: str) -> bool:
        """Whether the property, or one of its synonyms, was set."""
        return any(synonym in self.originals for synonym in BROKER_SYNONYMS.get(name, (name,)))

    @property
    def is_broker(self) -> bool:
        """Whether this node stores partitions and serves clients."""
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether this node votes in the metadata quorum."""
        return "controller" in self.process_roles

    @property
    def broker_listeners(self) -> list[ListenerAddress]:
        """Listeners of the broker role."""
        return [one for one in self.listeners if one.name not in self.controller_listener_names]

    @property
    def controller_listeners(self) -> list[ListenerAddress]:
        """Listeners of the controller role; empty on a single node without one."""
        return [one for one in self.listeners if one.name in self.controller_listener_names]

    @property
    def advertised_broker_listeners(self) -> list[ListenerAddress]:
        """What the broker registers for its clients."""
        names = self.controller_listener_names
        return [one for one in self.advertised_listeners if one.name not in names]

    def _address(self, name: str) -> HostPort | None:
        text = str(self.values[name] or "")
        return parse_host_port(name, text) if text else None

    def _resolve_identity(self) -> None:
        if "node.id" not in self.originals and "broker.id" in self.originals:
            self.node_id = self.broker_id
            if self.node_id < 0:
                raise PropertyError(f"broker.id is {self.node_id}: it must be at least 0")
        elif "broker.id" in self.originals and self.broker_id != self.node_id:
            raise PropertyError(
                f"broker.id is {self.broker_id} but node.id is {self.node_id}: they must agree"
            )
        self.broker_id = self.node_id
        self.values["node.id"] = self.values["broker.id"] = self.node_id

    def _first_set(self, name: str) -> tuple[str, ConfigValue]:
        """The synonym that counts and its value; the last one's default when none is set."""
        synonyms = BROKER_SYNONYMS[name]
        for synonym in synonyms:
            if self.values[synonym] is not None and synonym in self.originals:
                return synonym, self.values[synonym]
        return synonyms[-1], self.values[synonyms[-1]]

    def _duration_ms(self, name: str) -> int:
        synonym, value = self._first_set(name)
        assert isinstance(value, int)
        return value * _MS[synonym.rpartition(".")[2]]

    def _resolve_log(self) -> None:
        retention_ms = self._duration_ms("log.retention.ms")
        self.log_retention_ms = retention_ms if retention_ms >= 0 else -1
        self.log_roll_ms = self._duration_ms("log.roll.ms")
        self.log_roll_jitter_ms = self._duration_ms("log.roll.jitter.ms")
        self.log_flush_interval_ms = self._duration_ms("log.flush.interval.ms")
        given = self.values["log.dirs"]
        directories = given if isinstance(given, list) else self.log_dir
        self.log_dirs = list(dict.fromkeys(directories))
        if not self.log_dirs or not all(self.log_dirs):
            raise PropertyError("log.dirs is empty: at least one directory is needed")
        metadata_log_dir = self.values["metadata.log.dir"]
        self.metadata_log_dir = str(metadata_log_dir or self.log_dirs[0])
        overrides = _parse_pairs(
            "max.connections.per.ip.overrides", str(self.values["max.connections.per.ip.overrides"])
        )
        self.max_connections_per_ip_overrides = {}
        for host, count in overrides.items():
            if not count.isascii() or not count.isdigit():
                raise PropertyError(
                    f"max.connections.per.ip.overrides has {host}:{count}: expected a count"
                )
            self.max_connections_per_ip_overrides[plain_host(host)] = int(count)

    def _resolve_protocols(self) -> dict[str, str]:
        name = "listener.security.protocol.map"
        protocols = {
            listener.upper(): protocol.upper()
            for listener, protocol in _parse_pairs(name, str(self.values[name])).items()
        }
        known = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        for listener, protocol in protocols.items():
            if protocol not in known:
                raise PropertyError(
                    f"{name} gives {listener} the protocol {protocol}: it must be one of "
                    f"{', '.join(known)}"
                )
        if name not in self.originals:  # as Kafka: a controller's listener is plain by default
            for listener in self.controller_listener_names:
                protocols.setdefault(listener, "PLAINTEXT")
        return protocols

    def _resolve_listeners(self) -> None:
        self.controller_listener_names = [name.upper() for name in self.controller_listener_names]
        protocols = self._resolve_protocols()
        self.listener_security_protocol_map = protocols
        listeners = self.values["listeners"]
        assert isinstance(listeners, list)
        self.listeners = parse_listeners("listeners", listeners, protocols)
        advertised = self.values["advertised.listeners"]
        if isinstance(advertised, list) and advertised:
            self.advertised_listeners = parse_listeners(
                "advertised.listeners", advertised, protocols
            )
        else:
            self.advertised_listeners = self.listeners
        self.advertised_listeners = [
            one if one.host else one._replace(host=self._host_name())
            for one in self.advertised_listeners
        ]
        self.inter_broker_listener_name = self._inter_broker_name()

    def _inter_broker_name(self) -> str:
        name = self.values["inter.broker.listener.name"]
        if isinstance(name, str):
            return name.upper()
        names = [one.name for one in self.broker_listeners]
        protocol = self.security_inter_broker_protocol
        if protocol in names or "security.inter.broker.protocol" in self.originals or not names:
            return protocol
        return names[0]

    def _resolve_quorum(self) -> None:
        self.controller_quorum_bootstrap_servers = [
            parse_host_port("controller.quorum.bootstrap.servers", item)
            for item in self._list("controller.quorum.bootstrap.servers")
        ]
        self.controller_quorum_voters = []
        for item in self._list("controller.quorum.voters"):
            node_id, at, address = item.partition("@")
            if not at or not node_id.isascii() or not node_id.isdigit():
                raise PropertyError(f"controller.quorum.voters has {item!r}: expected id@host:port")
            host_port = parse_host_port("controller.quorum.voters", address)
            self.controller_quorum_voters.append(VoterAddress(int(node_id), *host_port))
        if not self.controller_quorum_voters and self.is_controller:
            own = [one for one in self.advertised_listeners if one in self._own_controllers()]
            own = own or self._own_controllers()
            self.controller_quorum_voters = [
                VoterAddress(self.node_id, own[0].host if own else "", own[0].port if own else 0)
            ]

    def _own_controllers(self) -> list[ListenerAddress]:
        names = self.controller_listener_names
        advertised = [one for one in self.advertised_listeners if one.name in names]
        return advertised or [
            one if one.host else one._replace(host=self._host_name())
            for one in self.controller_listeners
        ]

    def _list(self, name: str) -> list[str]:
        value = self.values[name]
        assert isinstance(value, list)
        return value
