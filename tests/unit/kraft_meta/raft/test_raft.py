"""The consensus core: elections, replication, divergence, and random histories."""

from __future__ import annotations

import pytest

from kraftrio.kraft_meta.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchReply,
    Message,
    Vote,
    VoteReply,
)
from kraftrio.kraft_meta.raft.quorum_state import Leader, State
from kraftrio.kraft_meta.raft.raft import RaftCore
from kraftrio.kraft_meta.raft.ready import NotLeaderError
from kraftrio.kraft_meta.raft.values import ElectionState, LogBatch, OffsetAndEpoch, SnapshotId
from kraftrio.wire.errors import ErrorCode
from tests.unit.kraft_meta.raft.raft_cluster import CONFIG, Cluster, Node


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
    assert node.state == ElectionState(1, 1, 1, is_proven=True, committed_offset=1)
    assert node.log.batches[0].is_control
    assert core.log.high_watermark == 1
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
    assert core.log.high_watermark == 1
    core.advance()
    assert core.log.high_watermark == 3
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
    """A follower's fetch says what high watermark it knows; a newer one is answered at once."""
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
    core_of(leader).log.on_snapshot_written(snapshot_id)
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
    """To the first that asks; again to the same, to nobody else; a higher epoch has a new vote."""
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
        assert isinstance(reply, VoteReply)
        assert reply.vote_granted is granted, message
    assert core.quorum.election_state == ElectionState(2, -1, 3)


def test_a_vote_survives_a_restart() -> None:
    """The Ready has the vote to persist with the answer that grants it."""
    cluster, core = follower()
    core.step(vote(1), 0)
    ready = core.ready(0)
    assert ready.election_state == ElectionState(1, -1, 2, is_proven=True)
    cluster.nodes[1].state = ready.election_state
    cluster.restart(1)
    reply = answer(core_of(cluster.nodes[1]), vote(1, source=3))
    assert isinstance(reply, VoteReply)
    assert not reply.vote_granted


def test_a_pre_vote_promises_nothing() -> None:
    """It neither raises the epoch nor uses up the vote."""
    _cluster, core = follower()
    reply = answer(core, vote(0, pre_vote=True))
    assert isinstance(reply, VoteReply)
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
        assert isinstance(reply, VoteReply)
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
        assert isinstance(reply, FetchReply)
        assert reply.error is error
    assert (core.epoch, core.leader_id) == (5, -1)


def test_a_leader_is_followed_when_it_announces_itself() -> None:
    """BeginQuorumEpoch of this epoch or a higher one; the follower fetches at once."""
    _cluster, core = follower()
    core.step(BeginQuorumEpoch(2, 1, 3), 0)
    ready = core.ready(0)
    assert (core.state, core.epoch, core.leader_id) == (State.FOLLOWER, 3, 2)
    assert ready.election_state == ElectionState(3, 2, -1, is_proven=False)
    assert [m.destination for m in ready.messages if isinstance(m, Fetch)] == [2]


def test_repeated_fetch_responses_are_ignored() -> None:
    """A duplicate does not append twice, and a stale one does not truncate."""
    _cluster, core = follower()
    core.step(BeginQuorumEpoch(2, 1, 3), 0)
    core.ready(0)
    core.advance()
    response = FetchReply(2, 1, 3, 2, 0, 0, high_watermark=1, batches=(LogBatch(0, 3, 0, (b"a",)),))
    core.step(response, 1)
    core.step(response, 2)
    core.step(FetchReply(2, 1, 3, 2, 0, 0, diverging=OffsetAndEpoch(0, 0)), 3)
    ready = core.ready(0)
    assert len(ready.batches) == 1
    assert ready.truncate_to is None
    assert (core.log.end_offset, ready.high_watermark) == (1, 1)


def test_an_answer_to_an_earlier_fetch_sends_no_second_one() -> None:
    """With two under way the leader would answer each at once for the other, without end."""
    _cluster, core = follower()
    core.step(BeginQuorumEpoch(2, 1, 3), 0)

    def fetches() -> list[Fetch]:
        sent = [m for m in core.ready(0).messages if isinstance(m, Fetch)]
        core.advance()
        return sent

    (first,) = fetches()
    core.tick(CONFIG.fetch_timeout_ms)  # the leader is silent, but not gone
    core.step(BeginQuorumEpoch(2, 1, 3), CONFIG.fetch_timeout_ms)
    (second,) = fetches()

    def answer(fetch: Fetch) -> FetchReply:
        return FetchReply(2, 1, 3, 2, 0, 0, high_watermark=0, fetch_id=fetch.fetch_id)

    core.step(answer(first), CONFIG.fetch_timeout_ms)
    assert fetches() == []
    core.step(answer(second), CONFIG.fetch_timeout_ms)
    assert len(fetches()) == 1


