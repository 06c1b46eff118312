"""Whole quorum nodes over a network: elections, failover, hand-over, snapshots, observers."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import trio

from kraftrio.broker.controller.quorum_peers import QuorumPeers
from kraftrio.broker.log.metadata.quorum_state_file import QuorumStateFile
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdentity, ClusterIdError
from kraftrio.kraft_meta.quorum.voter_changes import CurrentVoters
from kraftrio.kraft_meta.raft.messages import Vote
from kraftrio.kraft_meta.raft.ready import RaftConfig
from kraftrio.kraft_meta.raft.values import OffsetAndEpoch, SnapshotId
from kraftrio.net.transport import SystemNetwork
from kraftrio.testing.simulation.world import START_WALL_MS
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from tests.unit.broker.controller.controller_fakes import voters_at
from tests.unit.broker.controller.quorum_nodes import (
    CLUSTER_ID,
    DIRECTORY,
    PORT,
    Quorum,
    address,
    new_fs,
)


def describe() -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopicData(
                topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartitionData()]
            )
        ]
    )


def test_three_nodes_elect_a_leader_soon_and_agree() -> None:
    """A cold start needs no election timeout: pre-votes are asked at once."""
    quorum = Quorum([1, 2, 3], observers=[9])

    async def main() -> None:
        await quorum.start_all()
        leader = await quorum.wait_for_leader(0.9)
        await quorum.create_topic("a")
        assert await quorum.wait_for_topics({"a"}) < 0.1
        for node in quorum.nodes.values():
            assert node.service.leader_id == leader.node_id
            assert node.leaders[-1] == (leader.node_id, leader.service.leader_epoch)

    quorum.run(main)


def test_a_committed_record_reaches_everybody_at_once() -> None:
    """Parked fetches are answered at once; nobody waits for the end of a long poll."""
    quorum = Quorum([1, 2, 3], observers=[8, 9])

    async def main() -> None:
        await quorum.start_all()
        await quorum.create_topic("first")
        await quorum.wait_for_topics({"first"})
        names = {"first"}
        for number in range(20):
            await trio.sleep(quorum.rng.random())
            name = f"t{number}"
            await quorum.create_topic(name)
            names.add(name)
            assert await quorum.wait_for_topics(names) < 0.03

    quorum.run(main)


@pytest.mark.parametrize("seed", range(5))
def test_a_dead_leader_is_replaced_at_once(seed: int) -> None:
    """Its address refuses connections: no fetch timeout passes."""
    quorum = Quorum([1, 2, 3], observers=[9], seed=seed)

    async def main() -> None:
        await quorum.start_all()
        first = await quorum.wait_for_leader()
        await quorum.create_topic("a")
        await quorum.wait_for_topics({"a"})
        epoch = first.service.leader_epoch
        quorum.kill(first.node_id)
        took = await quorum.until(lambda: quorum.leader is not None)
        assert took < 0.5
        second = await quorum.wait_for_leader()
        assert second.service.leader_epoch > epoch
        await quorum.create_topic("b")
        await quorum.wait_for_topics({"a", "b"})
        await quorum.start(first.node_id)
        await quorum.wait_for_topics({"a", "b"})
        assert first.service.leader_id == second.node_id
        assert quorum.nodes[9].service.leader_id == second.node_id

    quorum.run(main)


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_that_stops_hands_over(seed: int) -> None:
    """The successor leads before the old leader is gone; nothing is lost meanwhile."""
    quorum = Quorum([1, 2, 3], observers=[9], seed=seed)

    async def main() -> None:
        await quorum.start_all()
        first = await quorum.wait_for_leader()
        await quorum.create_topic("a")
        start = trio.current_time()
        await quorum.stop(first.node_id)
        assert trio.current_time() - start < 0.5
        await quorum.wait_for_leader(0.5)
        await quorum.create_topic("b")
        await quorum.wait_for_topics({"a", "b"})

    quorum.run(main)


def test_the_last_node_of_a_quorum_stops_without_waiting() -> None:
    """There is nobody to hand over to: the others refuse connections."""
    quorum = Quorum([1, 2, 3])

    async def main() -> None:
        await quorum.start_all()
        leader = await quorum.wait_for_leader()
        for node_id in quorum.voters:
            if node_id != leader.node_id:
                quorum.kill(node_id)
        start = trio.current_time()
        assert not await leader.service.leadership_transfer.hand_over(5000)
        assert trio.current_time() - start < 0.5

    quorum.run(main)


def test_a_whole_cluster_restarts_quickly() -> None:
    """The former leader announces at once that it does not lead any more."""
    quorum = Quorum([1, 2, 3], observers=[9])

    async def main() -> None:
        await quorum.start_all()
        await quorum.create_topic("a")
        await quorum.wait_for_topics({"a"})
        for node_id in quorum.nodes:
            quorum.kill(node_id)
        await quorum.start_all()
        await quorum.wait_for_leader(1.0)
        assert await quorum.wait_for_topics({"a"}) < 2.5

    quorum.run(main)


@pytest.mark.parametrize("behind", ["voter", "observer"])
def test_who_is_too_far_behind_gets_a_snapshot(behind: str) -> None:
    """In many pieces, over a connection that is cut on the way; then the log goes on."""
    quorum = Quorum(
        [1, 2, 3],
        observers=[9],
        raft=RaftConfig(snapshot_chunk_bytes=500),
        metadata_log_max_record_bytes_between_snapshots=4000,
    )

    async def main() -> None:
        await quorum.start_all()
        leader = await quorum.wait_for_leader()
        await quorum.create_topic("first")
        late = 9 if behind == "observer" else next(n for n in (1, 2, 3) if n != leader.node_id)
        quorum.kill(late)
        names = {"first"}
        for number in range(60):
            await quorum.create_topic(f"t{number}")
            names.add(f"t{number}")
        await quorum.until(lambda: leader.log.log_start_offset > 0)
        host = quorum.internet.host(address(late))

        def cut() -> None:
            for sock in quorum.internet.live_sockets(host):
                quorum.internet.cut(sock)

        for delay in (0.01, 0.02, 0.04):
            quorum.world.after(delay, cut)
        await quorum.start(late)
        await quorum.wait_for_topics(names)
        node = quorum.nodes[late]
        assert node.log.log_start_offset > 0
        await quorum.create_topic("last")
        await quorum.wait_for_topics({*names, "last"})
        quorum.kill(late)
        await quorum.start(late)
        await quorum.wait_for_topics({*names, "last"})

    quorum.run(main)


def test_every_node_makes_its_own_snapshots() -> None:
    """Voters and observers: each log is cleaned below its snapshot, and restarts from there."""
    quorum = Quorum([1, 2, 3], observers=[9], metadata_log_max_record_bytes_between_snapshots=4000)

    async def main() -> None:
        await quorum.start_all()
        names = set()
        for number in range(60):
            await quorum.create_topic(f"t{number}")
            names.add(f"t{number}")
        await quorum.wait_for_topics(names)
        await trio.sleep(1)
        for node in quorum.nodes.values():
            assert node.log.log_start_offset > 0
            assert node.log.size_bytes < 12_000
        for node_id in quorum.nodes:
            quorum.kill(node_id)
        await quorum.start_all()
        await quorum.wait_for_topics(names)

    quorum.run(main)


def test_the_leader_describes_the_quorum() -> None:
    """Voters and observers with their log ends and times; others name the leader."""
    quorum = Quorum([1, 2, 3], observers=[9])

    async def main() -> None:
        await quorum.start_all()
        leader = await quorum.wait_for_leader()
        await quorum.create_topic("a")
        await trio.sleep(3)
        answer = await quorum.call(leader.node_id, describe(), 2)
        (partition,) = answer.topics[0].partitions
        assert partition.leader_id == leader.node_id
        assert [v.replica_id for v in partition.current_voters] == [1, 2, 3]
        assert [o.replica_id for o in partition.observers] == [9]
        assert [o.replica_directory_id[-1] for o in partition.observers] == [9]
        now_ms = START_WALL_MS + trio.current_time() * 1000
        for replica in (*partition.current_voters, *partition.observers):
            assert replica.log_end_offset == partition.high_watermark
            assert now_ms - 1000 < replica.last_fetch_timestamp <= now_ms
            assert now_ms - 1000 < replica.last_caught_up_timestamp <= now_ms
        assert [(n.node_id, n.listeners[0].host) for n in answer.nodes] == [
            (1, "node1"),
            (2, "node2"),
            (3, "node3"),
        ]
        for version in (0, 1):
            older = await quorum.call(leader.node_id, describe(), version)
            (described,) = older.topics[0].partitions
            assert [v.replica_id for v in described.current_voters] == [1, 2, 3]
            assert (older.nodes, described.error_code) == ([], ErrorCode.NONE)
        quorum.kill(9)
        await trio.sleep(301)
        answer = await quorum.call(leader.node_id, describe(), 2)
        assert answer.topics[0].partitions[0].observers == []
        follower = next(n for n in (1, 2, 3) if n != leader.node_id)
        answer = await quorum.call(follower, describe(), 2)
        (partition,) = answer.topics[0].partitions
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.leader_id == leader.node_id

    quorum.run(main)


def test_a_node_whose_log_disk_fails_ends() -> None:
    """The others go on without it."""
    quorum = Quorum([1, 2, 3])

    async def main() -> None:
        await quorum.start_all()
        leader = await quorum.wait_for_leader()
        await quorum.create_topic("a")
        broken = next(n for n in (1, 2, 3) if n != leader.node_id)
        quorum.nodes[broken].fs.fail("sync", ".log")
        await quorum.create_topic("b")
        await quorum.until(lambda: not quorum.nodes[broken].is_running)
        quorum.nodes[broken].fs.heal()
        await quorum.create_topic("c")
        await quorum.start(broken)
        await quorum.wait_for_topics({"a", "b", "c"})
        assert isinstance(quorum.nodes[broken].failure, OSError)

    quorum.run(main)


class Lives:
    """Random faults of nodes and links, and topics made meanwhile."""

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self.answered: set[str] = set()
        self.asked: set[str] = set()
        self.controllers: dict[int, int] = {}
        quorum.world.checks.append(self.check)

    def check(self) -> None:
        """One active controller per epoch; nobody applies what others do not."""
        for node in self.quorum.running():
            service = getattr(node, "service", None)
            if service is not None and service.is_active_controller:
                epoch = service.leader_epoch
                leader = self.controllers.setdefault(epoch, node.node_id)
                assert leader == node.node_id, f"two controllers in epoch {epoch}"

    def note(self, name: str, response: Any) -> None:
        if response.topics[0].error_code == ErrorCode.NONE:
            self.answered.add(name)

    async def go_on(self) -> None:
        """Let one random thing happen."""
        quorum, rng = self.quorum, self.quorum.rng
        await trio.sleep(rng.random() * 0.7)
        node_id = rng.choice([*quorum.nodes])
        other_id = rng.choice([*quorum.nodes])
        host = quorum.internet.host(address(node_id))
        match rng.randrange(8):
            case 0 | 1 if quorum.nodes[node_id].is_running:
                quorum.kill(node_id)
            case 2 if quorum.nodes[node_id].is_running:
                await quorum.stop(node_id)
            case 3:
                quorum.internet.hang(address(node_id), address(other_id))
            case 4 | 5:
                quorum.internet.mend_all()
            case 6:
                for sock in quorum.internet.live_sockets(host):
                    if rng.random() < 0.5:
                        quorum.internet.cut(sock)
        for node in quorum.nodes.values():
            if not node.is_running and rng.random() < 0.5:
                await quorum.start(node.node_id)
        if (leader := quorum.leader) is not None:
            for _ in range(rng.randrange(4)):
                name = f"t{len(self.asked)}"
                self.asked.add(name)
                quorum.try_to_create(leader, name).then(partial(self.note, name))


@pytest.mark.parametrize("seed", range(4))
def test_random_lives_lose_nothing_that_was_answered(seed: int) -> None:
    """Killed, stopped and restarted nodes; links that hang one way; then everybody agrees."""
    quorum = Quorum(
        [1, 2, 3],
        observers=[8, 9],
        seed=seed,
        raft=RaftConfig(snapshot_chunk_bytes=700),
        metadata_log_max_record_bytes_between_snapshots=3000,
        metadata_log_max_snapshot_interval_ms=5000,
    )

    async def main() -> None:
        lives = Lives(quorum)
        await quorum.start_all()
        await quorum.create_topic("first")
        for _round in range(80):
            await lives.go_on()
        quorum.internet.mend_all()
        await quorum.start_all()
        await quorum.create_topic("last")
        await quorum.until(lambda: all("last" in node.topics for node in quorum.running()))
        names = quorum.nodes[1].topics
        assert lives.answered <= names
        assert len(lives.answered) > 10
        await quorum.wait_for_topics(names)

    quorum.run(main)


def test_a_link_that_fails_for_another_reason_is_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A line for each new reason, none while it stays the same."""
    peers = QuorumPeers(SystemNetwork(), 1, b"d" * 16, RaftConfig())
    reported: list[int] = []
    service: Any = SimpleNamespace(
        messages=SimpleNamespace(
            peer_unreachable=lambda node_id, refused: reported.append(node_id)
        ),
        voters=CurrentVoters(voters_at({2: ("b", 9093), 3: ("c", 9093)})),
    )
    peers.attach(service)
    caplog.set_level("INFO", "kraftrio.metadata")
    for reason in ("refused", "refused", "it answers: UNKNOWN", "it answers: UNKNOWN"):
        peers.on_unreachable(2, reason, refused=False)
    assert reported == [2, 2, 2, 2]
    assert [line.partition("reason=")[2] for line in caplog.messages] == [
        "refused",
        "it answers: UNKNOWN",
    ]


