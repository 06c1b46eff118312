"""Why a member joins again, and with which topics."""

from __future__ import annotations

from kraftrio.clients.consumer.membership.rejoin import Rejoin

A, AB = frozenset({"a"}), frozenset({"a", "b"})


def joined(topics: frozenset[str]) -> Rejoin:
    """A member that has joined with these topics, and has its assignment."""
    rejoin = Rejoin()
    rejoin.subscribe(topics)
    rejoin.join()
    rejoin.done()
    return rejoin


def test_other_topics_are_a_reason() -> None:
    rejoin = joined(A)
    rejoin.subscribe(A)
    assert rejoin.reason is None
    rejoin.subscribe(AB)
    assert rejoin.join() == (AB, "subscription has changed")


def test_the_topics_it_has_joined_with_are_none() -> None:
    rejoin = joined(A)
    rejoin.subscribe(AB)
    rejoin.done()
    rejoin.subscribe(A)
    assert rejoin.reason is None


def test_the_first_reason_stays_until_an_assignment_has_come() -> None:
    rejoin = joined(A)
    rejoin.request("group is already rebalancing")
    rejoin.request("cached metadata has changed")
    assert rejoin.join() == (A, "group is already rebalancing")
    assert rejoin.reason is not None
    rejoin.done()
    assert rejoin.reason is None


def test_topics_that_change_while_it_joins_are_noticed_afterwards() -> None:
    rejoin = joined(A)
    rejoin.join()
    rejoin.subscribe(AB)
    rejoin.done()
    rejoin.check_topics()
    assert rejoin.reason == "subscription has changed"


def test_who_unsubscribes_need_not_join() -> None:
    rejoin = joined(A)
    rejoin.request("group is already rebalancing")
    rejoin.unsubscribe()
    assert (rejoin.topics, rejoin.reason) == (None, None)
    assert rejoin.join() == (frozenset(), "")