# ---- a leader that is gone, links that flap


def test_a_leader_that_refuses_connections_is_replaced_at_once() -> None:
    """No fetch timeout passes: a refused fetch starts a pre-vote."""
    for seed in range(20):
        cluster = Cluster([1, 2, 3], observers=[9], seed=seed)
        leader = cluster.wait_for_leader()
        cluster.run(1000)
        cluster.crash(leader.node_id)
        cluster.run(1000)
        successor = cluster.leader
        assert successor is not None, seed
        assert core_of(cluster.nodes[9]).leader_id == successor.node_id


@pytest.mark.parametrize("seed", range(10))
def test_a_flapping_link_causes_no_storm(seed: int) -> None:
    """The leader stays, since another voter reaches it; attempts come less and less often."""
    cluster = Cluster([1, 2, 3], seed=seed)
    leader = cluster.wait_for_leader()
    cluster.run(1000)
    epoch = core_of(leader).epoch
    other = next(n for n in (1, 2, 3) if n != leader.node_id)
    cluster.flapping = {(other, leader.node_id)}
    cluster.sent.clear()
    cluster.run(60_000)
    assert core_of(leader).is_leader
    assert core_of(leader).epoch == epoch
    # Two votes an attempt; each pause doubles up to the fetch timeout.
    assert cluster.sent[Vote] < 2 * (8 + 60_000 / CONFIG.fetch_timeout_ms)
    cluster.flapping = set()
    cluster.propose(b"a")
    cluster.run(3000)
    assert cluster.values(other) == [b"a"]


@pytest.mark.parametrize("seed", range(10))
def test_a_link_that_comes_and_goes_deposes_no_leader(seed: int) -> None:
    """Now the link works, now it refuses; pre-votes leave a live leader in its place."""
    cluster = Cluster([1, 2, 3], seed=seed)
    leader = cluster.wait_for_leader()
    cluster.run(1000)
    epoch = core_of(leader).epoch
    other = next(n for n in (1, 2, 3) if n != leader.node_id)
    cluster.sent.clear()
    for _ in range(200):
        cluster.flapping = {(other, leader.node_id)} if cluster.rng.random() < 0.5 else set()
        cluster.run(cluster.rng.random() * 300)
    assert core_of(leader).is_leader
    assert core_of(leader).epoch == epoch
    assert cluster.sent[Vote] < 100


def test_no_voter_follows_a_leader_back_that_has_resigned() -> None:
    """Votes that still name it do not count: it said itself that it does not lead any more."""
    cluster, _core = follower()
    cluster.nodes[1].log.append([LogBatch(0, 1, 0, (b"x",))])
    cluster.nodes[1].state = ElectionState(1, is_proven=True)
    cluster.restart(1)
    core = core_of(cluster.nodes[1])
    core.step(BeginQuorumEpoch(2, 1, 3), 0)
    core.step(EndQuorumEpoch(2, 1, 3, (1, 3)), 1)
    core.tick(1)
    assert core.state is State.PROSPECTIVE
    core.step(VoteReply(3, 1, 3, 2, False, True), 2)
    assert core.state is State.PROSPECTIVE
    core.step(VoteReply(2, 1, 3, -1, True, True), 3)
    assert core.state.name == "CANDIDATE"


def test_a_leader_that_restarted_says_that_it_does_not_lead() -> None:
    """It notifies the others until they confirm; they elect without a timeout."""
    for seed in range(10):
        cluster = Cluster([1, 2, 3], seed=seed)
        leader = cluster.wait_for_leader()
        cluster.run(1000)
        epoch = core_of(leader).epoch
        cluster.crash(leader.node_id)
        cluster.restart(leader.node_id)
        cluster.run(600)
        assert cluster.leader is not None, seed
        assert core_of(cluster.leader).epoch > epoch


def test_a_cold_start_needs_no_election_timeout() -> None:
    """Pre-votes disturb nobody, so a voter that knows no leader asks soon."""
    for seed in range(20):
        cluster = Cluster([1, 2, 3], seed=seed)
        cluster.run(CONFIG.election_timeout_ms * 0.9)
        assert cluster.leader is not None, seed


def test_no_election_is_waited_for_that_cannot_be_won() -> None:
    """Who cannot reach a majority tries again after a pause that grows to the greatest backoff."""
    cluster = Cluster([1, 2, 3])
    cluster.wait_for_leader()
    cluster.run(1000)
    for voter in (1, 2, 3):
        cluster.crash(voter)
    cluster.restart(1)
    cluster.sent.clear()
    cluster.run(20_000)
    attempts = cluster.sent[Vote] / 2
    assert 20 < attempts < 80
    cluster.restart(2)
    cluster.run(2 * CONFIG.election_backoff_max_ms)
    assert cluster.leader is not None


