"""The rows of a group: each partition, each member that reads none, and topics that are gone."""

from __future__ import annotations

from kraftrio.clients.cli.groups.lag import DescribedMember, GroupView
from kraftrio.wire.primitives import TopicPartition

FIRST, SECOND, GONE = (TopicPartition(*place) for place in (("t", 0), ("t", 1), ("gone", 0)))


def test_rows_of_a_group() -> None:
    reader = DescribedMember("m-1", "app", "/host", frozenset({FIRST, SECOND}))
    idle = DescribedMember("m-2", "app", "/host", frozenset())
    view = GroupView(
        "g",
        "classic",
        "Stable",
        "range",
        1,
        (reader, idle),
        offsets={FIRST: 7, GONE: 5},
        ends={FIRST: 10, SECOND: 4},
    )
    rows = [
        (row["topic"], row["partition"], row["current_offset"], row["lag"], row["member_id"])
        for row in view.rows
    ]
    assert rows == [
        ("gone", 0, 5, None, None),
        ("t", 0, 7, 3, "m-1"),
        ("t", 1, None, None, "m-1"),
        (None, None, None, None, "m-2"),
    ]
    assert view.summary["lag"] == 3
    assert view.summary["members"] == 2


def test_a_group_is_never_ahead() -> None:
    """Not even where records were deleted, or truncated, behind its offset."""
    view = GroupView("g", "classic", "Empty", "", 1, (), offsets={FIRST: 12}, ends={FIRST: 10})
    assert view.rows[0]["lag"] == 0
