"""The consensus core: elections, replication, divergence, and random histories."""

from __future__ import annotations

import pytest

from kraftrio.kraft_meta.ports import ElectionState, LogBatch, OffsetAndEpoch
from kraftrio.kraft_meta.quorum_state import Leader, State
from kraftrio.kraft_meta.raft import RaftCore
from kraftrio.kraft_meta.raft_messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchResponse,
    Message,
    Vote,
    VoteResponse,
)
from kraftrio.kraft_meta.raft_ready import NotLeaderError
from kraftrio.wire.errors import ErrorCode
from tests.unit.kraft_meta.raft_cluster import CONFIG, Cluster, Node


def core_of(node: Node) -> RaftCore:
    assert node.core is not None
    return node.core


# ---- one voter


def test_a_quorum_of_one_elects_itself_at_once_and_commits_by_its_own_disk() -> None:
    """First Ready: vote, leadership and LeaderChange; committed once that is durable."""
    cluster = Cluster([1])
    node = cluster.nodes[1]
    core = core_of(node)
    assert (core.state, core.epoch, core.leader_id) == (State.LEADER, 1, 1)
    assert node.state == ElectionState(1, 1, 1)
    assert node.log.batches[0].is_control
    assert core.high_watermark == 1
    assert core.next_deadline_ms() is None


def test_a_restart_of_the_only_voter_opens_a_new_epoch() -> None:
    """The epoch of the former life is never led again."""
    cluster = Cluster([1])
    cluster.propose(b"a")
    cluster.crash(1)
    cluster.restart(1)
    assert core_of(cluster.nodes[1]).epoch == 2
    assert cluster.values(1) == [b"a"]


def test_proposals_made_while_the_disk_works_share_one_batch() -> None:
    """Group commit (invariant 5): offsets are given at once, the batch comes with the Ready."""
    core = core_of(Cluster([1]).nodes[1])
    assert core.propose([b"a", b"b"]) == 1
    ready = core.ready(7)
    assert core.propose([b"c"]) == 3
    assert core.propose([b"d"]) == 4
    assert not core.has_ready()
    assert core.high_watermark == 1
    core.advance()
    assert core.high_watermark == 3
    assert [b.values for b in ready.batches] == [(b"a", b"b")]
    (batch,) = core.ready(8).batches
    assert batch == LogBatch(3, 1, 8, (b"c", b"d"))


def test_nothing_is_committed_before_it_is_durable() -> None:
    """The high watermark moves in advance(), not in ready()."""
    core = core_of(Cluster([1]).nodes[1])
    core.propose([b"a"])
    ready = core.ready(0)
    assert ready.high_watermark is None
    core.advance()
    assert core.ready(0).high_watermark == 2


def test_a_lost_state_file_does_not_lead_an_old_epoch_again() -> None:
    """The log's last epoch is remembered even when quorum-state is gone."""
    cluster = Cluster([1])
    cluster.crash(1)
    cluster.nodes[1].state = None
    cluster.restart(1)
    assert core_of(cluster.nodes[1]).epoch == 2


# ---- three voters


def test_three_voters_elect_one_leader_and_replicate() -> None:
    """Everybody applies the same records and knows the leader."""
    cluster = Cluster([1, 2, 3])
    leader = cluster.wait_for_leader()
    cluster.propose(b"a", b"b")
    cluster.propose(b"c")
    cluster.run(500)
    for node_id in (1, 2, 3):
        assert cluster.values(node_id) == [b"a", b"b", b"c"]
        assert core_of(cluster.nodes[node_id]).leader_id == leader.node_id


def test_followers_learn_of_commits_without_waiting_for_the_long_poll() -> None:
    """A follower's fetch says what high watermark it knows; news are answered at once."""
    cluster = Cluster([1, 2, 3])
    cluster.wait_for_leader()
    cluster.run(1000)
    cluster.propose(b"a")
    cluster.run(150)
    assert [cluster.values(node_id) for node_id in (1, 2, 3)] == [[b"a"]] * 3


