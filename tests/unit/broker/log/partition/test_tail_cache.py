"""The newest batches in memory: limits, demand, and who loses when all is full."""

from __future__ import annotations

from kraftrio.broker.log.partition.tail_cache import TailBudget, TailCache


def filled(budget: TailBudget, count: int, size: int = 10, limit: int = 100) -> TailCache:
    cache = TailCache(budget, limit)
    cache.wanted = True
    for number in range(count):
        cache.append(b"%d" % (number % 10) * size, number * 2, number * 2 + 1)
        cache.read(number * 2, 1, 10**9, True)  # a follower reads
    return cache


def test_reads_whole_pieces_by_size_and_offset() -> None:
    cache = filled(TailBudget(), 5)
    assert cache.read(0, 25, 100, False) == (b"0" * 10 + b"1" * 10, 4)
    assert cache.read(1, 10, 100, False) == (b"0" * 10, 2)
    assert cache.read(0, 100, 7, False) == (b"0" * 10 + b"1" * 10 + b"2" * 10, 6)
    assert cache.read(0, 5, 100, False) == (b"", 0)
    assert cache.read(0, 5, 100, True) == (b"0" * 10, 2)
    assert cache.read(0, 5, 1, True) == (b"", 0)
    assert cache.read(10, 5, 100, True) is None


def test_oldest_pieces_go_beyond_the_limit() -> None:
    """Memory is bounded for each log, and what is dropped is not answered."""
    budget = TailBudget()
    cache = filled(budget, 1000)
    assert cache.size_bytes == budget.used_bytes == 100
    assert cache.read(0, 50, 10**9, True) is None
    assert cache.read(1979, 10, 10**9, True) is None
    found = cache.read(1980, 20, 10**9, True)
    assert found == (b"0" * 10 + b"1" * 10, 1984)


def test_without_readers_it_ends() -> None:
    """Nobody asked during a whole limit's worth of appends: it stops copying."""
    budget = TailBudget()
    cache = TailCache(budget, 100)
    cache.wanted = True
    for number in range(11):
        cache.append(b"x" * 10, number, number)
    assert not cache.wanted
    assert cache.size_bytes == budget.used_bytes == 0


def test_all_logs_share_a_budget() -> None:
    """When together they are too large, the one in use longest is emptied."""
    budget = TailBudget(250)
    first, second = filled(budget, 10), filled(budget, 10)
    assert budget.used_bytes == 200
    third = filled(budget, 10)
    assert (first.size_bytes, second.size_bytes, third.size_bytes) == (0, 100, 100)
    assert budget.used_bytes == 200
    second.clear()
    third.clear()
    assert budget.used_bytes == 0
    assert not budget.caches
