"""Who votes now, and who is notified of changes."""

from __future__ import annotations

from kraftrio.kraft_meta.quorum.voter_changes import CurrentVoters
from kraftrio.kraft_meta.raft.voters import VoterSet

OLD, NEW = VoterSet.of_ids([1, 2, 3]), VoterSet.of_ids([1, 2, 4])


def test_subscribers_get_the_voters_at_once_and_each_change() -> None:
    """In the order in which they came; not of the same set again."""
    voters = CurrentVoters(OLD)
    reported: list[tuple[str, VoterSet]] = []
    voters.subscribe(lambda voter_set: reported.append(("first", voter_set)))
    voters.change(OLD)
    voters.subscribe(lambda voter_set: reported.append(("second", voter_set)))
    voters.change(NEW)
    assert reported == [("first", OLD), ("second", OLD), ("first", NEW), ("second", NEW)]
    assert voters.current == NEW
