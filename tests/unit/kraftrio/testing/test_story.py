"""The story of a run: lines taken apart, aligned again, and as a page with a lane for each."""

from __future__ import annotations

from kraftrio.testing.story import Event, aligned, events_of, page

_LINES = [
    "   0.000000 n2     start  n2#1",
    "   1.500000 program warni  client: <b> lost",
    "its place",
    "  12.000000 n10    crash  kill -9",
    "  13.000000 world  FAIL   the end",
]


def test_lines_are_taken_apart() -> None:
    events = events_of(_LINES)
    assert events[1] == Event("1.500000", "program", "warni", "client: <b> lost its place")
    assert len(events) == 4
    assert aligned(events).splitlines()[::3] == [
        "     0.000000 n2      start  n2#1",
        "    13.000000 world   FAIL   the end",
    ]
    assert aligned([]) == ""


def test_the_page_has_lanes() -> None:
    """What concerns all first, then clients, then nodes by number; nothing of a text is markup."""
    html = page([("test_a[<x>]", "failed", "\n".join(_LINES))])
    assert "<th>world</th><th>program</th><th>n2</th><th>n10</th>" in html
    assert "test_a[&lt;x&gt;]: failed" in html
    assert "&lt;b&gt; lost its place" in html
    assert "<tr class=fault><td>12.000000</td><td></td><td></td><td></td><td><span" in html
    assert "<tr class=error><td>13.000000</td><td><span" in html
