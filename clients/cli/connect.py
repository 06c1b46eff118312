"""Which cluster a command uses, and with which settings.

Owns `TargetCluster` and `find_target`. Rules:
1. The first of these counts: `--bootstrap-server`, `bootstrap.servers` of the `--config` file,
   KRAFTRIO_BOOTSTRAP_SERVER, localhost:9092.
2. The file is a Java client's properties file. Settings that our client has are used; those that
   mean nothing outside a JVM, or to this kind of client (serializers, class names), are ignored. A
   security setting that our client does not have is refused: ignoring it would not be safe.

Called by: `session`. Kafka documentation, "Producer Configs", "Consumer Configs".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from kraftrio.base.properties import parse_properties
from kraftrio.clients.cli.failures import EXIT_USAGE, CommandError
from kraftrio.clients.config import ClientConfig, parse_bootstrap_servers
from kraftrio.clients.errors import ConfigError

BOOTSTRAP_VARIABLE: Final = "KRAFTRIO_BOOTSTRAP_SERVER"
DEFAULT_SERVERS: Final = "localhost:9092"

_SECURITY = ("security.", "ssl.", "sasl.")
_PLAIN: Final = {"security.protocol": "PLAINTEXT"}
# Settings for which our clients take Python objects, and Java's take class names.
_CLASSES: Final = frozenset({"partitioner", "partition_assignment_strategy", "bootstrap_servers"})


@dataclass(frozen=True, slots=True)
class TargetCluster:
    """The cluster that a command uses.

    Attributes:
        servers: "HOST:PORT,HOST:PORT".
        properties: of the `--config` file, by Kafka's names.
    """

    servers: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def settings(self, cls: type[ClientConfig]) -> dict[str, Any]:
        """Return the properties that are settings of a client class, as its keyword arguments.

        Raises:
            ConfigError: a value has the wrong type, or the client lacks a security setting.
        """
        kinds = {each.name: str(each.type) for each in fields(cls)}
        settings: dict[str, Any] = {}
        for name, value in self.properties.items():
            ours = name.replace(".", "_")
            if ours in kinds and ours not in _CLASSES:
                settings[ours] = _value(name, value.strip(), kinds[ours])
            elif name.startswith(_SECURITY) and value.strip() != _PLAIN.get(name):
                raise ConfigError(f"{name} cannot be obeyed: this client does not have it")
        return settings


def find_target(
    servers: str | None, config_file: str | None, environment: Mapping[str, str]
) -> TargetCluster:
    """Return the cluster that options, a properties file and the environment name.

    Raises:
        CommandError: the file cannot be read, or an address is malformed.
    """
    properties = read_properties(config_file) if config_file is not None else {}
    chosen = (
        servers
        or properties.get("bootstrap.servers", "").strip()
        or environment.get(BOOTSTRAP_VARIABLE, "").strip()
        or DEFAULT_SERVERS
    )
    try:
        parse_bootstrap_servers(chosen)
    except ConfigError as error:
        raise CommandError(str(error), status=EXIT_USAGE) from None
    return TargetCluster(chosen, properties)


def read_properties(path: str) -> dict[str, str]:
    """Read a Java properties file.

    Raises:
        CommandError: it cannot be read.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", status=EXIT_USAGE) from None
    try:
        return parse_properties(data.decode("utf-8"))
    except UnicodeDecodeError:  # Java's encoding of such files before UTF-8
        return parse_properties(data.decode("latin-1"))


def _value(name: str, text: str, kind: str) -> Any:
    kinds = {part.strip() for part in kind.split("|")}
    if "int" in kinds:
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{name} must be a whole number, not {text!r}") from None
    if "bool" in kinds:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name} must be true or false, not {text!r}")
        return text.lower() == "true"
    return text
