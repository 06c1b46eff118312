"""What the controller listener answers for the quorum, with Kafka's error codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kraftrio.kraft_meta.quorum.raft_wire import SENT_VERSIONS, encode_request, snapshot_request
from kraftrio.kraft_meta.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    Request,
    Vote,
)
from kraftrio.kraft_meta.raft.values import OffsetAndEpoch, SnapshotId
from kraftrio.kraft_meta.raft.voters import VoterSet
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages import raft_voters
from tests.unit.broker.controller.quorum_nodes import CLUSTER_ID, Quorum, QuorumNode

Body = Callable[[Quorum, QuorumNode, int], Any]


def with_quorum(body: Body) -> None:
    """Run a test with a quorum of three, its leader, and the id of a follower."""
    quorum = Quorum([1, 2, 3])

    async def main() -> None:
        await quorum.start_all()
        leader = await quorum.wait_for_leader()
        await quorum.create_topic("a")
        await quorum.wait_for_topics({"a"})
        follower = next(n for n in (1, 2, 3) if n != leader.node_id)
        await body(quorum, leader, follower)

    quorum.run(main)


async def ask(
    quorum: Quorum, node_id: int, message: Request, *, cluster_id: str | None = CLUSTER_ID
) -> Any:
    """Send a message as another node would; return the whole response."""
    request = encode_request(message, "", VoterSet.of_ids([1]))
    request.cluster_id = cluster_id
    return await quorum.call(node_id, request, SENT_VERSIONS[type(request)])


def part(response: Any) -> Any:
    """Return what a response says of its one partition."""
    assert response.error_code == 0
    topics = response.responses if hasattr(response, "responses") else response.topics
    return topics[0].partitions[0]


def messages(source: int, destination: int, epoch: int) -> list[Request]:
    return [
        Vote(source, destination, epoch, OffsetAndEpoch(5, max(epoch - 1, 0)), False),
        BeginQuorumEpoch(source, destination, epoch),
        EndQuorumEpoch(source, destination, epoch, (destination,)),
        Fetch(source, destination, epoch, 0, 0, -1, 0),
    ]


def test_another_clusters_nodes_are_refused() -> None:
    """INCONSISTENT_CLUSTER_ID for the whole request; no cluster id is taken for ours."""

    async def body(quorum: Quorum, leader: QuorumNode, follower: int) -> None:
        epoch = leader.service.leader_epoch
        for message in messages(follower, leader.node_id, epoch):
            response = await ask(quorum, leader.node_id, message, cluster_id="other")
            assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        snapshot = snapshot_request(follower, epoch, SnapshotId(1, 1), 0, 100, "other")
        response = await quorum.call(leader.node_id, snapshot, 1)
        assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        fetch = Fetch(follower, leader.node_id, epoch, 0, 0, -1, 0)
        answer = part(await ask(quorum, leader.node_id, fetch, cluster_id=None))
        assert answer.error_code == ErrorCode.NONE

    with_quorum(body)


def test_old_epochs_are_fenced_with_the_present_leader() -> None:
    """By every node, in every request."""

    async def body(quorum: Quorum, leader: QuorumNode, follower: int) -> None:
        epoch = leader.service.leader_epoch
        for node_id in (leader.node_id, follower):
            for message in messages(leader.node_id % 3 + 1, node_id, epoch - 1):
                answer = part(await ask(quorum, node_id, message))
                assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH, message
                known = getattr(answer, "current_leader", None) or answer
                assert (known.leader_id, known.leader_epoch) == (leader.node_id, epoch)

    with_quorum(body)


def test_a_fetch_finds_the_leader() -> None:
    """A follower names it, with where it listens; newer epochs are unknown."""

    async def body(quorum: Quorum, leader: QuorumNode, follower: int) -> None:
        epoch = leader.service.leader_epoch
        response = await ask(quorum, follower, Fetch(9, follower, epoch, 0, 0, -1, 0))
        answer = part(response)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.current_leader.leader_id == leader.node_id
        assert [n.host for n in response.node_endpoints] == [f"node{leader.node_id}"]
        answer = part(
            await ask(quorum, leader.node_id, Fetch(9, leader.node_id, epoch + 1, 0, 0, -1, 0))
        )
        assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    with_quorum(body)


def test_impossible_numbers_are_invalid_requests() -> None:
    """In the partition, with the leader that is known."""

    async def body(quorum: Quorum, leader: QuorumNode, follower: int) -> None:
        me, epoch = leader.node_id, leader.service.leader_epoch
        end = OffsetAndEpoch(5, epoch)
        for message in (
            Vote(-1, me, epoch + 1, end, False),
            Vote(follower, me, epoch + 1, OffsetAndEpoch(5, epoch + 1), False),
            Vote(follower, me, epoch, OffsetAndEpoch(5, epoch + 1), True),
            Vote(follower, me, epoch + 1, OffsetAndEpoch(-5, epoch), False),
            BeginQuorumEpoch(-1, me, epoch),
            BeginQuorumEpoch(me, me, epoch),
            EndQuorumEpoch(-1, me, epoch, ()),
            Fetch(follower, me, epoch, -1, 0, -1, 0),
            Fetch(follower, me, epoch, 0, -1, -1, 0),
            Fetch(follower, me, epoch, 0, 0, -1, -1),
        ):
            answer = part(await ask(quorum, me, message))
            assert answer.error_code == ErrorCode.INVALID_REQUEST, message
        assert leader.service.leader_epoch == epoch

    with_quorum(body)


def test_a_vote_meant_for_another_voter_is_refused() -> None:
    """INVALID_VOTER_KEY; it changes nothing."""

    async def body(quorum: Quorum, leader: QuorumNode, follower: int) -> None:
        epoch = leader.service.leader_epoch
        for message in (
            Vote(follower, 77, epoch + 1, OffsetAndEpoch(500, epoch), False),
            BeginQuorumEpoch(follower, 77, epoch + 1),
        ):
            answer = part(await ask(quorum, leader.node_id, message))
            assert answer.error_code == ErrorCode.INVALID_VOTER_KEY
        assert leader.service.leader_epoch == epoch

    with_quorum(body)


def test_a_fetch_without_news_waits() -> None:
    """Until its time is up, or there is something new."""

    async def body(quorum: Quorum, leader: QuorumNode, follower: int) -> None:
        service = leader.service
        end = service.high_watermark

        def fetch(max_wait_ms: int) -> Fetch:
            epoch = service.leader_epoch
            return Fetch(9, leader.node_id, epoch, end, epoch, end, max_wait_ms)

        start = trio.current_time()
        answer = part(await ask(quorum, leader.node_id, fetch(300)))
        assert 0.3 <= trio.current_time() - start < 0.35
        assert (answer.error_code, answer.high_watermark, len(answer.records)) == (0, end, 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(quorum.create_topic, "b")
            start = trio.current_time()
            answer = part(await ask(quorum, leader.node_id, fetch(10_000)))
            assert trio.current_time() - start < 0.1
            assert len(answer.records) > 0

    with_quorum(body)


def test_pieces_of_a_snapshot() -> None:
    """A piece with the whole size; and every way to ask for what is not there."""

    async def body(quorum: Quorum, leader: QuorumNode, follower: int) -> None:
        service = leader.service
        await quorum.until(lambda: leader.log.latest_snapshot_id() is not None)
        snapshot_id = leader.log.latest_snapshot_id()
        assert snapshot_id is not None
        me, epoch = leader.node_id, service.leader_epoch

        async def fetch(
            node_id: int = me,
            epoch: int = epoch,
            wanted: SnapshotId = snapshot_id,
            position: int = 0,
            **changes: Any,
        ) -> Any:
            request = snapshot_request(follower, epoch, wanted, position, 100, CLUSTER_ID)
            for name, value in changes.items():
                setattr(request.topics[0], name, value)
            return part(await quorum.call(node_id, request, 1))

        first = await fetch()
        assert first.error_code == 0
        assert len(first.unaligned_records) == 100
        whole = bytes(first.unaligned_records)
        while len(whole) < first.size:
            piece = await fetch(position=len(whole))
            assert (piece.position, piece.size) == (len(whole), first.size)
            whole += bytes(piece.unaligned_records)
        stored = leader.log.read_snapshot_chunk(snapshot_id, 0, 10**6)
        assert stored == (whole, len(whole))
        other = SnapshotId(snapshot_id.end_offset + 1, snapshot_id.epoch)
        for answer, error in (
            (await fetch(wanted=other), ErrorCode.SNAPSHOT_NOT_FOUND),
            (await fetch(position=first.size), ErrorCode.POSITION_OUT_OF_RANGE),
            (await fetch(position=-1), ErrorCode.POSITION_OUT_OF_RANGE),
            (await fetch(epoch=epoch - 1), ErrorCode.FENCED_LEADER_EPOCH),
            (await fetch(epoch=epoch + 1), ErrorCode.UNKNOWN_LEADER_EPOCH),
            (await fetch(node_id=follower), ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (await fetch(name="other"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            assert answer.error_code == error

    quorum = Quorum([1, 2, 3], metadata_log_max_snapshot_interval_ms=500)

    async def main() -> None:
        await quorum.start_all()
        leader = await quorum.wait_for_leader()
        await quorum.create_topic("a")
        await body(quorum, leader, leader.node_id % 3 + 1)

    quorum.run(main)


def test_static_voters_are_not_changed() -> None:
    """UNSUPPORTED_VERSION from the leader, as with kraft.version 0; others do not lead."""

    async def body(quorum: Quorum, leader: QuorumNode, follower: int) -> None:
        directory = bytes(15) + b"x"
        for request in (
            raft_voters.AddRaftVoterRequest(
                voter_id=4,
                voter_directory_id=directory,
                listeners=[raft_voters.RaftVoterListener(name="CONTROLLER")],
                cluster_id=None,
            ),
            raft_voters.RemoveRaftVoterRequest(
                voter_id=3, voter_directory_id=directory, cluster_id=None
            ),
            raft_voters.UpdateRaftVoterRequest(voter_id=3, cluster_id=None),
        ):
            response = await quorum.call(leader.node_id, request, 0)
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
            response = await quorum.call(follower, request, 0)
            assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_quorum(body)
