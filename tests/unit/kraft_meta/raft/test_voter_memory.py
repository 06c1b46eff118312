"""Voters that lost their disks: what they may do, how they are believed again, new clusters."""

from __future__ import annotations

import pytest

from kraftrio.kraft_meta.raft.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    Fetch,
    FetchReply,
    Vote,
    VoteReply,
)
from kraftrio.kraft_meta.raft.quorum_state import Leader, State
from kraftrio.kraft_meta.raft.raft import RaftCore
from kraftrio.kraft_meta.raft.raft_log import CommittedRecordsError
from kraftrio.kraft_meta.raft.values import ElectionState, LogBatch, OffsetAndEpoch
from kraftrio.kraft_meta.raft.voter_memory import VoterMemory
from kraftrio.kraft_meta.raft.voters import VoterSet
from kraftrio.wire.errors import ErrorCode
from tests.unit.kraft_meta.raft.raft_cluster import CONFIG, Cluster, Node
from tests.unit.kraft_meta.raft.test_raft import History


def core_of(node: Node) -> RaftCore:
    assert node.core is not None
    return node.core


def others_of(cluster: Cluster, node: Node) -> list[int]:
    return [voter for voter in cluster.voters if voter != node.node_id]


def crash(cluster: Cluster, *voters: int) -> None:
    for voter in voters:
        if cluster.nodes[voter].core is not None:
            cluster.crash(voter)


# ---- what a voter without memory may do


def test_two_wiped_voters_do_not_elect_each_other() -> None:
    """The third has what was committed: they wait for it, and nothing is lost."""
    for seed in range(10):
        cluster = Cluster([1, 2, 3], seed=seed)
        intact = cluster.wait_for_leader()
        cluster.propose(b"kept")
        cluster.run(1000)
        wiped = others_of(cluster, intact)
        crash(cluster, 1, 2, 3)
        for voter in wiped:
            cluster.wipe(voter)
            cluster.restart(voter)
        cluster.run(60_000)
        assert cluster.leader is None
        assert cluster.unproven() == wiped
        cluster.restart(intact.node_id)
        cluster.run(60_000)  # its majority is lost for good: nobody can tell what that had
        assert cluster.leader is None
        assert intact.log.end_offset >= 2


def test_a_wiped_voter_lets_no_candidate_win_that_lacks_what_it_had() -> None:
    """It acknowledged a record with the leader; the third voter never got that."""
    for seed in range(20):
        cluster = Cluster([1, 2, 3], seed=seed)
        leader = cluster.wait_for_leader()
        wiped, away = others_of(cluster, leader)
        cluster.cut = {away}
        cluster.run(500)
        cluster.propose(b"kept")
        cluster.run(500)
        assert cluster.values(leader.node_id) == [b"kept"]
        crash(cluster, leader.node_id, wiped)
        cluster.wipe(wiped)
        cluster.cut = set()
        cluster.restart(wiped)
        cluster.run(30_000)
        assert cluster.leader is None
        cluster.restart(leader.node_id)
        assert cluster.wait_for_leader() is leader
        cluster.run(2000)
        assert cluster.unproven() == []
        assert cluster.values(wiped) == cluster.values(away) == [b"kept"]


@pytest.mark.parametrize(("state", "log"), [(True, False), (False, True)])
def test_half_of_a_memory_is_none(state: bool, log: bool) -> None:
    """Without the votes or without the log a voter waits for a leader, and is believed again."""
    cluster = Cluster([1, 2, 3], seed=3)
    leader = cluster.wait_for_leader()
    cluster.propose(b"a")
    cluster.run(1000)
    voter, other = others_of(cluster, leader)
    crash(cluster, 1, 2, 3)
    cluster.wipe(voter, state=state, log=log)
    cluster.restart(voter)
    cluster.restart(other)
    cluster.run(30_000)
    assert cluster.leader is None
    assert cluster.unproven() == [voter]
    cluster.restart(leader.node_id)
    cluster.wait_for_leader()
    cluster.run(5000)
    assert cluster.unproven() == []


