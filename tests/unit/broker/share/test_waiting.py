"""Whose turn it is: one after the other, each once for each change."""

from __future__ import annotations

from kraftrio.broker.share.waiting import ShareFetchWaiter, Turns


class Pool:
    """Something to be had, by those who wait for it."""

    def __init__(self, waiters: int) -> None:
        self.there = 0
        self.turns = Turns(lambda: self.there > 0)
        self.waiters = [ShareFetchWaiter() for _ in range(waiters)]
        for waiter in self.waiters:
            waiter.join([self.turns])

    def add(self, count: int) -> None:
        self.there += count
        self.turns.on_change()

    def woken(self) -> list[int]:
        return [at for at, waiter in enumerate(self.waiters) if waiter.woken.done]

    def look(self, at: int, *, takes: int) -> None:
        """A waiter uses its turn, and takes so much."""
        waiter = self.waiters[at]
        assert waiter.take_due() == [self.turns]
        self.there -= takes
        self.turns.end_turn(waiter)


def test_one_is_woken_at_a_time() -> None:
    pool = Pool(3)
    pool.add(2)
    assert pool.woken() == [0]
    pool.look(0, takes=1)
    assert pool.woken() == [1]
    pool.look(1, takes=1)
    assert pool.woken() == []


def test_who_has_looked_goes_to_the_back() -> None:
    pool = Pool(2)
    pool.add(1)
    pool.look(0, takes=1)
    pool.add(1)
    assert pool.woken() == [1]


def test_no_waiter_is_woken_twice_for_nothing() -> None:
    """All have looked, and none wants it (there is not enough, say)."""
    pool = Pool(2)
    pool.add(1)
    pool.look(0, takes=0)
    pool.look(1, takes=0)
    assert pool.woken() == []
    pool.turns.on_change()
    assert pool.woken() == [0]


def test_who_leaves_gives_the_turn_on() -> None:
    pool = Pool(3)
    pool.add(1)
    pool.waiters[0].leave()
    assert pool.woken() == [0, 1]  # the first one to find that it is over
    pool.waiters[2].leave()
    pool.waiters[1].leave()
    assert len(pool.turns) == 0


def test_one_that_waits_for_several() -> None:
    first, second = Pool(0), Pool(0)
    waiter = ShareFetchWaiter()
    waiter.join([first.turns, second.turns])
    for pool in (first, second):
        pool.add(1)
    assert waiter.take_due() == [first.turns, second.turns]
    assert not waiter.woken.done
    waiter.wake()
    assert waiter.woken.done and waiter.take_due() == []


def test_all_are_woken_when_it_ends() -> None:
    pool = Pool(3)
    pool.turns.wake_all()
    assert pool.woken() == [0, 1, 2]
