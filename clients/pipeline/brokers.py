"""Which brokers the pipeline works with, and how it gets in: for our clients and for Spark's.

Owns: `BrokerAccess`, made of the options `--bootstrap-server` and `--config`. The file is that of a
Java client; of its settings, those about security and the addresses count.

Called by: `cli`, and what connects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kraftrio.base.properties import parse_properties
from kraftrio.clients.pipeline.failures import PipelineError
from kraftrio.clients.security import SecuritySettings, security_settings

DEFAULT_SERVERS: Final = "localhost:9092"
_SERVERS: Final = "bootstrap.servers"
_SECURITY: Final = ("security.", "ssl.", "sasl.")


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """See the module.

    Attributes:
        servers: "HOST:PORT,HOST:PORT".
        properties: of security, by Kafka's names.
    """

    servers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def security(self) -> SecuritySettings:
        """The keyword arguments of our clients that say how they get in."""
        return security_settings(self.properties)

    @property
    def spark_options(self) -> dict[str, str]:
        """The options of Spark's sources and sinks that say where the brokers are, and the rest."""
        return {f"kafka.{name}": value for name, value in self.properties.items()} | {
            f"kafka.{_SERVERS}": self.servers
        }


def find_brokers(servers: str | None, config_file: Path | None) -> BrokerAccess | None:
    """Return the brokers that the options name; None: they name none.

    Raises:
        PipelineError: the file cannot be read.
    """
    if config_file is None:
        return None if servers is None else BrokerAccess(servers)
    try:
        properties = parse_properties(config_file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"cannot read {config_file}: {error}") from error
    found = servers or properties.get(_SERVERS)
    if not found:
        return None
    security = {n: value for n, value in properties.items() if n.startswith(_SECURITY)}
    return BrokerAccess(found, security)
