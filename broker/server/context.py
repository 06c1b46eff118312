"""What a handler knows about a request besides its body: who sent it, over which listener, in
which version, and what its sender may do; and what a handler is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from kraftrio.broker.security.authorizer import (
    ALLOW_ALL,
    AclOperation,
    Authorizer,
    Resource,
    ResourceType,
    authorized_operations,
)
from kraftrio.broker.security.principal import ANONYMOUS, KafkaPrincipal
from kraftrio.broker.security.sasl.authenticator import Authenticator
from kraftrio.broker.server.audit import operation_denied
from kraftrio.wire.protocol.api import ApiKey


@dataclass(slots=True)
class ClientInfo:
    """One connection's peer, filled in by the server and by the peer's own ApiVersions request
    (KIP-511).

    `login`: how it has logged in by SASL, and may do so again; None on listeners without SASL.

    `is_peer`: it is a broker or a controller of the cluster, and comes first where memory is short.

    `end`: makes the connection end soon, whatever it does now.

    `on_close` holds what ends with this connection: dropping a parked request, noting that a node
    is gone. Rules: each callback runs once, in order, when the connection has ended for any reason,
    also because our listener stops; it is synchronous and must not raise. Remove a callback that
    is not needed any longer, since a connection may live for months. Handlers may add callbacks
    while they run; code that runs later checks `is_closed` first.
    """

    host: str
    port: int
    listener_name: str
    software_name: str = "unknown"
    software_version: str = "unknown"
    principal: KafkaPrincipal = ANONYMOUS
    login: Authenticator | None = field(default=None, compare=False, repr=False)
    is_peer: bool = False
    is_closed: bool = False
    end: Callable[[], None] | None = field(default=None, compare=False, repr=False)
    on_close: list[Callable[[], None]] = field(default_factory=list, compare=False, repr=False)
    queued_work: deque[Any] | None = field(default=None, compare=False, repr=False)
    """Work that `sliced_work` still has to do for this connection; later requests wait for it."""
    muted_until_s: float = field(default=0.0, compare=False, repr=False)
    """On Trio's clock: no request is taken from this connection before (KIP-219); 0: any time."""

    def closed(self) -> None:
        """Run the callbacks; the server calls this once, when the connection has ended."""
        self.is_closed = True
        self.end = None
        callbacks, self.on_close = self.on_close, []
        for callback in callbacks:
            callback()


class Waits(Protocol):
    """Takes note of what a request waits for (`request_figures.RequestTimes`)."""

    codes: Sequence[int]
    response_bytes: int

    def wait_for(self, explain: Callable[[], str]) -> None: ...


@dataclass(slots=True)
class RequestContext:
    """One request as its handler sees it.

    Attributes:
        times: where its time goes; None: not measured.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    client: ClientInfo
    authorizer: Authorizer = ALLOW_ALL
    times: Waits | None = None

    def wait_for(self, explain: Callable[[], str]) -> None:
        """Say what the request is going to wait for (`RequestTimes.wait_for`)."""
        if self.times is not None:
            self.times.wait_for(explain)

    @property
    def is_guarded(self) -> bool:
        """Whether there is anything that a client may not do."""
        return self.authorizer is not ALLOW_ALL

    def is_authorized(self, operation: AclOperation, resource: Resource) -> bool:
        """Whether the client may do this; if not, the audit log says so."""
        return self.may(operation, *resource)

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str | None) -> bool:
        """Whether the client may do this to a resource, or, without a name, to any of its type."""
        if self.authorizer is ALLOW_ALL:
            return True
        # No Resource is made: this is asked for each produce and fetch.
        client, resource = self.client, (resource_type, name)
        if self.authorizer.authorize(client.principal, client.host, operation, resource):
            return True
        operation_denied(
            client.principal, client.host, operation, Resource(*resource), self.api_key
        )
        return False

    def may_see(self, operation: AclOperation, resource: Resource) -> bool:
        """Whether the client may do this; a refusal is not logged.

        For what an answer leaves out, and for what may be allowed in another way.
        """
        return self.authorizer.authorize(
            self.client.principal, self.client.host, operation, resource
        )

    def authorized_operations(self, resource: Resource) -> int:
        """Return the bit field of what the client may do to a resource (KIP-430)."""
        return authorized_operations(
            self.authorizer, self.client.principal, self.client.host, resource
        )

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
    def principal(self) -> KafkaPrincipal:
        return self.client.principal

    @property
    def software_name(self) -> str:
        return self.client.software_name

    @property
    def software_version(self) -> str:
        return self.client.software_version


Handler: TypeAlias = Callable[[Any, RequestContext], Any]
"""Takes a decoded request and its context; returns a response, a `Deferred` of one, or None (no
reply); or work in slices (a generator) whose value is one of these.
"""

HandlerTable: TypeAlias = dict[ApiKey, Handler]
