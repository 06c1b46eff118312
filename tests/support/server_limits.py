"""The limits of listeners under test: wide enough that no test meets them unless it narrows one."""

from __future__ import annotations

from kraftrio.broker.server.limits import ServerLimits

LIMITS = ServerLimits(
    socket_request_max_bytes=1 << 20,
    connections_max_idle_ms=600_000,
    max_in_flight_requests=100,
    socket_send_buffer_bytes=-1,
    socket_receive_buffer_bytes=-1,
)
