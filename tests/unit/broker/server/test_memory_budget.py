"""Memory that connections share: what is free, who waits, who goes on beyond the limit."""

from __future__ import annotations

from random import Random

from kraftrio.broker.server.memory_budget import FREE_BYTES, MemoryBudget, MemoryShare

LIMIT = 100 * FREE_BYTES
LARGE = 10 * FREE_BYTES


class Holders:
    """Shares of one budget by name, and what happened to them."""

    def __init__(self, limit_bytes: int = LIMIT) -> None:
        self.budget = MemoryBudget(limit_bytes)
        self.notified: list[str] = []
        self.gave_up: list[str] = []
        self.shares: dict[str, MemoryShare] = {}

    def __getitem__(self, name: str) -> MemoryShare:
        if name not in self.shares:

            def give_up() -> None:
                self.gave_up.append(name)
                self.shares[name].close()

            share = self.budget.share(lambda: self.notified.append(name), give_up)
            share.is_peer = name.startswith("peer")
            self.shares[name] = share
        return self.shares[name]

    def fill(self) -> None:
        """One share holds all there is."""
        self["full"].hold(self.budget.limit_bytes)


def test_a_little_memory_is_given_at_once() -> None:
    holders = Holders()
    holders.fill()
    for number in range(200):
        assert holders[f"small {number}"].take(FREE_BYTES)
    assert holders.budget.waiting_count == 0


def test_what_fits_is_granted_and_counted() -> None:
    holders = Holders()
    for number in range(10):
        assert holders[f"{number}"].take(LARGE)
    assert holders.budget.used_bytes == LIMIT
    assert not holders.budget.has_room
    holders["3"].close()
    assert holders.budget.used_bytes == LIMIT - LARGE
    assert holders.budget.has_room


def test_it_is_plentiful_while_there_is_room_and_no_waiter() -> None:
    holders = Holders()
    assert holders.budget.is_plentiful
    holders.fill()
    assert not holders.budget.is_plentiful
    holders["a"].take(LARGE)
    holders["b"].take(LARGE)
    holders["a"].close()
    holders["full"].close()
    assert holders.budget.has_room
    assert not holders.budget.is_plentiful, "b has yet to ask again"
    holders["b"].take(LARGE)
    assert holders.budget.is_plentiful


def test_one_goes_on_beyond_the_limit_and_the_others_wait_oldest_first() -> None:
    holders = Holders()
    holders.fill()
    assert holders["a"].take(LARGE)  # alone
    assert holders["a"].take(50 * LARGE)  # as far as it likes
    for name in "bcd":
        assert not holders[name].take(LARGE)
    assert holders.notified == []
    holders["a"].hold(0)
    assert holders.notified == ["b"]
    assert not holders["d"].take(LARGE), "it came later"
    assert holders["b"].take(LARGE)
    holders["full"].close()
    holders["b"].hold(0)
    assert holders.notified[-1] == "c"
    assert holders["c"].take(LARGE)
    assert holders.notified[-1] == "d", "there is room for it, too"
    assert holders["d"].take(LARGE)
    assert holders.budget.waiting_count == 0


def test_a_request_larger_than_the_limit_gets_through() -> None:
    holders = Holders(limit_bytes=1)
    assert holders["a"].take(LARGE)
    assert holders["b"].take(2 * LARGE), "the one that may go beyond the limit"
    assert not holders["c"].take(2 * LARGE)
    holders["b"].hold(0)
    assert holders.notified == ["c"]
    assert holders["c"].take(2 * LARGE)


def test_nodes_of_the_cluster_come_first() -> None:
    holders = Holders()
    holders.fill()
    assert holders["beyond"].take(LARGE)
    for name in ("client 1", "client 2", "peer 1", "peer 2"):
        assert not holders[name].take(LARGE)
    order = []
    holders["beyond"].hold(0)
    while holders.notified:
        name = holders.notified.pop()
        order.append(name)
        assert holders[name].take(LARGE)
        holders[name].hold(0)
    assert order == ["peer 1", "peer 2", "client 1", "client 2"]


