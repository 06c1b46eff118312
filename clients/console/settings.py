"""The settings of a console: which cluster it shows, and what its visitors may do.

Called by: the command, the node's command, and all of the console.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kraftrio.base.clock import wall_ms
from kraftrio.clients.cli.connect import TargetCluster
from kraftrio.clients.config import AdminConfig, ClientConfig, ProducerConfig, make_config
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.net.transport import Network

CLIENT_ID: Final = "kraftrio-console"
DEFAULT_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """What a console is made from.

    Attributes:
        is_writable: whether visitors may write records and reset groups.
        host_names: names that browsers may call it by, besides localhost and addresses.
        timeout_s: how long one request to the cluster may take.
        network: where sockets to the cluster come from, instead of the system's.
        now_ms: the wall clock.
    """

    target: TargetCluster
    is_writable: bool = False
    host_names: frozenset[str] = frozenset()
    timeout_s: float = DEFAULT_TIMEOUT_S
    network: Network | None = None
    now_ms: Callable[[], int] = field(default=wall_ms)

    @property
    def timeout_ms(self) -> int:
        """`timeout_s` in milliseconds."""
        return round(self.timeout_s * 1000)

    def check(self) -> None:
        """Check what the clients are to be given, but not the files that it names.

        Raises:
            ConfigError: a property of the target is wrong, or cannot be followed.
        """
        for kind in (AdminConfig, ConsumerConfig, ProducerConfig):
            make_config(kind, self.target.servers, self.client(kind))

    def client(self, cls: type[ClientConfig]) -> dict[str, Any]:
        """Return the keyword arguments for a client of a kind; the caller may add to them.

        Raises:
            ConfigError: a property of the target cannot be followed.
        """
        return {"client_id": CLIENT_ID, **self.target.settings(cls)}