def test_a_new_leader_takes_over_when_the_old_one_is_gone() -> None:
    """What was committed stays; the epoch rises."""
    cluster = Cluster([1, 2, 3])
    first = cluster.wait_for_leader()
    epoch = core_of(first).epoch
    cluster.propose(b"a")
    cluster.run(500)
    cluster.crash(first.node_id)
    second = cluster.wait_for_leader()
    cluster.run(500)
    second = cluster.wait_for_leader()
    assert second is not first
    assert core_of(second).epoch > epoch
    cluster.propose(b"b")
    cluster.restart(first.node_id)
    cluster.run(3000)
    assert cluster.values(first.node_id) == [b"a", b"b"]


def test_a_leader_without_a_majority_resigns() -> None:
    """Check-quorum: 1.5 fetch timeouts after a majority was last heard of."""
    cluster = Cluster([1, 2, 3])
    leader = cluster.wait_for_leader()
    for node_id in (1, 2, 3):
        if node_id != leader.node_id:
            cluster.crash(node_id)
    cluster.run(CONFIG.check_quorum_timeout_ms + 600)
    core = core_of(leader)
    assert not core.is_leader
    assert core.leader_id == -1
    with pytest.raises(NotLeaderError):
        core.propose([b"x"])


def test_what_an_isolated_leader_wrote_is_cut_off() -> None:
    """Divergence: the old leader truncates to the common prefix and follows (KIP-595)."""
    cluster = Cluster([1, 2, 3])
    old = cluster.wait_for_leader()
    cluster.propose(b"a")
    cluster.run(500)
    cluster.cut = {old.node_id}
    core_of(old).propose([b"lost"])
    cluster._settle(old)
    cluster.run(5000)
    cluster.propose(b"b")
    cluster.run(500)
    cluster.cut = set()
    cluster.run(5000)
    assert [cluster.values(n) for n in (1, 2, 3)] == [[b"a", b"b"]] * 3


def test_a_node_that_comes_back_does_not_depose_a_working_leader() -> None:
    """Pre-vote: voters that fetch from a leader do not let others raise the epoch (KIP-996)."""
    cluster = Cluster([1, 2, 3])
    leader = cluster.wait_for_leader()
    cluster.run(1000)
    epoch = core_of(leader).epoch
    other = next(n for n in (1, 2, 3) if n != leader.node_id)
    cluster.cut = {other}
    cluster.run(10_000)
    assert core_of(cluster.nodes[other]).epoch == epoch
    cluster.cut = set()
    cluster.run(3000)
    assert core_of(leader).is_leader
    assert core_of(leader).epoch == epoch


def test_a_resigning_leader_hands_over_quickly() -> None:
    """EndQuorumEpoch names the successor that has the most; no election timeout passes."""
    cluster = Cluster([1, 2, 3])
    leader = cluster.wait_for_leader()
    cluster.run(1000)
    core_of(leader).resign(cluster.now_ms)
    cluster._settle(leader)
    cluster.run(300)
    successor = cluster.leader
    assert successor is not None
    assert successor is not leader


def test_an_observer_finds_the_leader_and_follows() -> None:
    """It fetches from any voter to learn who leads; it never votes and does not count."""
    cluster = Cluster([1, 2, 3], observers=[9])
    cluster.wait_for_leader()
    cluster.propose(b"a")
    cluster.run(5000)
    assert cluster.values(9) == [b"a"]
    leader = cluster.leader
    assert leader is not None
    role = core_of(leader).quorum.role
    assert isinstance(role, Leader)
    assert list(role.observers) == [9]
    cluster.crash(leader.node_id)
    cluster.wait_for_leader()
    cluster.run(5000)
    assert core_of(cluster.nodes[9]).state is State.FOLLOWER


