"""As whom a member of the consumer protocol commits."""

from __future__ import annotations

from kraftrio.clients.consumer.members.epoch_standing import EpochStanding
from kraftrio.clients.group_offsets import GroupMetadata
from kraftrio.clients.heartbeat_member.member import HeartbeatMember, Reconcile
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.heartbeat_member.epoch_group import A, answer, core, refusal

MINE = [TopicPartition("a", 0)]


def standing() -> tuple[EpochStanding, HeartbeatMember]:
    member, _ = core("m1")
    member.step(0)
    return EpochStanding(member, "g", "i"), member


def test_a_member_commits_with_its_newest_epoch() -> None:
    """Before it is in the group, it is nobody, and its commits have to wait."""
    who, member = standing()
    assert who.metadata == GroupMetadata("g", -1, "m1", "i")
    assert (who.owner, who.reader, who.can_commit, who.is_rebalancing) == (None, None, False, True)
    member.heartbeat_answered(member.heartbeat(0), answer(4, {A: [0]}), 0)
    newest = GroupMetadata("g", 4, "m1", "i")
    assert who.metadata == who.owner == who.reader == newest
    assert (who.can_commit, who.is_rebalancing) == (True, False)
    member.heartbeat_answered(member.heartbeat(5_000), answer(6), 5_000)
    assert who.metadata.generation_id == 6


def test_who_was_thrown_out_stays_the_owner_of_what_it_read() -> None:
    """So that the coordinator refuses what is committed for it in a transaction."""
    who, member = standing()
    member.heartbeat_answered(member.heartbeat(0), answer(4, {A: [0]}), 0)
    step = member.step(0)
    assert isinstance(step, Reconcile)
    member.revoked(step)
    member.reconciled(step)
    before = who.tenure(MINE)
    member.heartbeat_answered(member.heartbeat(0), refusal(ErrorCode.FENCED_MEMBER_EPOCH), 0)
    assert who.owner == GroupMetadata("g", 4, "m1", "i")
    assert who.metadata.generation_id == -1
    assert (who.reader, who.can_commit, who.is_rebalancing) == (None, False, True)
    assert who.tenure(MINE) != before


def test_a_refused_commit_hastens_the_heartbeat() -> None:
    """The coordinator then sends the epoch that the commit lacked, or that the member is out."""
    who, member = standing()
    member.heartbeat_answered(member.heartbeat(0), answer(4, {A: []}), 0)
    step = member.step(0)
    assert isinstance(step, Reconcile)
    member.revoked(step)
    member.reconciled(step)
    member.heartbeat_answered(member.heartbeat(0), answer(4), 0)
    assert member.heartbeat(10) is None
    who.refused(ErrorCode.STALE_MEMBER_EPOCH)
    assert member.heartbeat(10) is not None
