"""Which cluster a command is about, and how its clients are set.

Owns `TargetCluster` and `find_target`. Rules:
1. What is nearer wins: `--bootstrap-server`, then `bootstrap.servers` of the `--config` file, then
   KRAFTRIO_BOOTSTRAP_SERVER, then localhost:9092.
2. The file is a Java client's properties file as it is. What our client has, too, is set; what says
   nothing outside a JVM (serializers, class names, settings of other kinds of client) is passed
   over. A security setting that cannot be followed is refused: it must not be passed over.

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
# Where a client of ours takes Python's objects in place of Java's classes.
_CLASSES: Final = frozenset({"partitioner", "partition_assignment_strategy", "bootstrap_servers"})


@dataclass(frozen=True, slots=True)
class TargetCluster:
    """A cluster to be used.

    Attributes:
        servers: "HOST:PORT,HOST:PORT".
        properties: of the `--config` file, by Kafka's names.
    """

    servers: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def settings(self, cls: type[ClientConfig]) -> dict[str, Any]:
        """Return the properties that a kind of client has, as its keyword arguments.

        Raises:
            ConfigError: a value is not of the setting's kind, or is about security that the client
                does not have.
        """
        kinds = {each.name: str(each.type) for each in fields(cls)}
        settings: dict[str, Any] = {}
        for name, value in self.properties.items():
            ours = name.replace(".", "_")
            if ours in kinds and ours not in _CLASSES:
                settings[ours] = _value(name, value.strip(), kinds[ours])
            elif name.startswith(_SECURITY) and value.strip() != _PLAIN.get(name):
                raise ConfigError(f"{name} cannot be followed: this client does not know it")
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
    except UnicodeDecodeError:  # as Java wrote them before it took UTF-8
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