def test_a_voter_without_memory_is_not_counted() -> None:
    """Neither for the high watermark nor for the leader's own quorum, until it is proven."""
    cluster = Cluster([1, 2, 3], seed=1)
    leader = cluster.wait_for_leader()
    cluster.run(1000)
    wiped, other = others_of(cluster, leader)
    crash(cluster, wiped, other)
    cluster.wipe(wiped)
    cluster.restart(wiped)
    before = core_of(leader).log.high_watermark
    cluster.propose(b"a")
    cluster.run(1000)
    assert core_of(leader).is_leader
    assert core_of(leader).log.high_watermark == before
    assert cluster.nodes[wiped].log.end_offset == leader.log.end_offset
    cluster.run(CONFIG.check_quorum_timeout_ms)
    assert not core_of(leader).is_leader
    cluster.restart(other)
    cluster.wait_for_leader()
    cluster.run(5000)
    assert cluster.unproven() == []


def blank(*, log: bool = False, state: ElectionState | None = None) -> tuple[Cluster, RaftCore]:
    """Voter 1 of three, alone; with a record of epoch 1 if it has a log."""
    cluster = Cluster([1, 2, 3])
    node = cluster.nodes[1]
    if log:
        node.log.append([LogBatch(0, 1, 0, (b"x",))])
    node.state = state
    cluster.restart(1)
    return cluster, core_of(node)


def vote_answer(core: RaftCore, vote: Vote) -> VoteReply:
    core.step(vote, 0)
    ready = core.ready(0)
    core.advance()
    (reply,) = [m for m in ready.messages if isinstance(m, VoteReply)]
    return reply


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize("log", [True, False])
def test_a_refusal_says_that_the_voter_is_not_here(pre_vote: bool, log: bool) -> None:
    """So that nobody takes its epoch for the word of a voter that remembers."""
    _cluster, core = blank(log=log)
    reply = vote_answer(core, Vote(2, 1, 5, OffsetAndEpoch(9, 3), pre_vote))
    assert (reply.vote_granted, reply.error) == (False, ErrorCode.INVALID_VOTER_KEY)


def test_a_voter_that_may_not_stand_looks_for_the_leader() -> None:
    """It asks the others by turns, and never itself; it asks nobody for a vote."""
    cluster, core = blank(log=True)
    for _ in range(50):
        now_ms = core.next_deadline_ms()
        assert now_ms is not None
        core.tick(now_ms)
        ready = core.ready(0)
        core.advance()
        assert all(isinstance(m, Fetch) and not m.is_counted for m in ready.messages)
        assert all(m.destination in (2, 3) for m in ready.messages)
        core.peer_unreachable(2, now_ms, refused=True)
    assert core.state is State.UNATTACHED
    assert cluster.nodes[1].log.end_offset == 1


def test_only_who_has_caught_up_asks_for_epochs() -> None:
    """A voter that has less than the leader would be believed about what it lacks."""
    cluster, core = blank(log=True)
    core.ready(0)
    core.advance()
    core.step(BeginQuorumEpoch(2, 1, 3), 0)

    def sent() -> list[object]:
        ready = core.ready(0)
        cluster.nodes[1].log.append(ready.batches)
        core.advance()
        return [m for m in ready.messages if not isinstance(m, BeginQuorumEpochReply)]

    def response(*batches: LogBatch) -> FetchReply:
        (fetch,) = sent()
        assert isinstance(fetch, Fetch)
        asked = fetch.fetch_offset, fetch.last_fetched_epoch
        return FetchReply(2, 1, 3, 2, *asked, batches=batches, fetch_id=fetch.fetch_id)

    core.step(response(LogBatch(1, 3, 0, (b"y",))), 1)
    answer = response()
    core.step(answer, 2)
    asked = [m for m in sent() if isinstance(m, Vote)]
    assert [(m.destination, m.epoch, m.pre_vote) for m in asked] == [(2, 3, True), (3, 3, True)]
    for voter in (2, 3):
        assert not core.memory.is_proven
        core.step(VoteReply(voter, 1, 3, 2, False, True), 3)
    assert core.memory.is_proven


def caught_up(voters: int) -> tuple[VoterMemory, list[int]]:
    memory = VoterMemory(1, VoterSet.of_ids(range(1, voters + 1)), is_proven=False)
    return memory, memory.voters_to_ask(7)


def test_three_voters_prove_each_other_at_once() -> None:
    """Both others are in the epoch: neither is a candidate with a vote that was forgotten."""
    memory, asked = caught_up(3)
    assert asked == [2, 3]
    memory.on_epoch_confirmed(2, 7)
    memory.on_epoch_confirmed(2, 7)
    memory.on_epoch_confirmed(3, 6)
    assert not memory.is_proven
    assert memory.voters_to_ask(7) == [3]
    memory.on_epoch_confirmed(3, 7)
    assert memory.is_proven


