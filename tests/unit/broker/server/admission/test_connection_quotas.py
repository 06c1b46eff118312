"""How many connections there may be, of a broker, a listener and an address, and how fast."""

from __future__ import annotations

from dataclasses import replace

from kraftrio.broker.security.quotas.sampled_rate import RateWindows
from kraftrio.broker.server.admission.connection_quotas import ConnectionLimits, ConnectionQuotas
from kraftrio.kraft_meta.metadata.quota_image import quota_entity

HOST, OTHER = "10.0.0.1", "10.0.0.2"
RATE = "connection_creation_rate"


class Listener:
    """A listener that counts its notifications."""

    def __init__(self, name: str, idle_since: float | None = None) -> None:
        self.name = name
        self.since = idle_since
        self.notified = 0
        self.closed_count = 0

    def limits_changed(self) -> None:
        self.notified += 1

    def idle_since(self) -> float | None:
        return self.since

    def close_longest_idle(self) -> None:
        self.closed_count += 1


def opened(quotas: ConnectionQuotas, name: str, count: int = 1, host: str = HOST) -> None:
    for _ in range(count):
        quotas.opened(name, host, 0)


def test_a_broker_and_each_listener_have_a_limit() -> None:
    limits = ConnectionLimits(max_connections=5, of_listener={"A": 2})
    quotas = ConnectionQuotas(limits)
    opened(quotas, "A")
    assert quotas.limit_reached("A") is None
    opened(quotas, "A")
    assert (quotas.limit_reached("A"), quotas.limit_reached("B")) == (2, None)
    opened(quotas, "B", 3)
    assert (quotas.limit_reached("A"), quotas.limit_reached("B")) == (2, 5)
    quotas.closed("A", HOST)
    assert (quotas.limit_reached("A"), quotas.limit_reached("B")) == (None, None)


def test_listeners_are_notified_of_room() -> None:
    quotas, listener = ConnectionQuotas(ConnectionLimits(max_connections=1)), Listener("A")
    quotas.add(listener)
    opened(quotas, "A")
    quotas.closed("A", HOST)
    assert listener.notified == 1
    quotas.limit(ConnectionLimits(max_connections=2))
    assert listener.notified == 2


def test_the_brokers_listener_has_only_its_own_limits() -> None:
    """One of another listener goes, the one that was silent for longest."""
    limits = ConnectionLimits(
        max_connections=2,
        max_connection_creation_rate=1,
        of_listener={"BROKERS": 3},
        protected_listener="BROKERS",
    )
    quotas = ConnectionQuotas(limits)
    brokers, loud, silent = Listener("BROKERS", 1.0), Listener("A", 9.0), Listener("B", 5.0)
    for listener in (brokers, loud, silent, Listener("C")):
        quotas.add(listener)
    opened(quotas, "A", 2)
    assert (quotas.limit_reached("A"), quotas.limit_reached("BROKERS")) == (2, None)
    assert (quotas.wait_s("A", 0), quotas.wait_s("BROKERS", 0)) == (2, 0)
    opened(quotas, "BROKERS")
    assert [one.closed_count for one in (brokers, loud, silent)] == [0, 0, 1]
    opened(quotas, "BROKERS", 2)
    assert quotas.limit_reached("BROKERS") == 3


def test_a_listener_has_a_pace_of_its_own() -> None:
    limits = ConnectionLimits(max_connection_creation_rate=4, rate_of_listener={"A": 2, "B": 100})
    quotas = ConnectionQuotas(limits)
    opened(quotas, "A", 2)
    assert (quotas.wait_s("A", 0), quotas.wait_s("B", 0)) == (0.5, 0)
    opened(quotas, "B", 2)
    assert (quotas.wait_s("A", 0), quotas.wait_s("B", 0)) == (0.5, 0.25)
    quotas.limit(replace(limits, max_connection_creation_rate=1e9, rate_of_listener={"A": 1e9}))
    assert quotas.wait_s("B", 1) == 0


def test_an_address_has_a_limit_over_all_listeners() -> None:
    limits = ConnectionLimits(max_connections_per_ip=2, max_connections_per_ip_overrides={OTHER: 1})
    quotas = ConnectionQuotas(limits)
    opened(quotas, "A")
    opened(quotas, "A", host=OTHER)
    assert (quotas.may_have_one_more(HOST), quotas.may_have_one_more(OTHER)) == (True, False)
    opened(quotas, "B")
    assert not quotas.may_have_one_more(HOST)
    quotas.closed("A", HOST)
    assert quotas.may_have_one_more(HOST)


def test_an_address_that_comes_too_fast_is_held() -> None:
    """Ten seconds' worth at once; what is held does not count, and no other address minds."""
    quotas = ConnectionQuotas(windows=RateWindows(11, 1000))
    quotas.change({quota_entity({"ip": HOST}): {RATE: 2.0}})
    assert [quotas.hold_ms(HOST, 0) for _ in range(20)] == [0] * 20
    assert quotas.hold_ms(HOST, 0) == 500
    assert quotas.hold_ms(HOST, 0) == 500
    assert quotas.hold_ms(OTHER, 0) == 0
    assert quotas.hold_ms(HOST, 11) == 0


def test_the_quota_of_any_address_is_each_ones_own() -> None:
    quotas = ConnectionQuotas()
    entity, exception = quota_entity({"ip": None}), quota_entity({"ip": "::0001"})
    quotas.change({entity: {RATE: 1.0}, exception: {RATE: 100.0}})
    for host in (HOST, OTHER):
        assert [quotas.hold_ms(host, 0) > 0 for _ in range(11)] == [False] * 10 + [True]
    assert [quotas.hold_ms("::1", 0) for _ in range(100)] == [0] * 100
    quotas.change({entity: None})
    assert quotas.hold_ms(HOST, 0) == 0