async def test_the_quorum_may_take_another_step_while_the_node_stops() -> None:
    """Its task and that of its peers are cancelled together: the peers' may end first."""
    peers = QuorumPeers(SystemNetwork(), 1, b"d" * 16, RaftConfig())
    voters = CurrentVoters(voters_at({2: ("b", 9093)}))
    service: Any = SimpleNamespace(
        voters=voters,
        messages=SimpleNamespace(peer_unreachable=ignore),
        identity=SimpleNamespace(is_known=True),
    )
    peers.attach(service)
    async with trio.open_nursery() as nursery:
        await nursery.start(peers.run)
        nursery.cancel_scope.cancel()
    peers.fetch_snapshot(2, SnapshotId(5, 1))
    peers.on_refusal(2, KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, "another cluster"))
    voters.change(voters_at({3: ("c", 9093)}))


def ignore(*_given: object, **_named: object) -> None:
    """Take a report."""


# ---- voters


def test_messages_follow_the_set_of_voters() -> None:
    """A voter that is added is sent to, one that is removed is unknown, both without a restart."""
    quorum = Quorum([1, 2, 3], observers=[9])

    async def main() -> None:
        await quorum.start_all()
        await quorum.wait_for_leader()
        observer = quorum.nodes[9]
        lost: list[tuple[int, bool]] = []
        with mock.patch.object(
            observer.service.messages,
            "peer_unreachable",
            lambda node_id, refused: lost.append((node_id, refused)),
        ):
            kept = voters_at({voter: (address(voter), PORT) for voter in (1, 2, 4)})
            observer.service.voters.change(kept)
            observer.peers.send(Vote(9, 3, 1, OffsetAndEpoch(0, 0), True))
            assert lost == [(3, True)]
            observer.peers.send(Vote(9, 4, 1, OffsetAndEpoch(0, 0), True))
            await quorum.until(lambda: (4, False) in lost)

    quorum.run(main)


