"""The order in which offsets are read: all of them once, no partition waits for another."""

from __future__ import annotations

import pytest

from kraftrio.clients.console.records.windows import MAX_WINDOW, Window, plan_rounds
from kraftrio.wire.primitives import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_oldest_first() -> None:
    rounds = list(plan_rounds({T0: 5, T1: 0}, {T0: 105, T1: 8}, 10, newest_first=False))
    assert rounds == [
        [Window(T0, 5, 15), Window(T1, 0, 8)],
        [Window(T0, 15, 55)],
        [Window(T0, 55, 105)],
    ]


def test_the_newest_first() -> None:
    rounds = list(plan_rounds({T0: 5, T1: 3}, {T0: 60, T1: 3}, 10, newest_first=True))
    assert rounds == [[Window(T0, 50, 60)], [Window(T0, 10, 50)], [Window(T0, 5, 10)]]


@pytest.mark.parametrize("newest_first", [False, True])
def test_every_offset_is_read_once(newest_first: bool) -> None:
    begins, ends = {T0: 7, T1: 1_000_000}, {T0: 7, T1: 1_500_003}
    rounds = list(plan_rounds(begins, ends, 2_000, newest_first=newest_first))
    windows = sorted(window for windows in rounds for window in windows)
    assert {window.item for window in windows} == {T1}
    assert all(window.end - window.begin <= MAX_WINDOW for window in windows)
    edges = [window.begin for window in windows] + [windows[-1].end]
    assert edges == [1_000_000, *(window.end for window in windows)]
    assert len(rounds) < 20