def test_words_of_another_epoch_do_not_add_up() -> None:
    """Asking begins again in each epoch."""
    memory, _asked = caught_up(3)
    memory.on_epoch_confirmed(2, 7)
    assert memory.voters_to_ask(8) == [2, 3]
    memory.on_epoch_confirmed(3, 7)
    memory.on_epoch_confirmed(3, 8)
    assert not memory.is_proven


def test_a_majority_of_five_proves_for_later_epochs() -> None:
    """Who was not asked may win the next epoch with the forgotten vote, but no later one."""
    memory, asked = caught_up(5)
    for voter in asked[:3]:
        memory.on_epoch_confirmed(voter, 7)
    assert not memory.is_proven
    grants = {"has_nothing": False, "candidate_is_empty": False}
    assert memory.may_grant(**grants, pre_vote=True)
    assert not memory.may_grant(**grants, pre_vote=False)
    memory.on_epoch_begun(8, has_leader=False)
    assert not memory.is_proven
    memory.on_epoch_begun(9, has_leader=False)
    assert memory.is_proven
    memory, asked = caught_up(5)
    for voter in asked[:3]:
        memory.on_epoch_confirmed(voter, 7)
    memory.on_epoch_begun(8, has_leader=True)
    assert memory.is_proven


def test_all_of_five_prove_at_once() -> None:
    """As for three: there is no candidate among them."""
    memory, asked = caught_up(5)
    for voter in asked:
        assert not memory.is_proven
        memory.on_epoch_confirmed(voter, 7)
    assert memory.is_proven


def test_two_voters_cannot_prove_each_other() -> None:
    """One is not a majority of two: an operator has to say it."""
    memory, asked = caught_up(2)
    for voter in asked:
        memory.on_epoch_confirmed(voter, 7)
    assert not memory.is_proven


def test_a_voter_ahead_of_the_leader_answers_with_its_epoch() -> None:
    """It lost its log, but knows that it voted in an epoch that the leader has not heard of."""
    cluster = Cluster([1, 2, 3], seed=2)
    leader = cluster.wait_for_leader()
    cluster.run(1000)
    epoch = core_of(leader).epoch
    wiped, _other = others_of(cluster, leader)
    crash(cluster, wiped)
    cluster.wipe(wiped)
    cluster.nodes[wiped].state = ElectionState(epoch + 5, is_proven=True, committed_offset=1)
    cluster.restart(wiped)
    cluster.run(10_000)
    leader = cluster.wait_for_leader()
    assert core_of(leader).epoch > epoch + 5
    cluster.run(5000)
    assert cluster.unproven() == []


# ---- new clusters


def test_a_new_cluster_needs_every_voter_once() -> None:
    """Started by hand, one after the other; once it is there a majority is enough."""
    for seed in range(10):
        cluster = Cluster([1, 2, 3], seed=seed)
        crash(cluster, 2, 3)
        cluster.run(10_000)
        core = core_of(cluster.nodes[1])
        assert set(core.missing_votes) >= {2, 3}
        cluster.restart(2)
        cluster.run(10_000)
        assert cluster.leader is None
        cluster.restart(3)
        cluster.run(CONFIG.election_backoff_max_ms)
        leader = cluster.wait_for_leader(3000)
        cluster.run(500)
        assert cluster.unproven() == []
        assert all(core_of(node).missing_votes == [] for node in cluster.nodes.values())
        crash(cluster, leader.node_id)
        cluster.run(100)
        assert cluster.wait_for_leader() is not leader


@pytest.mark.parametrize("voters", [(1, 2, 3), (1, 2, 3, 4, 5), (1, 2)], ids=len)
@pytest.mark.parametrize("seed", range(8))
def test_crashes_while_a_cluster_is_founded(seed: int, voters: tuple[int, ...]) -> None:
    """At every step of every voter's Readys: it is founded all the same, and once."""
    cluster = Cluster(voters, seed=seed)
    cluster.crash_rate = 0.2
    cluster.drop_rate = 0.1
    for _ in range(40):
        cluster.run(cluster.rng.random() * 200)
        for voter in voters:
            if cluster.nodes[voter].core is None:
                cluster.restart(voter)
    cluster.heal()
    cluster.run(10_000)  # a leader whose followers believe it gone may still fall
    cluster.wait_for_leader()
    cluster.propose(b"a")
    cluster.run(5000)
    assert cluster.unproven() == []
    assert all(cluster.values(voter) == [b"a"] for voter in voters)