# ---- which cluster it is


def ids_of(quorum: Quorum) -> set[str]:
    return {node.service.image.cluster_id for node in quorum.running()}


def test_a_new_cluster_draws_its_id() -> None:
    """The first leader does; the others, and who comes later, take it from the log."""
    quorum = Quorum([1, 2, 3], observers=[9])
    for node in quorum.nodes.values():
        node.identity = ClusterIdentity()

    async def main() -> None:
        for node_id in (1, 2, 3):
            await quorum.start(node_id)
        await quorum.wait_for_leader()
        await quorum.until(lambda: len(ids_of(quorum)) == 1 and "" not in ids_of(quorum))
        await quorum.start(9)
        await quorum.until(lambda: len(ids_of(quorum)) == 1)
        (cluster_id,) = ids_of(quorum)
        assert {node.identity.cluster_id for node in quorum.nodes.values()} == {cluster_id}
        assert len(cluster_id) == 22

    quorum.run(main)


@pytest.mark.parametrize("knowing", [1, 2, 3])
def test_a_known_id_becomes_the_new_clusters(knowing: int) -> None:
    """Who knows an id founds no cluster with a leader that does not."""
    quorum = Quorum([1, 2, 3], seed=knowing)
    for node_id in {1, 2, 3} - {knowing}:
        quorum.nodes[node_id].identity = ClusterIdentity()

    async def main() -> None:
        await quorum.start_all()
        await quorum.wait_for_leader()
        await quorum.until(lambda: ids_of(quorum) == {CLUSTER_ID})
        assert {node.identity.cluster_id for node in quorum.nodes.values()} == {CLUSTER_ID}

    quorum.run(main)


