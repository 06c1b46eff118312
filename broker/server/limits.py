"""What a listener grants its clients, by Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """See the module; 0 or less of a buffer size means the system's."""

    socket_request_max_bytes: int
    max_connections: int
    max_connections_per_ip: int
    connections_max_idle_ms: int
    max_in_flight_requests: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)

    def connections_of(self, host: str) -> int:
        """How many connections one address may have."""
        return self.max_connections_per_ip_overrides.get(host, self.max_connections_per_ip)
