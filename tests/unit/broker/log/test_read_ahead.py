"""Who reads a file from front to back finds in memory what it comes to."""

from __future__ import annotations

from kraftrio.broker.log.read_ahead import FIRST_BYTES, MOST_BYTES, ReadAhead

MB = 1 << 20


def test_a_reader_that_goes_on_waits_for_the_disk_once() -> None:
    """What comes next is asked for in time, in stretches that follow each other."""
    ahead = ReadAhead()
    ahead.missed(0, MB)
    stretches: list[tuple[int, int]] = []
    in_memory = MB
    for position in range(MB // 2, 100 * MB, MB // 2):
        wanted = ahead.wanted(position)
        if wanted is not None:
            assert wanted[0] == in_memory
            stretches.append(wanted)
            in_memory = wanted[1]
        if stretches:
            assert position + FIRST_BYTES <= in_memory <= position + 2 * MOST_BYTES
    sizes = [end - start for start, end in stretches]
    assert sizes[:2] == [FIRST_BYTES, MOST_BYTES]
    assert set(sizes[1:]) == {MOST_BYTES}


def test_nothing_is_loaded_ahead_for_who_does_not_go_on() -> None:
    ahead = ReadAhead()
    for position in (50 * MB, 500 * MB, 100 * MB, 100 * MB, 102 * MB):
        assert ahead.wanted(position) is None
        ahead.missed(position, position + MB)
        for here in (position, position + MB // 2, position + MB + 1):
            assert ahead.wanted(here) is None


def test_a_reader_elsewhere_begins_again() -> None:
    ahead = ReadAhead()
    ahead.missed(0, MB)
    assert ahead.wanted(MB) == (MB, MB + FIRST_BYTES)
    assert ahead.wanted(500 * MB) is None, "what it wants is in memory"
    assert ahead.wanted(2 * MB) == (MB + FIRST_BYTES, MB + FIRST_BYTES + MOST_BYTES)
    ahead.missed(500 * MB, 501 * MB)
    assert ahead.wanted(3 * MB) is None
    assert ahead.wanted(501 * MB) == (501 * MB, 501 * MB + FIRST_BYTES)


def test_a_disk_that_is_slower_than_its_reader() -> None:
    """A reader that comes to what is still on its way waits for that, and nothing else changes."""
    ahead = ReadAhead()
    ahead.missed(0, MB)
    assert ahead.wanted(MB) == (MB, MB + FIRST_BYTES)
    ahead.missed(MB, 2 * MB)
    assert ahead.wanted(2 * MB) == (MB + FIRST_BYTES, MB + FIRST_BYTES + MOST_BYTES)
    end = MB + FIRST_BYTES + MOST_BYTES
    ahead.missed(end - 1, end + MB)
    assert ahead.wanted(end) == (end + MB, end + MB + MOST_BYTES)