def test_a_follower_that_is_too_far_behind_gets_a_snapshot() -> None:
    """The leader's log starts later than the follower's ends (KIP-630)."""
    cluster = Cluster([1, 2, 3])
    leader = cluster.wait_for_leader()
    behind = next(n for n in (1, 2, 3) if n != leader.node_id)
    cluster.crash(behind)
    cluster.propose(b"a")
    cluster.propose(b"b")
    cluster.run(500)
    snapshot_id = leader.log.take_snapshot(leader.log.end_offset)
    core_of(leader).on_snapshot_written(snapshot_id)
    cluster.propose(b"c")
    cluster.restart(behind)
    cluster.run(5000)
    assert cluster.nodes[behind].log.snapshot_id == snapshot_id
    assert cluster.values(behind) == [b"a", b"b", b"c"]


# ---- single messages


def follower() -> tuple[Cluster, RaftCore]:
    """Give node 1 of three, which waits alone (the others are down) in epoch 0."""
    cluster = Cluster([1, 2, 3])
    core = core_of(cluster.nodes[1])
    return cluster, core


def vote(epoch: int, *, pre_vote: bool = False, source: int = 2, end: int = 0) -> Vote:
    return Vote(source, 1, epoch, OffsetAndEpoch(end, 0), pre_vote)


def answer(core: RaftCore, message: Message) -> Message:
    """Step a message and return the one message that answers it."""
    core.step(message, 0)
    ready = core.ready(0)
    core.advance()
    (reply,) = [m for m in ready.messages if not isinstance(m, Fetch)]
    return reply


def test_a_vote_is_given_once_per_epoch() -> None:
    """To the first that asks; again to the same, to nobody else; a higher epoch starts anew."""
    _cluster, core = follower()
    for message, granted in [
        (vote(1), True),
        (vote(1, source=3), False),
        (vote(1), True),
        (vote(0, source=3), False),
        (vote(2, source=3), True),
        (vote(3, source=99), False),
    ]:
        reply = answer(core, message)
        assert isinstance(reply, VoteResponse)
        assert reply.vote_granted is granted, message
    assert core.quorum.election_state == ElectionState(2, -1, 3)


def test_a_vote_survives_a_restart() -> None:
    """The Ready has the vote to persist with the answer that grants it."""
    cluster, core = follower()
    core.step(vote(1), 0)
    ready = core.ready(0)
    assert ready.election_state == ElectionState(1, -1, 2)
    cluster.nodes[1].state = ready.election_state
    cluster.restart(1)
    reply = answer(core_of(cluster.nodes[1]), vote(1, source=3))
    assert isinstance(reply, VoteResponse)
    assert not reply.vote_granted


def test_a_pre_vote_promises_nothing() -> None:
    """It neither raises the epoch nor uses up the vote."""
    _cluster, core = follower()
    reply = answer(core, vote(0, pre_vote=True))
    assert isinstance(reply, VoteResponse)
    assert reply.vote_granted
    assert core.quorum.election_state == ElectionState()


def test_a_candidate_with_a_shorter_log_gets_no_vote() -> None:
    """Neither vote nor pre-vote."""
    cluster, core = follower()
    cluster.nodes[1].log.append([LogBatch(0, 1, 0, (b"x",))])
    cluster.restart(1)
    core = core_of(cluster.nodes[1])
    for pre_vote in (True, False):
        reply = answer(core, vote(5, pre_vote=pre_vote, end=9))
        assert isinstance(reply, VoteResponse)
        assert not reply.vote_granted


def test_old_epochs_are_answered_with_the_new_one() -> None:
    """BeginQuorumEpoch, EndQuorumEpoch and Fetch of former epochs change nothing."""
    _cluster, core = follower()
    answer(core, vote(5))
    stale: list[Message] = [BeginQuorumEpoch(3, 1, 4), EndQuorumEpoch(3, 1, 4, (1,))]
    for message in stale:
        reply = answer(core, message)
        assert getattr(reply, "error", None) is ErrorCode.FENCED_LEADER_EPOCH
        assert getattr(reply, "epoch", None) == 5
    for epoch, error in [
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]:
        reply = answer(core, Fetch(3, 1, epoch, 0, 0, -1, 0))
        assert isinstance(reply, FetchResponse)
        assert reply.error is error
    assert (core.epoch, core.leader_id) == (5, -1)


