"""One kind of client quota: who shares what, who waits, and what is kept of whom."""

from __future__ import annotations

import math

import pytest

from kraftrio.broker.security.quotas import client_quota
from kraftrio.broker.security.quotas.client_quota import ClientQuota
from kraftrio.broker.security.quotas.sampled_rate import RateWindows
from kraftrio.kraft_meta.metadata.client_limits import ClientLimits

KEY = "producer_byte_rate"
WINDOWS = RateWindows(11, 1000)


def quota(
    limits: dict[tuple[str | None, str | None], float | None], most_wait_ms: float = math.inf
) -> ClientQuota:
    made = ClientQuota(ClientLimits(KEY), WINDOWS, most_wait_ms=most_wait_ms)
    change(made, limits)
    return made


def change(one: ClientQuota, limits: dict[tuple[str | None, str | None], float | None]) -> None:
    for (user, client_id), limit in limits.items():
        names = {"user": user, "client-id": client_id}
        entity = tuple((kind, name) for kind, name in sorted(names.items()) if name is not None)
        one.limits.change({entity: None if limit is None else {KEY: limit}})


def test_a_client_without_a_limit_costs_nothing() -> None:
    one = quota({("a", None): 100.0})
    assert one.use("b", "x", 1e9, 0) == 0
    assert (one.client_count, one.most_at_once("b", "x")) == (0, math.inf)


def test_client_ids_of_a_user_share_the_users_limit() -> None:
    one = quota({("a", None): 100.0})
    assert one.use("a", "x", 1000, 0) == 0
    assert one.use("a", "y", 1000, 0) == 10_000
    assert one.client_count == 1


def test_each_pair_has_the_default_of_pairs_for_itself() -> None:
    one = quota({("", ""): 100.0})
    assert one.use("a", "x", 1000, 0) == 0
    assert one.use("a", "y", 1000, 0) == 0
    assert one.use("b", "x", 1000, 0) == 0
    assert one.client_count == 3


def test_a_wait_is_bounded() -> None:
    assert quota({("a", None): 1.0}, 1000).use("a", "x", 1e9, 0) == 1000


def test_what_is_only_noted_counts_the_next_time() -> None:
    one = quota({("a", None): 100.0})
    one.note("a", "x", 2000, 0)
    assert one.use("a", "x", 0, 0) == 10_000


def test_other_limits_are_compared_with_what_was_used_before() -> None:
    one = quota({("a", None): 100.0})
    one.use("a", "x", 1000, 0)
    change(one, {("a", None): 50.0})
    assert one.use("a", "x", 0, 0) == 10_000
    change(one, {("a", "x"): 50.0})  # shared by others than before
    assert one.use("a", "x", 500, 0) == 0
    change(one, {("a", "x"): None, ("a", None): None})
    assert one.use("a", "x", 1e9, 0) == 0


def test_what_makes_a_client_wait_is_not_counted() -> None:
    one = quota({("a", None): 100.0})
    assert one.try_to_use("a", "x", 900, 0) == (True, 0)
    assert one.try_to_use("a", "x", 900, 0) == (False, 8000)
    assert one.try_to_use("a", "x", 100, 0) == (True, 0)
    assert one.try_to_use("a", "x", 900, 11_000) == (True, 0)
    assert one.try_to_use("b", "x", 1e9, 0) == (True, 0)


def test_what_no_limit_allows_goes_through_once_nothing_else_counts() -> None:
    """A batch larger than all windows would wait for ever; it costs its time afterwards."""
    one = quota({("a", None): 100.0})
    assert one.try_to_use("a", "x", 5000, 0) == (True, 40_000)
    assert not one.try_to_use("a", "x", 10, 100).is_granted
    assert one.try_to_use("a", "x", 10, 50_100) == (True, 0)


def test_the_most_at_once_is_what_full_windows_allow() -> None:
    assert quota({("a", None): 100.0}).most_at_once("a", "x") == 1000


def test_unused_measures_go() -> None:
    one = quota({("", ""): 100.0})
    for number in range(50):
        one.use("a", str(number), 1, 100 * number)
    assert one.client_count == 50
    one.use("a", "last", 1, 14_950)
    assert one.client_count == 11  # used in the last 11 s: from number 40 on, and this one


def test_measures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that makes up client ids pushes its own out, not those that are in use."""
    monkeypatch.setattr(client_quota, "MOST_CLIENTS", 10)
    one = quota({("", ""): 100.0})
    one.use("a", "honest", 2000, 0)
    for number in range(100):
        one.use("a", str(number), 1, 0)
        one.use("a", "honest", 0, 0)
    assert one.client_count == 10
    assert one.use("a", "honest", 0, 0) == 10_000