def test_parked_fetches_are_answered_at_the_end_of_leadership() -> None:
    """They are refused by what the node is now, which names itself no more."""
    cluster = Cluster([1, 2, 3])
    leader = cluster.wait_for_leader()
    core = core_of(leader)
    cluster.run(100)
    other = next(n for n in (1, 2, 3) if n != leader.node_id)
    end = core.log.epochs.end
    core.step(Fetch(other, leader.node_id, core.epoch, *end, 10**6, 500), cluster.now_ms)
    core.resign(cluster.now_ms)
    answers = [m for m in core.ready(0).messages if isinstance(m, FetchReply) and m.error]
    assert answers
    assert {(m.error, m.leader_id) for m in answers} == {(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)}


def test_a_second_fetch_of_a_replica_answers_the_first() -> None:
    """The replica came back by another connection: it does not wait for the first any more."""
    cluster = Cluster([1, 2, 3])
    leader = cluster.wait_for_leader()
    core = core_of(leader)
    cluster.run(100)
    end = core.log.epochs.end

    def fetch(request_id: int) -> Fetch:
        return Fetch(9, leader.node_id, core.epoch, *end, 10**6, 500, request_id=request_id)

    core.step(fetch(7), cluster.now_ms)
    core.step(fetch(8), cluster.now_ms)
    answers = [m for m in core.ready(0).messages if m.destination == 9]
    assert [m.request_id for m in answers] == [7]


def test_a_snapshot_never_replaces_what_was_appended_since() -> None:
    """It came late: the log has gone on, and what it has acknowledged may be committed."""
    _cluster, core = follower()
    snapshot_id = SnapshotId(5, 2)

    def settle() -> None:
        core.ready(0)
        core.advance()

    core.step(BeginQuorumEpoch(2, 1, 3), 0)
    settle()
    core.step(FetchReply(2, 1, 3, 2, 0, 0, snapshot_id=snapshot_id), 1)
    settle()
    assert core.snapshots.begin(snapshot_id)
    core.snapshots.on_install_failed(1)
    core.step(FetchReply(2, 1, 3, 2, 0, 0, snapshot_id=snapshot_id), 1)
    settle()
    assert not core.snapshots.begin(SnapshotId(4, 2))
    core.step(BeginQuorumEpoch(3, 1, 4), 2)
    settle()
    batches = tuple(LogBatch(offset, 1, 0, (b"x",)) for offset in range(7))
    core.step(FetchReply(3, 1, 4, 3, 0, 0, batches=batches), 3)
    settle()
    assert core.log.end_offset == 7
    assert not core.snapshots.begin(snapshot_id)


def test_nothing_happens_to_the_log_while_a_snapshot_is_installed() -> None:
    """Neither is it appended to, nor does this node stand for election with it."""
    _cluster, core = follower()
    snapshot_id = SnapshotId(5, 2)

    def settle() -> list[Message]:
        ready = core.ready(0)
        core.advance()
        return list(ready.messages)

    settle()
    core.step(BeginQuorumEpoch(2, 1, 3), 0)
    settle()
    core.step(FetchReply(2, 1, 3, 2, 0, 0, snapshot_id=snapshot_id), 1)
    settle()
    assert core.snapshots.begin(snapshot_id)
    core.step(BeginQuorumEpoch(3, 1, 4), 2)
    (fetch,) = [message for message in settle() if isinstance(message, Fetch)]
    batch = LogBatch(0, 4, 0, (b"x",))
    core.step(FetchReply(3, 1, 4, 3, 0, 0, batches=(batch,), fetch_id=fetch.fetch_id), 3)
    assert core.log.end_offset == 0
    for now_ms in range(0, 60_000, 500):
        core.tick(now_ms)
        assert core.state in (State.FOLLOWER, State.UNATTACHED)
    core.snapshots.on_failed(60_000)  # of another download
    core.snapshots.on_installed(snapshot_id, 60_000)
    assert core.log.end_offset == 5


def test_pieces_of_a_snapshot_keep_a_follower_patient() -> None:
    """Each is a sign of life of the leader; the follower neither asks again nor elects."""
    _cluster, core = follower()
    core.step(BeginQuorumEpoch(2, 1, 3), 0)
    core.ready(0)
    core.advance()
    core.step(FetchReply(2, 1, 3, 2, 0, 0, snapshot_id=SnapshotId(5, 2)), 1)
    for now_ms in range(1000, 20_000, 1000):
        core.tick(now_ms)
        assert core.snapshots.on_progress(2, now_ms)
    assert not core.snapshots.on_progress(3, 20_000)
    assert core.state is State.FOLLOWER
    assert not [m for m in core.ready(0).messages if isinstance(m, Vote)]
    core.advance()
    core.tick(19_000 + CONFIG.fetch_timeout_ms)
    assert core.state.name == "PROSPECTIVE"


