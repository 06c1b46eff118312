"""Who votes now, and who hears of changes."""

from __future__ import annotations

from kraftrio.kraft_meta.quorum.voter_changes import CurrentVoters
from kraftrio.kraft_meta.raft.voters import VoterSet

OLD, NEW = VoterSet.of_ids([1, 2, 3]), VoterSet.of_ids([1, 2, 4])


def test_subscribers_hear_of_the_voters_at_once_and_of_each_change() -> None:
    """In the order in which they came; not of the same set again."""
    voters = CurrentVoters(OLD)
    heard: list[tuple[str, VoterSet]] = []
    voters.subscribe(lambda told: heard.append(("first", told)))
    voters.change(OLD)
    voters.subscribe(lambda told: heard.append(("second", told)))
    voters.change(NEW)
    assert heard == [("first", OLD), ("second", OLD), ("first", NEW), ("second", NEW)]
    assert voters.current == NEW
