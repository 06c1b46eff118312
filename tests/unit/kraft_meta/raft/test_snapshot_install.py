"""Which snapshots from the leader may take the log's place."""

from __future__ import annotations

from kraftrio.kraft_meta.raft.quorum_state import Follower
from kraftrio.kraft_meta.raft.values import LogBatch, SnapshotId
from tests.unit.kraft_meta.raft.core_parts import CONFIG, Parts, parts

OFFERED = SnapshotId(10, 1)


def offered(*, end_offset: int = 3) -> Parts:
    """A follower of node 2, which has offered a snapshot."""
    core = parts(end_offset=end_offset)
    core.follow()
    core.snapshots.on_offer(2, OFFERED, 0)
    return core


def test_an_offered_snapshot_takes_the_place_of_the_log() -> None:
    """The shell learns once what to fetch; then the log begins at the snapshot's end."""
    core = offered()
    assert core.snapshots.is_wanted
    assert core.snapshots.take_wanted() == (2, OFFERED)
    assert core.snapshots.take_wanted() is None
    assert core.snapshots.begin(OFFERED)
    assert core.snapshots.is_running
    core.snapshots.on_installed(OFFERED, 70)
    assert not core.snapshots.is_running
    assert core.state.log.end_offset == 10
    assert core.schedule.next_ms == 70


def test_a_log_that_has_grown_since_the_offer_is_not_replaced() -> None:
    """What was appended may be committed by now."""
    core = offered()
    core.state.log.append_fetched([LogBatch(3, 1, 0, (b"a",))], 1)
    assert not core.snapshots.begin(OFFERED)
    core.snapshots.on_failed(100)
    assert core.schedule.next_ms == 100 + CONFIG.retry_backoff_ms
    assert not core.snapshots.on_progress(2, 100)


def test_only_the_offered_snapshot_is_installed_and_only_by_a_follower() -> None:
    """Another one, or one that was committed here already, is of no use."""
    core = offered()
    assert not core.snapshots.begin(SnapshotId(9, 1))
    core.state.log.advance_high_watermark(10)
    assert not core.snapshots.begin(OFFERED)
    core = offered()
    core.roles.become_unattached(2, 0)
    assert not core.snapshots.begin(OFFERED)


def test_a_node_does_not_stand_for_election_while_its_log_is_being_replaced() -> None:
    """It waits for a leader instead; a failure of another download ends nothing."""
    core = offered()
    assert core.snapshots.begin(OFFERED)
    core.snapshots.on_failed(0)
    assert core.snapshots.is_running
    assert not core.roles.become_prospective(0)
    core.snapshots.on_install_failed(0)
    assert core.roles.become_prospective(0)


def test_a_piece_of_the_snapshot_is_a_sign_of_life() -> None:
    """Of the leader alone."""
    core = offered()
    role = core.role
    assert isinstance(role, Follower)
    assert not core.snapshots.on_progress(3, 900)
    assert core.snapshots.on_progress(2, 900)
    assert role.fetch_deadline_ms == 900 + CONFIG.fetch_timeout_ms
