"""What a handler knows about a request besides its body: who sent it, over which listener, in
which version.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ClientInfo:
    """One connection's peer, filled in by the server and by the peer's own ApiVersions request
    (KIP-511).
    """

    host: str
    port: int
    listener_name: str
    software_name: str = "unknown"
    software_version: str = "unknown"
    principal: str = "User:ANONYMOUS"


@dataclass(slots=True)
class RequestContext:
    """One request as its handler sees it."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    client: ClientInfo

    @property
    def client_host(self) -> str:
        return self.client.host

    @property
    def client_port(self) -> int:
        return self.client.port

    @property
    def listener_name(self) -> str:
        return self.client.listener_name

    @property
    def principal(self) -> str:
        return self.client.principal

    @property
    def software_name(self) -> str:
        return self.client.software_name

    @property
    def software_version(self) -> str:
        return self.client.software_version
