"""The producer's memory: nobody overtakes who waits for it."""

from __future__ import annotations

from kraftrio.clients.producer.buffer_pool import BufferPool


def test_memory_is_taken_and_given_back() -> None:
    pool = BufferPool(100)
    assert pool.reserve(60)
    assert not pool.reserve(41)
    assert pool.reserve(40)
    assert pool.free_bytes == 0
    pool.release(60)
    assert pool.free_bytes == 60


def test_while_some_wait_only_the_first_of_them_gets_memory() -> None:
    pool = BufferPool(100)
    assert pool.reserve(90)
    pool.waiters = 1
    assert not pool.reserve(1), "there would be enough, but others came first"
    assert not pool.grant(50)
    pool.release(90)
    assert not pool.reserve(1)
    assert pool.grant(50)
    pool.waiters = 0
    assert pool.reserve(50)
