"""Clients are asked for what the resources that fit them name."""

from __future__ import annotations

from kraftrio.broker.metrics.telemetry.subscriptions import ClientIdentity, subscription_for

CLIENT = ClientIdentity("id1", "app-7", "librdkafka", "2.5", "10.0.0.7", "5000")


def test_what_fits_is_put_together() -> None:
    resources = [
        {"metrics": "b.x, a.x", "interval.ms": "5000", "match": "client_id=app-.*"},
        {"metrics": "c.x", "interval.ms": "700", "match": "client_id=other"},
        {"metrics": "a.x", "match": "client_software_name=lib.*, client_source_port=5000"},
    ]
    found = subscription_for(CLIENT, resources)
    assert (found.metrics, found.interval_ms) == (("a.x", "b.x"), 5000)
    assert subscription_for(CLIENT, [*resources, {"metrics": "*,d"}]).metrics == ("*",)


def test_patterns_fit_as_a_whole() -> None:
    assert subscription_for(CLIENT, [{"metrics": "m", "match": "client_id=app"}]).metrics == ()


def test_the_id_is_that_of_what_is_asked() -> None:
    one = subscription_for(CLIENT, [{"metrics": "m"}])
    assert one == subscription_for(CLIENT, [{"metrics": "m"}])
    assert one.subscription_id != subscription_for(CLIENT, [{"metrics": "n"}]).subscription_id
    assert -(2**31) <= one.subscription_id < 2**31
    assert subscription_for(CLIENT, []).interval_ms == 300_000