def test_a_lost_log_that_held_something_founds_nothing() -> None:
    """All three logs are gone, but not the knowledge that something was committed."""
    cluster = Cluster([1, 2, 3])
    cluster.wait_for_leader()
    cluster.run(1000)
    crash(cluster, 1, 2, 3)
    for voter in (1, 2, 3):
        cluster.wipe(voter, state=False)
        cluster.restart(voter)
    cluster.run(30_000)
    assert cluster.leader is None


def test_a_quorum_of_one_believes_itself() -> None:
    """There is nobody to contradict it."""
    cluster = Cluster([1])
    cluster.crash(1)
    cluster.wipe(1, log=False)
    cluster.restart(1)
    assert core_of(cluster.nodes[1]).is_leader


def test_a_quorum_of_one_misses_what_it_had_committed() -> None:
    """Nobody else has it: the node does not go on as if it had never been."""
    cluster = Cluster([1])
    cluster.crash(1)
    cluster.wipe(1, state=False)
    with pytest.raises(CommittedRecordsError, match="up to offset 0 were committed"):
        cluster.restart(1)


def test_a_state_without_the_mark_is_of_a_voter_with_a_log() -> None:
    """Folders from before there was the mark are believed as they were."""
    assert blank(log=True, state=ElectionState(1, -1, 2))[1].memory.is_proven
    assert not blank(log=False, state=ElectionState(1, -1, 2))[1].memory.is_proven


# ---- what is committed


def test_committed_records_are_not_cut_for_a_leader_that_lacks_them() -> None:
    """The node ends, and says what it would have lost."""
    state = ElectionState(2, is_proven=True, committed_offset=1)
    _cluster, core = blank(log=True, state=state)
    core.step(BeginQuorumEpoch(2, 1, 3), 0)
    ready = core.ready(0)
    core.advance()
    (fetch,) = [m for m in ready.messages if isinstance(m, Fetch)]
    answer = FetchReply(
        2,
        1,
        3,
        2,
        fetch.fetch_offset,
        fetch.last_fetched_epoch,
        diverging=OffsetAndEpoch(0, 0),
        fetch_id=fetch.fetch_id,
    )
    with pytest.raises(CommittedRecordsError, match="would lose the records 0 to 0"):
        core.step(answer, 1)


def test_what_was_committed_is_known_after_a_restart() -> None:
    """As far as the election state was written since; a new node knows it from its first record."""
    cluster = Cluster([1, 2, 3])
    cluster.wait_for_leader()
    cluster.run(1000)
    for node in cluster.nodes.values():
        assert node.state is not None
        assert node.state.committed_offset == 1
    cluster.propose(b"a")
    cluster.run(1000)
    leader = cluster.wait_for_leader()
    crash(cluster, leader.node_id)
    cluster.run(5000)
    for voter in others_of(cluster, leader):
        state = cluster.nodes[voter].state
        assert state is not None
        assert state.committed_offset >= 2


# ---- random histories


@pytest.mark.parametrize("voters", [(1, 2, 3), (1, 2, 3, 4, 5)], ids=len)
@pytest.mark.parametrize("seed", range(12))
def test_random_histories_with_wiped_disks_are_safe(seed: int, voters: tuple[int, ...]) -> None:
    """Whatever else happens, a minority at a time may lose its disks: nothing committed is lost."""
    cluster = Cluster(voters, observers=[9], seed=seed)
    rng = cluster.rng
    cluster.wait_for_leader()
    cluster.run(500)
    cluster.drop_rate = rng.random() * 0.2
    cluster.duplicate_rate = rng.random() * 0.2
    cluster.crash_rate = rng.random() * 0.02
    history = History(cluster)
    wiped = 0
    for _round in range(80):
        history.go_on()
        voter = rng.choice(voters)
        fewest = len(voters) - (len(voters) // 2 + 1)
        if rng.random() < 0.3 and len({*cluster.unproven(), voter}) <= fewest:
            crash(cluster, voter)
            cluster.wipe(voter)
            wiped += 1
    cluster.heal()
    cluster.run(20_000)
    leader = cluster.wait_for_leader()
    cluster.propose(b"end")
    cluster.run(5_000)
    assert wiped
    assert cluster.values(leader.node_id)[-1] == b"end"
    for node_id in cluster.nodes:
        assert cluster.values(node_id) == cluster.values(leader.node_id)
    role = core_of(leader).quorum.role
    assert isinstance(role, Leader)
    if len(voters) == 3:
        assert cluster.unproven() == []
