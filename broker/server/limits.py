"""What a listener grants its clients, by Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """See the module; 0 or less of a buffer size means the system's."""

    socket_request_max_bytes: int
    connections_max_idle_ms: int
    max_in_flight_requests: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
