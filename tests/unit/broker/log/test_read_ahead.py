"""Who reads a file from front to back finds more and more of it in memory."""

from __future__ import annotations

from kraftrio.broker.log.read_ahead import FIRST_BYTES, MOST_BYTES, ReadAhead

MB = 1 << 20


def test_a_reader_that_goes_on_waits_for_the_disk_less_and_less_often() -> None:
    ahead = ReadAhead()
    in_memory = 0
    waits: list[int] = []
    for position in range(0, 100 * MB, MB):
        if position < in_memory:
            continue
        waits.append(position // MB)
        start, end = ahead.beyond(position, MB)
        assert start == max(position + MB, in_memory)
        assert end - position <= MOST_BYTES
        in_memory = end
    assert waits == [0, 4, 12, 28, 44, 60, 76, 92]


def test_what_is_on_its_way_is_not_asked_for_again() -> None:
    """The disk is slower than the reader."""
    ahead = ReadAhead()
    assert ahead.beyond(0, MB) == (MB, FIRST_BYTES)
    assert ahead.beyond(MB, MB) == (2 * MB, 2 * MB)
    start, end = ahead.beyond(2 * MB, MB)
    assert (start, end) == (FIRST_BYTES, 2 * MB + 2 * FIRST_BYTES)


def test_a_reader_elsewhere_begins_again() -> None:
    ahead = ReadAhead()
    for position in (0, 4 * MB, 12 * MB):
        ahead.beyond(position, MB)
    assert ahead.beyond(500 * MB, MB) == (501 * MB, 500 * MB + FIRST_BYTES)
    assert ahead.beyond(100 * MB, MB) == (101 * MB, 100 * MB + FIRST_BYTES)
    assert ahead.beyond(100 * MB, MB) == (101 * MB, 100 * MB + FIRST_BYTES), "read once more"


def test_more_than_the_window_is_wanted_at_once() -> None:
    ahead = ReadAhead()
    start, end = ahead.beyond(0, 2 * FIRST_BYTES)
    assert start == end == 2 * FIRST_BYTES