def test_a_leader_is_followed_when_it_announces_itself() -> None:
    """BeginQuorumEpoch of this epoch or a higher one; the follower fetches at once."""
    _cluster, core = follower()
    core.step(BeginQuorumEpoch(2, 1, 3), 0)
    ready = core.ready(0)
    assert (core.state, core.epoch, core.leader_id) == (State.FOLLOWER, 3, 2)
    assert ready.election_state == ElectionState(3, 2, -1)
    assert [m.destination for m in ready.messages if isinstance(m, Fetch)] == [2]


def test_repeated_fetch_responses_are_ignored() -> None:
    """A duplicate does not append twice, and a stale one does not truncate."""
    _cluster, core = follower()
    core.step(BeginQuorumEpoch(2, 1, 3), 0)
    core.ready(0)
    core.advance()
    response = FetchResponse(
        2, 1, 3, 2, 0, 0, high_watermark=1, batches=(LogBatch(0, 3, 0, (b"a",)),)
    )
    core.step(response, 1)
    core.step(response, 2)
    core.step(FetchResponse(2, 1, 3, 2, 0, 0, diverging=OffsetAndEpoch(0, 0)), 3)
    ready = core.ready(0)
    assert len(ready.batches) == 1
    assert ready.truncate_to is None
    assert (core.log_end_offset, ready.high_watermark) == (1, 1)


# ---- random histories


@pytest.mark.parametrize("seed", range(25))
def test_random_histories_are_safe_and_go_on(seed: int) -> None:
    """Loss, duplication, partitions, crashes at every step of a Ready: safe; then progress."""
    cluster = Cluster([1, 2, 3], observers=[9], seed=seed)
    rng = cluster.rng
    cluster.drop_rate = rng.random() * 0.3
    cluster.duplicate_rate = rng.random() * 0.2
    cluster.crash_rate = rng.random() * 0.02
    proposed = 0
    for _round in range(60):
        cluster.run(rng.random() * 800)
        for node in cluster.nodes.values():
            if node.core is None and rng.random() < 0.6:
                cluster.restart(node.node_id)
        if rng.random() < 0.15:
            cluster.cut = {rng.choice([1, 2, 3])} if rng.random() < 0.7 else set()
        if rng.random() < 0.05:
            cluster.crash(rng.choice([1, 2, 3, 9]))
        leader = cluster.leader
        if leader is None or leader.core is None:
            continue
        for _ in range(rng.randrange(4)):
            if leader.core is not None and leader.core.is_leader:
                proposed += 1
                cluster.propose(b"%d" % proposed)
        core = leader.core
        if rng.random() < 0.1 and core is not None and core.high_watermark:
            start = leader.log.start_offset
            ends = [
                b.end_offset
                for b in leader.log.batches
                if start < b.end_offset <= core.high_watermark
            ]
            if ends:
                core.on_snapshot_written(leader.log.take_snapshot(rng.choice(ends)))
    cluster.drop_rate = cluster.duplicate_rate = cluster.crash_rate = 0
    cluster.cut = set()
    for node in cluster.nodes.values():
        if node.core is None:
            cluster.restart(node.node_id)
    cluster.run(10_000)
    cluster.wait_for_leader()
    cluster.propose(b"end")
    cluster.run(5_000)
    values = cluster.values(1)
    assert values[-1] == b"end"
    assert len(set(values)) == len(values)
    assert [cluster.values(n) for n in (2, 3, 9)] == [values] * 3


def test_a_history_is_its_seed() -> None:
    """The same seed gives the same trace to the last line."""

    def trace() -> list[str]:
        cluster = Cluster([1, 2, 3], seed=5)
        cluster.drop_rate = 0.2
        cluster.run(20_000)
        return cluster.trace

    assert trace() == trace()
