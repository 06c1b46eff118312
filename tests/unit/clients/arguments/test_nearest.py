"""What was most likely meant."""

from __future__ import annotations

from kraftrio.clients.arguments.nearest import did_you_mean, nearest


def test_nearest_name() -> None:
    assert nearest("oders", ["orders", "payments"]) == "orders"
    assert nearest("ORDERS", ["orders"]) == "orders"
    assert nearest("zebra", ["orders", "payments"]) is None
    assert did_you_mean("oders", {"orders"}) == "; did you mean 'orders'?"
    assert did_you_mean("zebra", {"orders"}) == ""