def test_voters_of_two_clusters_found_none() -> None:
    """They wait, and say so; nobody is ended by one voter's word."""
    quorum = Quorum([1, 2, 3])
    quorum.nodes[2].identity = ClusterIdentity("BBBBBBBBBBBBBBBBBBBBBB", "kraftrio.cluster.id")
    quorum.nodes[3].identity = ClusterIdentity()

    async def main() -> None:
        await quorum.start_all()
        await trio.sleep(30)
        assert quorum.leader is None
        assert len(quorum.running()) == 3

    quorum.run(main)


@pytest.mark.parametrize("stranger", [3, 9])
def test_a_node_of_another_cluster_ends_with_both_ids(stranger: int) -> None:
    """A voter or an observer that a majority of the voters does not know."""
    quorum = Quorum([1, 2, 3], observers=[9])

    async def main() -> None:
        await quorum.start_all()
        await quorum.wait_for_leader()
        await quorum.create_topic("a")
        quorum.kill(stranger)
        node = quorum.nodes[stranger]
        node.identity = ClusterIdentity("BBBBBBBBBBBBBBBBBBBBBB", "/data/meta.properties")
        node.fs = new_fs()
        await quorum.start(stranger)
        await quorum.until(lambda: not node.is_running)
        assert isinstance(node.failure, ClusterIdError)
        text = str(node.failure)
        assert "/data/meta.properties names cluster BBBBBBBBBBBBBBBBBBBBBB" in text
        assert text.endswith(f"is of cluster {CLUSTER_ID}")
        assert len(quorum.running()) == 3

    quorum.run(main)


def test_a_voter_with_another_disk_is_believed_again() -> None:
    """It knows neither the cluster's id nor its votes, and takes both from the others."""
    quorum = Quorum([1, 2, 3])

    async def main() -> None:
        await quorum.start_all()
        leader = await quorum.wait_for_leader()
        await quorum.create_topic("a")
        node = quorum.nodes[leader.node_id % 3 + 1]
        quorum.kill(node.node_id)
        node.identity, node.fs = ClusterIdentity(), new_fs()
        await quorum.start(node.node_id)
        assert node.service.messages.replica_id in (-1, node.node_id)
        await quorum.until(lambda: node.topics == {"a"})
        await quorum.until(lambda: node.service.messages.replica_id == node.node_id)
        await trio.sleep(0.1)
        state = QuorumStateFile(node.fs, DIRECTORY).read()
        assert state is not None and state.is_proven
        assert node.identity.cluster_id == CLUSTER_ID
        quorum.kill(leader.node_id)
        await quorum.wait_for_leader()

    quorum.run(main)
