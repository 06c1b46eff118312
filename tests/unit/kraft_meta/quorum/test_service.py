"""The quorum's task: durable before answered, group commit, snapshots, restarts, failing disks."""

from __future__ import annotations

import errno
import random
from functools import partial

import pytest
import trio
import trio.testing

from kraftrio.broker.log.metadata.metadata_log import MetadataLog
from kraftrio.broker.log.metadata.quorum_state_file import QuorumStateFile
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.quorum.active_controller import NEVER_DECIDED
from kraftrio.kraft_meta.quorum.cluster_identity import ClusterIdError
from kraftrio.kraft_meta.raft.messages import (
    BeginQuorumEpoch,
    Fetch,
    FetchReply,
    Vote,
    VoteReply,
)
from kraftrio.kraft_meta.raft.values import ElectionState, LogBatch, OffsetAndEpoch
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import DeleteTopicsRequest, DeleteTopicState
from kraftrio.wire.messages.quorum import (
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from kraftrio.wire.records.control import ControlRecordType, control_key
from tests.unit.kraft_meta.quorum.service_nodes import (
    CLUSTER_ID,
    DIRECTORY,
    Node,
    create_request,
    new_disk,
    note,
    plain,
    virtually,
)


def test_a_new_node_is_the_active_controller_when_it_has_started() -> None:
    """Elected, bootstrapped and committed; everything durable, so a crash finds it again."""

    async def main() -> None:
        async with Node(new_disk()).running() as node:
            service = node.service
            assert (service.leader_id, service.leader_epoch) == (1, 1)
            assert service.is_active_controller
            assert service.image.cluster_id == CLUSTER_ID
            assert service.high_watermark == service.image.offset + 1
            survivor = node.fs.after_crash()
        async with Node(survivor).running() as node:
            assert node.service.leader_epoch == 2
            assert node.service.image.cluster_id == CLUSTER_ID

    virtually(main)


def test_an_answer_means_that_it_is_durable() -> None:
    """While the disk works nothing is answered and nobody sees the change."""

    async def main() -> None:
        async with Node(new_disk()).running() as node:
            await node.join()
            node.hold = trio.Event()
            deferred = node.service.submit(create_request("a"), api_version=7)
            await trio.testing.wait_all_tasks_blocked()
            assert not deferred.done
            assert node.service.image.topic("a") is None
            node.hold.set()
            response = await deferred.wait()
            assert response.topics[0].error_code == ErrorCode.NONE
            assert node.service.image.topic("a") is not None
            survivor = node.fs.after_crash()
        async with Node(survivor).running() as node:
            assert node.service.image.topic("a") is not None

    virtually(main)


def test_an_answer_comes_after_every_subscriber_took_the_change() -> None:
    """A client that sees its topic can write to it: the broker's parts know of it by then."""

    async def main() -> None:
        async with Node(new_disk()).running() as node:
            await node.join()
            order: list[str] = []
            for name in ("first", "last"):
                node.service.subscribe(
                    lambda delta, _image, name=name: order.extend(  # type: ignore[misc]
                        f"{name} sees {topic.name}" for topic in delta.changed_topics.values()
                    )
                )
            deferred = node.service.submit(create_request("a"), api_version=7)
            deferred.then(lambda _response: order.append("answer"))
            await trio.testing.wait_all_tasks_blocked()
            assert order == ["first sees a", "last sees a", "answer"]

    virtually(main)


def test_requests_meanwhile_share_one_batch_and_one_flush() -> None:
    """Group commit: answers in order, after one more flush for all of them."""

    async def main() -> None:
        async with Node(new_disk()).running() as node:
            await node.join()
            node.hold = trio.Event()
            first = node.service.submit(create_request("first"), api_version=7)
            await trio.testing.wait_all_tasks_blocked()
            order: list[str] = []
            first.then(partial(note, order, "first"))
            for n in range(20):
                deferred = node.service.submit(create_request(f"t{n}"), api_version=7)
                deferred.then(partial(note, order, f"t{n}"))
            flushes = node.flushes
            node.hold.set()
            await trio.testing.wait_all_tasks_blocked()
            assert order == ["first", *(f"t{n}" for n in range(20))]
            assert node.flushes == flushes + 2
            end = node.log.log_end_offset
            (batch,) = node.log.read(end - 1, end, 1)
            assert len(batch.values) == 40

    virtually(main)


def test_an_answer_without_records_waits_for_what_it_saw() -> None:
    """TOPIC_ALREADY_EXISTS is not answered before the topic that exists is committed."""

    async def main() -> None:
        async with Node(new_disk()).running() as node:
            await node.join()
            node.hold = trio.Event()
            node.service.submit(create_request("a"), api_version=7)
            again = node.service.submit(create_request("a"), api_version=7)
            await trio.testing.wait_all_tasks_blocked()
            assert not again.done
            node.hold.set()
            response = await again.wait()
            assert response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            assert node.service.submit(create_request("a"), api_version=7).done

    virtually(main)


def test_subscribers_see_everything_in_order() -> None:
    """A full delta at first, then each change; deltas chain."""

    async def main() -> None:
        async with Node(new_disk()).running() as node:
            await node.join()
            await node.create("a")
            late: list[tuple[MetadataDelta, MetadataImage]] = []
            node.service.subscribe(lambda delta, image: late.append((delta, image)))
            assert [d.name for d in late[0][0].changed_topics.values()] == ["a"]
            await node.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")]), 6)
            assert [t.name for t in late[1][0].deleted_topics.values()] == ["a"]
            assert late[1][0].previous is late[0][1]
            for before, after in zip(node.deltas[1:], node.deltas[2:], strict=False):
                assert after.previous.offset > before.previous.offset

    virtually(main)


def test_the_image_after_a_restart_is_the_image_before() -> None:
    """From the log alone, and from snapshot and log; producer ids go on."""

    async def main() -> None:
        fs = new_disk()
        async with Node(fs).running() as node:
            epoch = await node.join()
            await node.create("a", "b")
            ids = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
            assert (await node.ask(ids)).producer_id_start == 0
            before = plain(node.service.image)
            fs = node.fs.after_crash()
        for interval_ms in (1000, 10**9):
            node = Node(fs, metadata_log_max_snapshot_interval_ms=interval_ms)
            async with node.running():
                assert plain(node.service.image) == before
                await trio.sleep(2)
                assert (node.log.latest_snapshot_id() is not None) is True or interval_ms > 1000
                fs = node.fs.after_crash()
        async with Node(fs).running() as node:
            assert node.log.log_start_offset > 0
            assert plain(node.service.image) == before
            epoch = await node.join()
            ids = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
            assert (await node.ask(ids)).producer_id_start == 1000

    virtually(main)


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_at_any_moment_keeps_what_was_answered(seed: int) -> None:
    """The machine dies while requests are under way; answered topics are there again."""

    async def main() -> None:
        rng = random.Random(seed)
        node = Node(new_disk(), metadata_log_max_record_bytes_between_snapshots=3000)
        answered: list[str] = []
        async with node.running():
            await node.join()
            for n in range(rng.randrange(60)):
                deferred = node.service.submit(create_request(f"t{n}"), api_version=7)
                deferred.then(partial(note, answered, f"t{n}"))
                for _ in range(rng.randrange(4)):
                    await trio.lowlevel.checkpoint()
            survivor = node.fs.after_crash(rng.randrange(node.fs.unsynced_units + 1))
            known = list(answered)
        async with Node(survivor).running() as again:
            names = again.service.image.topics_by_name
            assert [name for name in known if name not in names] == []
            await again.join()
            await again.create("new")

    virtually(main)


def test_a_failing_disk_ends_the_node() -> None:
    """OSError propagates out of run; the request is never answered."""

    async def main() -> None:
        node = Node(new_disk())
        deferred = None
        with pytest.RaisesGroup(OSError, flatten_subgroups=True):
            async with node.running():
                await node.join()
                node.fs.fail("sync", ".log")
                deferred = node.service.submit(create_request("a"), api_version=7)
                await trio.sleep_forever()
        assert deferred is not None
        assert not deferred.done

    virtually(main)


def test_a_full_disk_delays_changes() -> None:
    """Nothing is answered before there is space again; then everything is, and it is durable."""

    async def main() -> None:
        node = Node(new_disk())
        async with node.running():
            await node.join()
            node.fs.fail("write", ".log", errno.ENOSPC)
            first = node.service.submit(create_request("a"), api_version=7)
            await trio.sleep(5)
            second = node.service.submit(create_request("b"), api_version=7)
            await trio.sleep(5)
            assert not first.done and not second.done
            node.fs.heal()
            await trio.sleep(1)
            assert first.done and second.done
            survivor = node.fs.after_crash(0)
        async with Node(survivor).running() as again:
            assert set(again.service.image.topics_by_name) == {"a", "b"}

    virtually(main)


def test_a_silent_broker_is_fenced_in_time() -> None:
    """The controller's deadlines run on the service's clock."""

    async def main() -> None:
        async with Node(new_disk()).running() as node:
            epoch = await node.join()
            await trio.sleep(8)
            await node.beat(epoch)
            await trio.sleep(8.9)
            assert not node.service.image.brokers[1].fenced
            await trio.sleep(0.2)
            assert node.service.image.brokers[1].fenced

    virtually(main)


def test_another_clusters_log_is_refused() -> None:
    """The node's meta.properties and the log must name the same cluster."""

    async def main() -> None:
        fs = new_disk()
        async with Node(fs).running():
            await trio.testing.wait_all_tasks_blocked()
        other = Node(fs, cluster_id="other")
        with pytest.RaisesGroup(ClusterIdError, flatten_subgroups=True):
            async with other.running():
                await trio.sleep_forever()
        assert not other.service.is_active_controller

    virtually(main)


def test_nodes_that_do_not_lead_refuse_requests() -> None:
    """Before the start, and as a voter among others that has no majority."""

    async def main() -> None:
        node = Node(new_disk(), voters=(1, 2, 3))
        assert await node.ask(create_request("a")) == NEVER_DECIDED
        async with node.running():
            await trio.sleep(5)
            assert node.service.leader_id == -1
            assert await node.ask(BrokerHeartbeatRequest(broker_id=1)) == NEVER_DECIDED
            assert {message.destination for message in node.sent} == {2, 3}
            node.service.messages.step(BeginQuorumEpoch(2, 1, 7))
            assert (node.service.leader_id, node.service.leader_epoch) == (2, 7)

    virtually(main)


def test_a_vote_is_durable_before_it_is_sent() -> None:
    """The answer to another node's request leaves after what it promises is on disk."""

    async def main() -> None:
        node = Node(new_disk(), voters=(1, 2, 3))
        async with node.running():
            node.hold = trio.Event()
            answer = node.service.messages.ask(Vote(2, 1, 7, OffsetAndEpoch(0, 0), False))
            await trio.testing.wait_all_tasks_blocked()
            assert not answer.done
            stored = QuorumStateFile(node.fs.after_crash(), DIRECTORY).read()
            assert stored == ElectionState(is_proven=False)
            node.hold.set()
            response = await answer.wait()
            assert isinstance(response, VoteReply)
            assert response.vote_granted
            stored = QuorumStateFile(node.fs.after_crash(), DIRECTORY).read()
            assert stored == ElectionState(7, -1, 2, is_proven=True)

    virtually(main)


@pytest.mark.parametrize(("call", "code"), [("write", errno.ENOSPC), ("open", errno.EMFILE)])
def test_a_vote_waits_for_room(call: str, code: int) -> None:
    """The node goes on, and votes once it can note for whom."""

    async def main() -> None:
        node = Node(new_disk(), voters=(1, 2, 3))
        async with node.running():
            node.service.messages.step(BeginQuorumEpoch(3, 1, 6))
            await trio.sleep(0.1)
            (asked,) = (m for m in node.sent if isinstance(m, Fetch) and m.epoch == 6)
            node.service.messages.step(FetchReply(3, 1, 6, 3, 0, 0, fetch_id=asked.fetch_id))
            await trio.sleep(0.1)
            node.fs.fail(call, "quorum-state", code)
            answer = node.service.messages.ask(Vote(2, 1, 7, OffsetAndEpoch(0, 0), False))
            await trio.sleep(5)
            assert not answer.done
            node.fs.heal()
            response = await answer.wait()
            assert isinstance(response, VoteReply)
            assert response.vote_granted
            stored = QuorumStateFile(node.fs.after_crash(), DIRECTORY).read()
            assert stored == ElectionState(7, -1, 2, is_proven=True)

    virtually(main)


def test_a_start_without_room_ends() -> None:
    """Who starts a node is told at once why it cannot run."""

    async def main() -> None:
        node = Node(new_disk())
        node.fs.fail("write", "quorum-state", errno.ENOSPC)
        with pytest.RaisesGroup(OSError, flatten_subgroups=True):
            async with node.running():
                await trio.sleep_forever()

    virtually(main)


def test_observers_do_not_sync_what_they_append() -> None:
    """Nobody counts on their copy; voters sync before they ask for more."""

    async def main() -> None:
        for voters, is_synced in ((2, 3, 4), False), ((1, 2, 3), True):
            node = Node(new_disk(), voters=voters)
            async with node.running():
                service = node.service
                service.messages.step(BeginQuorumEpoch(2, 1, 7))
                await trio.sleep(0.1)
                (asked,) = (m for m in node.sent if isinstance(m, Fetch) and m.epoch == 7)
                batch = LogBatch(0, 7, 5, (b"x",), (control_key(ControlRecordType.LEADER_CHANGE),))
                answer = FetchReply(
                    2, 1, 7, 2, asked.fetch_offset, asked.last_fetched_epoch, batches=(batch,)
                )
                service.messages.step(answer)
                await trio.sleep(0.1)
                assert node.sent[-1].fetch_offset == 1
                survivor = MetadataLog(node.fs.after_crash(), DIRECTORY)
                assert (survivor.log_end_offset == 1) is is_synced

    virtually(main)


def test_leaders_are_reported_at_once_and_at_every_change() -> None:
    """Also what is known when the callback comes."""

    async def main() -> None:
        node = Node(new_disk(), voters=(1, 2, 3))
        reported: list[tuple[int, int]] = []
        node.service.on_leader_change(lambda *leader: reported.append(leader))
        async with node.running():
            node.service.messages.step(BeginQuorumEpoch(2, 1, 7))
            node.service.messages.step(BeginQuorumEpoch(2, 1, 7))
            node.service.messages.step(BeginQuorumEpoch(3, 1, 8))
            late: list[tuple[int, int]] = []
            node.service.on_leader_change(lambda *leader: late.append(leader))
        assert reported == [(-1, -1), (-1, 0), (2, 7), (3, 8)]
        assert late == [(3, 8)]

    virtually(main)


def test_a_broker_that_is_known_to_be_gone_is_fenced_at_once() -> None:
    """But not in the place of its next incarnation."""

    async def main() -> None:
        async with Node(new_disk()).running() as node:
            epoch = await node.join()
            node.service.fence_broker(1, epoch - 1)
            await trio.testing.wait_all_tasks_blocked()
            assert not node.service.image.brokers[1].fenced
            node.service.fence_broker(1, epoch)
            await trio.testing.wait_all_tasks_blocked()
            assert node.service.image.brokers[1].fenced

    virtually(main)


def test_a_quorum_of_one_has_no_successor() -> None:
    """It goes on to lead until it ends."""

    async def main() -> None:
        async with Node(new_disk()).running() as node:
            assert not await node.service.leadership_transfer.hand_over(1000)
            assert node.service.is_active_controller

    virtually(main)


def test_describe_quorum_of_one() -> None:
    """What kafka-metadata-quorum describe shows: the leader is caught up now."""

    async def main() -> None:
        async with Node(new_disk()).running() as node:
            await node.join()
            response = node.service.describe_quorum(
                DescribeQuorumRequest(
                    topics=[
                        DescribeQuorumRequestTopicData(
                            topic_name=name, partitions=[DescribeQuorumRequestPartitionData()]
                        )
                        for name in ("__cluster_metadata", "x")
                    ]
                )
            )
            (partition,) = response.topics[0].partitions
            assert partition.error_code == ErrorCode.NONE
            assert (partition.leader_id, partition.leader_epoch) == (1, 1)
            assert partition.high_watermark == node.service.image.offset + 1
            (voter,) = partition.current_voters
            assert voter.replica_id == 1
            assert voter.log_end_offset == partition.high_watermark
            assert voter.last_caught_up_timestamp >= 1_700_000_000_000
            assert partition.observers == []
            (unknown,) = response.topics[1].partitions
            assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    virtually(main)


def test_a_log_that_cannot_be_read_for_a_follower_ends_the_node() -> None:
    """The damage is this node's, and not a matter of the connection on which it was asked."""

    async def main() -> None:
        fs = new_disk()
        async with Node(fs).running() as node:
            await node.join()
        node = Node(fs)
        with pytest.RaisesGroup(OSError, flatten_subgroups=True):
            async with node.running():
                path = f"{DIRECTORY}/{0:020d}.log"
                file = fs.open(path)
                file.write_at(bytes([file.read_at(70, 1)[0] ^ 1]), 70)
                epoch = node.service.leader_epoch
                node.service.messages.step(Fetch(9, 1, epoch, 0, 0, 0, 500))
                await trio.sleep(60)
        assert not node.sent

    virtually(main)


# ---- figures


def test_statistics_say_who_leads_and_how_far_the_log_is() -> None:
    """Before the start nothing is known; then gauges follow, and counters only grow."""

    async def main() -> None:
        node = Node(new_disk())
        before = node.service.statistics()
        assert (before["current_leader"], before["high_watermark"]) == (-1, -1)
        assert before["voters"] == 1
        async with node.running():
            await node.join()
            await node.create("a")
            found = node.service.statistics()
            assert (found["current_leader"], found["active_controller_count"]) == (1, 1)
            assert found["log_end_offset"] == found["high_watermark"] > 1
            assert found["applied_offset"] == found["high_watermark"] - 1
            assert found["appended_records_total"] == found["log_end_offset"]
            assert found["appended_bytes_total"] == node.log.size_bytes
            assert found["parked_responses"] == 0
            node.hold = trio.Event()
            node.service.submit(create_request("b"), api_version=7)
            assert node.service.statistics()["parked_responses"] == 1
            node.hold.set()
        assert before["current_leader"] == -1, "a snapshot changes no more"

    virtually(main)
