"""Transactions with markers that are not committed: the oldest counts, and many cost nothing."""

from __future__ import annotations

import time
from random import Random

import pytest

from kraftrio.broker.log.producers.unreplicated import UnreplicatedTransactions


@pytest.mark.parametrize("seed", range(5))
def test_the_oldest_one_is_returned(seed: int) -> None:
    """Whatever the order of first offsets; compared with a plain list."""
    random = Random(seed)
    transactions = UnreplicatedTransactions()
    plain: list[tuple[int, int]] = []
    begun: list[int] = []
    offset = 0
    for _ in range(500):
        step = random.random()
        if step < 0.5 or not begun:
            begun.append(offset)
            offset += 1
        elif step < 0.9:
            first_offset = begun.pop(random.randrange(len(begun)))
            transactions.add(first_offset, offset)
            plain.append((first_offset, offset))
            offset += 1
        elif step < 0.99:
            high_watermark = random.randint(max(0, offset - 20), offset)
            transactions.on_committed(high_watermark)
            plain = [one for one in plain if one[1] >= high_watermark]
        else:
            transactions.clear()
            plain.clear()
        assert transactions.first_offset == min((one[0] for one in plain), default=None)
        assert bool(transactions) == bool(plain)


def test_a_log_full_of_them_is_replayed_at_once() -> None:
    """Pairs of transactions that end in the other order, as of two producers at work."""
    transactions = UnreplicatedTransactions()
    began_s = time.thread_time()
    for number in range(50_000):
        transactions.add(4 * number + 1, 4 * number + 2)
        transactions.add(4 * number, 4 * number + 3)
    transactions.on_committed(200_000)
    assert time.thread_time() - began_s < 2, "it takes 0.1 s"
    assert transactions.first_offset is None and not transactions