def test_a_peer_goes_before_clients_that_wait() -> None:
    holders = Holders()
    holders.fill()
    assert holders["beyond"].take(LARGE)
    assert not holders["client"].take(LARGE)
    holders["full"].hold(0)
    assert holders["peer"].take(LARGE)
    assert holders["client"].take(LARGE)


def test_a_waiter_that_leaves_holds_up_no_other() -> None:
    holders = Holders()
    holders.fill()
    assert holders["a"].take(LARGE)
    assert not holders["b"].take(LARGE)
    assert not holders["c"].take(LARGE)
    holders["b"].close()
    holders["a"].close()
    assert holders.notified[-1] == "c"
    assert holders["c"].take(LARGE)


def test_no_limit() -> None:
    holders = Holders(limit_bytes=-1)
    assert all(holders[f"{number}"].take(1 << 40) for number in range(100))


def test_who_stands_still_gives_up_while_others_wait() -> None:
    holders = Holders()
    for name in ("still", "moves"):
        holders[name].hold(LIMIT)
    for _ in range(3):
        holders.budget.close_stalled()
        holders["moves"].moved_bytes += FREE_BYTES
    assert holders.gave_up == [], "nobody waits"
    assert holders["beyond"].take(LARGE)
    assert not holders["waits"].take(LARGE)
    holders.budget.close_stalled()
    assert holders.gave_up == [], "the first look only takes note"
    for name in ("moves", "beyond"):
        holders[name].moved_bytes += FREE_BYTES
    holders.budget.close_stalled()
    assert holders.gave_up == ["still"]
    holders["moves"].moved_bytes += FREE_BYTES
    holders.budget.close_stalled()
    assert holders.gave_up == ["still", "beyond"]
    assert holders.notified[-1] == "waits"


def test_little_memory_is_never_a_reason_to_give_up() -> None:
    holders = Holders()
    holders.fill()
    holders["idle"].hold(FREE_BYTES)
    assert holders["beyond"].take(LARGE)
    assert not holders["waits"].take(LARGE)
    holders.budget.close_stalled()
    holders.budget.close_stalled()
    assert "idle" not in holders.gave_up


def test_who_was_told_to_wait_may_stand_still() -> None:
    """For its quota's sake; once it may go on, it is held to progress like all others."""
    holders = Holders()
    holders["muted"].hold(LIMIT)
    holders["muted"].is_resting = True
    assert holders["beyond"].take(LARGE)
    assert not holders["waits"].take(LARGE)
    for _ in range(3):
        holders.budget.close_stalled()
        holders["beyond"].moved_bytes += FREE_BYTES
    assert holders.gave_up == []
    holders["muted"].is_resting = False
    for _ in range(2):
        holders.budget.close_stalled()
        holders["beyond"].moved_bytes += FREE_BYTES
    assert holders.gave_up == ["muted"]


def test_everybody_is_served_in_the_end() -> None:
    """Random requests: used memory is bounded, nobody starves, all is given back."""
    rng = Random(1)
    holders = Holders()
    wanted = {f"{'peer' if n % 7 == 0 else 'client'} {n}": rng.randint(1, 300) for n in range(60)}
    holding: dict[str, int] = {}
    waiting = list(wanted)
    steps = 0
    while wanted:
        steps += 1
        assert steps < 10_000, "a share starves"
        for name in [*waiting, *holders.notified]:
            if name in wanted and name not in holding:
                size = wanted[name] * FREE_BYTES
                if holders[name].take(size):
                    holding[name] = size
        waiting, holders.notified[:] = [], []
        assert holders.budget.used_bytes <= LIMIT + 600 * FREE_BYTES
        done = rng.choice(list(holding))
        holders[done].hold(0)
        del holding[done], wanted[done]
    assert holders.budget.used_bytes == 0
    assert holders.budget.waiting_count == 0