def test_who_fetches_a_snapshot_counts_for_the_check_of_the_quorum() -> None:
    """A leader whose followers all load snapshots is no isolated leader."""
    cluster = Cluster([1, 2, 3])
    leader = cluster.wait_for_leader()
    core = core_of(leader)
    other = next(n for n in (1, 2, 3) if n != leader.node_id)
    cluster.cut = {1, 2, 3}
    for _ in range(20):
        cluster.run(500)
        assert core.answers.on_snapshot_fetch(other, core.epoch, cluster.now_ms) is ErrorCode.NONE
    assert core.is_leader
    stale = core.answers.on_snapshot_fetch(other, core.epoch - 1, cluster.now_ms)
    assert stale is ErrorCode.FENCED_LEADER_EPOCH
    cluster.run(CONFIG.check_quorum_timeout_ms)
    assert not core.is_leader
    refused = core.answers.on_snapshot_fetch(other, core.epoch, cluster.now_ms)
    assert refused is ErrorCode.NOT_LEADER_OR_FOLLOWER


# ---- random histories


@pytest.mark.parametrize("voters", [(1, 2, 3), (1, 2, 3, 4, 5)], ids=len)
@pytest.mark.parametrize("seed", range(12))
def test_random_histories_are_safe_and_go_on(seed: int, voters: tuple[int, ...]) -> None:
    """Loss, duplication, partitions, crashes at every step of a Ready: safe; then progress."""
    cluster = Cluster(voters, observers=[8, 9], seed=seed)
    rng = cluster.rng
    cluster.drop_rate = rng.random() * 0.3
    cluster.duplicate_rate = rng.random() * 0.2
    cluster.crash_rate = rng.random() * 0.02
    cluster.flap_rate = rng.choice([0, rng.random() * 0.2])
    history = History(cluster)
    for _round in range(60):
        history.go_on()
    cluster.heal()
    cluster.run(10_000)
    cluster.wait_for_leader()
    cluster.propose(b"end")
    cluster.run(5_000)
    values = cluster.values(1)
    assert values[-1] == b"end"
    assert len(set(values)) == len(values)
    for node_id in cluster.nodes:
        assert cluster.values(node_id) == values


class History:
    """One random thing after the other."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.proposed = 0

    def go_on(self) -> None:
        cluster, rng = self.cluster, self.cluster.rng
        voters = cluster.voters
        cluster.run(rng.random() * 800)
        for node in cluster.nodes.values():
            if node.core is None and rng.random() < 0.6:
                cluster.restart(node.node_id)
        if rng.random() < 0.15:
            cluster.cut = {rng.choice(voters)} if rng.random() < 0.6 else set()
        if rng.random() < 0.15:
            links = [(a, b) for a in cluster.nodes for b in cluster.nodes if a != b]
            cluster.cut_links = set(rng.sample(links, rng.randrange(4)))
        if rng.random() < 0.1:
            cluster.flapping = {(rng.choice(voters), rng.choice(voters))}
        if rng.random() < 0.05:
            cluster.crash(rng.choice([*cluster.nodes]))
        leader = cluster.leader
        if leader is None or leader.core is None:
            return
        for _ in range(rng.randrange(4)):
            if leader.core is not None and leader.core.is_leader:
                self.proposed += 1
                cluster.propose(b"%d" % self.proposed)
        if leader.core is None:
            return
        if rng.random() < 0.1:
            self.take_snapshot(leader, leader.core)
        if rng.random() < 0.05:
            leader.core.resign(cluster.now_ms)
            cluster._settle(leader)
            cluster.run(rng.random() * 300)
            cluster.crash(leader.node_id)

    def take_snapshot(self, node: Node, core: RaftCore) -> None:
        ends = [
            b.end_offset
            for b in node.log.batches
            if node.log.start_offset < b.end_offset <= (core.log.high_watermark or 0)
        ]
        if ends:
            core.log.on_snapshot_written(node.log.take_snapshot(self.cluster.rng.choice(ends)))


def test_a_history_is_its_seed() -> None:
    """The same seed gives the same trace to the last line."""

    def trace() -> list[str]:
        cluster = Cluster([1, 2, 3], seed=5)
        cluster.drop_rate = 0.2
        cluster.run(20_000)
        return cluster.trace

    assert trace() == trace()
