"""Who reads a file from front to back finds in memory what it comes to."""

from __future__ import annotations

from kraftrio.broker.log.read_ahead import FIRST_BYTES, MOST_BYTES, MOST_READERS, ReadAhead

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


def test_several_readers_are_far_behind_each_other() -> None:
    """Each has a stretch in front of it. There is one too many: the earliest begins again."""
    ahead = ReadAhead()
    places = [100 * MB * number for number in range(MOST_READERS)]
    for place in places:
        ahead.missed(place, place + MB)
    for stretch in (FIRST_BYTES, MOST_BYTES):
        for place in places:
            start = place + MB if stretch == FIRST_BYTES else place + MB + FIRST_BYTES
            assert ahead.wanted(place + MB) == (start, start + stretch)
    assert ahead.wanted(950 * MB) is None, "what it wants is in memory"
    ahead.missed(900 * MB, 901 * MB)
    assert ahead.wanted(900 * MB + MB) == (901 * MB, 901 * MB + FIRST_BYTES)
    assert [ahead.wanted(place + 12 * MB) is None for place in places] == [True, *[False] * 3]


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
