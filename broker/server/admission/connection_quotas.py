"""How many connections there may be, and how fast new ones may come (KIP-308, KIP-402, KIP-612).

Owns: `ConnectionQuotas`, what all listeners of a broker share. Rules
1. `max.connections` bounds the connections of all listeners together, and those of each listener
   (`listener.name.<listener>.max.connections`). A connection above it waits in the system's queue.
2. The same for `max.connection.creation.rate` (`accept_pace`).
3. The listener for brokers, if there are others, is protected: it has only its own limits. When it
   brings the broker above its limit, the connection of another listener goes that has been silent
   for longest.
4. An address may have `max.connections.per.ip`, or what the overrides say; a connection above it
   is turned away at once.
5. An address that comes faster than its quota (`connection_creation_rate`) is turned away, too, but
   held for a while, so that it does not try again at once. Such a connection counts nowhere. Of
   those held at a time there are at most MOST_HELD.

Sans-IO: time comes in. Called by: the listeners. Kafka's counterpart: ConnectionQuotas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from kraftrio.broker.security.quotas.client_quota import ClientQuota
from kraftrio.broker.security.quotas.sampled_rate import RateWindows
from kraftrio.broker.server.admission.accept_pace import AcceptPace
from kraftrio.kraft_meta.metadata.client_limits import AddressLimits
from kraftrio.kraft_meta.metadata.quota_image import QuotaEntity

MOST_HELD: Final = 1000
UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a broker grants, by Kafka's names.

    Attributes:
        of_listener: limits of single listeners, by name.
        rate_of_listener: connections a second, by name.
        protected_listener: the one of rule 3, if there is one.
    """

    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: float = UNLIMITED
    of_listener: Mapping[str, int] = field(default_factory=dict)
    rate_of_listener: Mapping[str, float] = field(default_factory=dict)
    protected_listener: str | None = None

    def of_address(self, host: str) -> int:
        """How many connections one address may have."""
        return self.max_connections_per_ip_overrides.get(host, self.max_connections_per_ip)


class CountedListener(Protocol):
    """A listener whose connections are counted."""

    @property
    def name(self) -> str: ...

    def limits_changed(self) -> None:
        """There may be room for a connection that waits."""

    def idle_since(self) -> float | None:
        """Since when the connection has been silent that has been so for longest."""

    def close_longest_idle(self) -> None:
        """Close that connection."""


class ConnectionQuotas:
    """See the module.

    Attributes:
        limits: as they are now; see `limit`.
    """

    def __init__(
        self, limits: ConnectionLimits | None = None, windows: RateWindows | None = None
    ) -> None:
        windows = RateWindows() if windows is None else windows
        self.limits = ConnectionLimits() if limits is None else limits
        self._addresses = ClientQuota(AddressLimits(), windows, most_wait_ms=windows.size_ms)
        self._listeners: list[CountedListener] = []
        self._of_listener: Counter[str] = Counter()
        self._of_address: Counter[str] = Counter()
        self._pace = AcceptPace(self.limits.max_connection_creation_rate)
        self._pace_of: dict[str, AcceptPace] = {}

    @property
    def count(self) -> int:
        """How many connections there are."""
        return self._of_listener.total()

    def add(self, listener: CountedListener) -> None:
        """Count a listener's connections from now on."""
        self._listeners.append(listener)

    def limit(self, limits: ConnectionLimits) -> None:
        """Use other limits from now on; no connection is closed for them."""
        self.limits = limits
        self._pace.rate = limits.max_connection_creation_rate
        for name, pace in self._pace_of.items():
            pace.rate = limits.rate_of_listener.get(name, UNLIMITED)
        self._notify_listeners()

    def change(self, quotas: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        """Take over what addresses may as it is in the metadata now."""
        self._addresses.limits.change(quotas)

    def _notify_listeners(self) -> None:
        for listener in self._listeners:
            listener.limits_changed()

    def _is_protected(self, name: str) -> bool:
        return name == self.limits.protected_listener

    # -- before a connection is accepted --------------------------------------------------------

    def limit_reached(self, name: str) -> int | None:
        """Return the limit that keeps a listener from accepting; None: there is room."""
        limits = self.limits
        own = limits.of_listener.get(name, UNLIMITED)
        if self._of_listener[name] >= own:
            return own
        if not self._is_protected(name) and self.count >= limits.max_connections:
            return limits.max_connections
        return None

    def wait_s(self, name: str, now_s: float) -> float:
        """How long a listener has to wait before it accepts the next connection."""
        wait_s = self._pace_at(name).wait_s(now_s)
        return wait_s if self._is_protected(name) else max(wait_s, self._pace.wait_s(now_s))

    def _pace_at(self, name: str) -> AcceptPace:
        pace = self._pace_of.get(name)
        if pace is None:
            rate = self.limits.rate_of_listener.get(name, UNLIMITED)
            pace = self._pace_of[name] = AcceptPace(rate)
        return pace

    # -- connections that have come -------------------------------------------------------------

    def hold_ms(self, host: str, now_s: float) -> int:
        """How long to hold a connection that is not served; 0: its address may have one more."""
        permit = self._addresses.try_to_use("", host, 1, now_s * 1000)
        return 0 if permit.is_granted else max(1, permit.wait_ms)

    def may_have_one_more(self, host: str) -> bool:
        """Whether an address has fewer connections than it may have."""
        return self._of_address[host] < self.limits.of_address(host)

    def opened(self, name: str, host: str, now_s: float) -> None:
        """Count a connection."""
        self._of_listener[name] += 1
        self._of_address[host] += 1
        self._pace_at(name).accepted(now_s)
        if not self._is_protected(name):
            self._pace.accepted(now_s)
        elif self.count > self.limits.max_connections:
            self._close_longest_idle()

    def closed(self, name: str, host: str) -> None:
        """Count a connection no longer."""
        self._of_listener[name] -= 1
        self._of_address[host] -= 1
        if not self._of_address[host]:
            del self._of_address[host]
        self._notify_listeners()

    def _close_longest_idle(self) -> None:
        """Make room for one of the protected listener (rule 3)."""
        longest_idle, since = None, float("inf")
        for listener in self._listeners:
            idle_since = listener.idle_since()
            if idle_since is None or self._is_protected(listener.name):
                continue
            if idle_since < since:
                longest_idle, since = listener, idle_since
        if longest_idle is not None:
            longest_idle.close_longest_idle()
