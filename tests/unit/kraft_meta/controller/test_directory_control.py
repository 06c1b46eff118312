"""Log directories of brokers: where replicas lie, and what follows when one fails."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from kraftrio.kraft_meta.metadata.directories import (
    LOST,
    MIGRATING,
    UNASSIGNED,
    directories_of,
    directory_of,
    is_online,
)
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import (
    LEADER_RECOVERING,
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    decode_record,
    encode_record,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from kraftrio.wire.messages.quorum import (
    AssignReplicasRequestDirectoryData,
    AssignReplicasRequestPartitionData,
    AssignReplicasRequestTopicData,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from tests.unit.kraft_meta.controller.context import ControllerContext


def directory(broker_id: int, number: int) -> bytes:
    return bytes([broker_id, number]) * 8


def assignments(
    broker_id: int, broker_epoch: int, topic_id: bytes, *placed: tuple[bytes, int]
) -> AssignReplicasToDirsRequest:
    return AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        directories=[
            AssignReplicasRequestDirectoryData(
                id=where,
                topics=[
                    AssignReplicasRequestTopicData(
                        topic_id=topic_id,
                        partitions=[AssignReplicasRequestPartitionData(partition_index=index)],
                    )
                ],
            )
            for where, index in placed
        ],
    )


class Directories(ControllerContext):
    """Brokers 1, 2 and 3 with two log directories each."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for broker_id in (1, 2, 3):
            self.start(broker_id)

    def start(self, broker_id: int, *numbers: int, incarnation: int = 1) -> None:
        directories = [directory(broker_id, number) for number in numbers or (1, 2)]
        self.register(broker_id, incarnation=incarnation, log_dirs=directories)
        assert not self.heartbeat(broker_id).is_fenced

    def assign(
        self, broker_id: int, topic_id: bytes, *placed: tuple[bytes, int]
    ) -> AssignReplicasToDirsResponse:
        """Let a broker report in which directory its replicas of some partitions lie."""
        epoch = self.image.brokers[broker_id].broker_epoch
        response = self.send(assignments(broker_id, epoch, topic_id, *placed))
        assert isinstance(response, AssignReplicasToDirsResponse)
        return response

    def codes(self, response: AssignReplicasToDirsResponse) -> list[int]:
        return [
            partition.error_code
            for one in response.directories
            for topic in one.topics
            for partition in topic.partitions
        ]

    def create_placed(self, name: str, *replicas: list[int], **configs: str) -> bytes:
        """Create a topic whose partition n lies in directory 1 + n % 2 of every replica."""
        topic_id = self.create(name, *replicas, **configs)
        for broker_id in (1, 2, 3):
            placed = [
                (directory(broker_id, 1 + index % 2), index)
                for index, assigned in enumerate(replicas)
                if broker_id in assigned
            ]
            assert set(self.codes(self.assign(broker_id, topic_id, *placed))) <= {0}
        return topic_id

    def isr_and_leader(self, name: str, index: int) -> tuple[tuple[int, ...], int]:
        partition = self.partition(name, index)
        return partition.isr, partition.leader


# ---- the ids


def test_reserved_ids_say_whether_a_replica_may_be_online() -> None:
    """Kafka's numbers; what nobody has said may be online, what is lost is not."""
    assert [bytes(15) + bytes([n]) for n in (0, 1, 2)] == [MIGRATING, UNASSIGNED, LOST]
    known = (directory(1, 1),)
    assert is_online(MIGRATING, known)
    assert is_online(UNASSIGNED, known)
    assert not is_online(LOST, known)
    assert not is_online(LOST, ())
    assert is_online(directory(1, 1), known)
    assert not is_online(directory(1, 2), known)
    assert is_online(directory(1, 2), ())


def test_unknown_directories_take_no_room() -> None:
    """All of them MIGRATING are none at all."""
    assert directories_of((1, 2), {}) == ()
    assert directories_of((2, 1), {1: LOST}) == (MIGRATING, LOST)
    assert directory_of((1, 2), (), 2) == MIGRATING
    assert directory_of((1, 2), (LOST, UNASSIGNED), 1) == LOST
    assert directory_of((1, 2), (LOST, LOST), 3) == UNASSIGNED


def test_partitions_share_what_is_equal() -> None:
    """An image of many thousands of partitions has a handful of values."""
    context = Directories()
    context.create_placed("t", [1, 2], [1, 2], [1, 2])
    snapshot = MetadataDelta(MetadataImage())
    for record in context.image.to_records():
        snapshot.replay(decode_record(encode_record(record)))
    topic = snapshot.apply(0, 0).topic("t")
    assert topic is not None
    first, _, third = (topic.partitions[index].directories for index in range(3))
    assert first == (directory(1, 1), directory(2, 1))
    assert first is third


# ---- where replicas lie


def test_a_new_replica_lies_in_the_only_directory_or_where_its_broker_will_say() -> None:
    """So that brokers with one directory never have to say anything."""
    context = Directories()
    context.start(4, 1)
    context.start_brokers(5)
    context.create("t", [1, 4, 5])
    assert context.partition("t").directories == (UNASSIGNED, directory(4, 1), MIGRATING)


def test_the_image_keeps_what_a_broker_says() -> None:
    """Its own replica alone; the leader epoch stays, and saying it again changes nothing."""
    context = Directories()
    topic_id = context.create("t", [1, 2])
    before = context.partition("t")
    response = context.assign(2, topic_id, (directory(2, 2), 0))
    assert response.error_code == ErrorCode.NONE
    assert response.directories[0].id == directory(2, 2)
    assert context.codes(response) == [ErrorCode.NONE]
    after = context.partition("t")
    assert after.directories == (UNASSIGNED, directory(2, 2))
    assert after.partition_epoch == before.partition_epoch + 1
    assert (after.leader_epoch, after.isr) == (before.leader_epoch, before.isr)
    context.assign(2, topic_id, (directory(2, 2), 0))
    assert context.last_records == []


def test_of_two_words_about_a_replica_in_one_request_the_last_counts() -> None:
    """The second is decided on what the first made of it."""
    context = Directories()
    topic_id = context.create("t", [1, 2])
    context.assign(1, topic_id, (directory(1, 1), 0), (directory(1, 2), 0))
    assert context.partition("t").directories == (directory(1, 2), UNASSIGNED)
    assert len(context.last_records) == 2


def test_assignments_of_what_is_not_there_are_refused_one_by_one() -> None:
    """The others are taken."""
    context = Directories()
    topic_id = context.create("t", [1, 2], [2, 3])
    response = context.assign(1, topic_id, (directory(1, 1), 0), (LOST, 1), (LOST, 2))
    assert context.codes(response) == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert context.codes(context.assign(1, b"x" * 16, (LOST, 0))) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert context.partition("t").directories == (directory(1, 1), UNASSIGNED)


@pytest.mark.parametrize("broker_id", [1, 9])
def test_only_the_registered_incarnation_says_where_its_replicas_lie(broker_id: int) -> None:
    """The whole request is refused."""
    context = Directories()
    topic_id = context.create("t", [1, 2])
    response = context.send(assignments(broker_id, 999, topic_id, (LOST, 0)))
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert response.directories == []
    assert context.partition("t").leader == 1


def test_a_reassignment_keeps_the_directories_of_the_replicas_that_stay() -> None:
    """In the order of the new replicas, through its start and its end."""
    context = Directories()
    context.create_placed("t", [1, 2])
    context.send(
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="t",
                    partitions=[ReassignablePartition(partition_index=0, replicas=[3, 1])],
                )
            ]
        )
    )
    partition = context.partition("t")
    assert partition.replicas == (3, 1, 2)
    assert partition.directories == (UNASSIGNED, directory(1, 1), directory(2, 1))
    context.alter_isr("t", [1, 2, 3])
    assert context.partition("t").replicas == (3, 1)
    assert context.partition("t").directories == (UNASSIGNED, directory(1, 1))


# ---- a directory fails


def test_what_lies_in_a_failed_directory_moves_and_nothing_else() -> None:
    """Leaders and ISRs of one directory alone; the leader epoch ends where the leader moved."""
    context = Directories()
    context.create_placed("t", [1, 2, 3], [1, 2, 3], [2, 1, 3])
    response = context.heartbeat(1, offline_log_dirs=[directory(1, 1)])
    assert response.error_code == ErrorCode.NONE
    assert not response.is_fenced
    assert context.isr_and_leader("t", 0) == ((2, 3), 2)
    assert context.partition("t", 0).leader_epoch == 1
    assert context.isr_and_leader("t", 1) == ((1, 2, 3), 1)
    assert context.partition("t", 1).leader_epoch == 0
    assert context.isr_and_leader("t", 2) == ((2, 3), 2)
    assert context.partition("t", 2).leader_epoch == 0
    assert context.image.brokers[1].log_dirs == (directory(1, 2),)


def test_a_failure_is_recorded_once() -> None:
    """Every heartbeat reports it again; unknown directories are nobody's."""
    context = Directories()
    context.create_placed("t", [1, 2])
    context.heartbeat(1, offline_log_dirs=[directory(1, 1)])
    assert context.last_records
    context.heartbeat(1, offline_log_dirs=[directory(1, 1), directory(2, 1), LOST])
    assert context.last_records == []
    assert context.image.brokers[2].log_dirs == (directory(2, 1), directory(2, 2))


def test_the_last_of_the_isr_stays_in_it_without_a_leader() -> None:
    """Nobody else is elected cleanly, and nothing that was acknowledged is lost."""
    context = Directories()
    context.create_placed("t", [1, 2])
    context.alter_isr("t", [1])
    context.heartbeat(1, offline_log_dirs=[directory(1, 1)])
    assert context.isr_and_leader("t", 0) == ((1,), -1)


def test_an_unclean_election_is_held_where_it_is_allowed() -> None:
    """As when the broker had gone."""
    context = Directories()
    context.create_placed("t", [1, 2], unclean_leader_election_enable="true")
    context.alter_isr("t", [1])
    context.heartbeat(1, offline_log_dirs=[directory(1, 1)])
    assert context.isr_and_leader("t", 0) == ((2,), 2)
    assert context.partition("t").leader_recovery_state == LEADER_RECOVERING


def test_no_election_gives_leadership_to_a_failed_directory() -> None:
    """Neither a preferred nor an unclean one, nor when the only other replica goes."""
    context = Directories(unclean_leader_election_enable=True)
    context.create_placed("t", [1, 2])
    context.heartbeat(1, offline_log_dirs=[directory(1, 1)])
    response = context.send(
        ElectLeadersRequest(
            election_type=0, topic_partitions=[TopicPartitions(topic="t", partitions=[0])]
        )
    )
    result = response.replica_election_results[0].partition_result[0]
    assert result.error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    context.fence(2)
    assert context.isr_and_leader("t", 0) == ((2,), -1)
    context.sleep(600_000)
    assert context.partition("t").leader == -1


def test_a_replica_in_a_failed_directory_does_not_join_the_isr() -> None:
    """A proposal that was under way when the directory failed would have it join."""
    context = Directories()
    context.create_placed("t", [1, 2, 3])
    context.heartbeat(3, offline_log_dirs=[directory(3, 1)])
    answer = context.alter_isr("t", [1, 2, 3])
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert context.isr_and_leader("t", 0) == ((1, 2), 1)


@pytest.mark.parametrize("where", [LOST, directory(1, 1)], ids=["lost", "failed"])
def test_a_replica_that_turns_out_to_be_lost_moves(where: bytes) -> None:
    """Its broker may report its directory only after that has failed."""
    context = Directories()
    topic_id = context.create("t", [1, 2])
    context.heartbeat(1, offline_log_dirs=[directory(1, 1)])
    assert context.isr_and_leader("t", 0) == ((1, 2), 1)
    context.assign(1, topic_id, (where, 0))
    assert context.isr_and_leader("t", 0) == ((2,), 2)
    assert context.partition("t").directories == (where, UNASSIGNED)


def test_a_broker_without_any_directory_is_fenced_and_stays_so() -> None:
    """It can serve nothing; what it led moves at once."""
    context = Directories()
    context.create_placed("t", [1, 2], [1, 2])
    offline = [directory(1, 1), directory(1, 2)]
    assert context.heartbeat(1, offline_log_dirs=offline).is_fenced
    assert context.isr_and_leader("t", 1) == ((2,), 2)
    assert context.heartbeat(1, offline_log_dirs=offline).is_fenced


def test_directories_fail_one_after_the_other() -> None:
    """The last one takes the broker with it."""
    context = Directories()
    context.create_placed("t", [1, 2], [1, 2])
    assert not context.heartbeat(1, offline_log_dirs=[directory(1, 1)]).is_fenced
    offline = [directory(1, 1), directory(1, 2)]
    assert context.heartbeat(1, offline_log_dirs=offline).is_fenced
    assert context.isr_and_leader("t", 1) == ((2,), 2)


def test_a_directory_that_failed_before_its_broker_was_unfenced_gives_no_leader() -> None:
    """The failure counts first, and the next heartbeat unfences."""
    context = Directories()
    context.create_placed("t", [1], [1])
    context.fence(1)
    failed = [directory(1, 1)]
    assert context.heartbeat(1, offline_log_dirs=failed).is_fenced
    assert not context.heartbeat(1, offline_log_dirs=failed).is_fenced
    assert context.isr_and_leader("t", 0) == ((1,), -1)
    assert context.isr_and_leader("t", 1) == ((1,), 1)


def test_a_registration_that_is_amended_without_a_directory_moves_its_replicas() -> None:
    """The answer to the first was lost, and the directory failed meanwhile."""
    context = Directories()
    context.create_placed("t", [1, 2], [1, 2])
    context.register(1, log_dirs=[directory(1, 2)])
    assert context.isr_and_leader("t", 0) == ((2,), 2)
    assert context.isr_and_leader("t", 1) == ((1, 2), 1)


# ---- and comes back


def test_a_restart_with_the_directory_lets_its_replicas_lead_and_join_again() -> None:
    """The same directory: the leaderless partition is led at once, the other one joined."""
    context = Directories()
    context.create_placed("t", [1, 2])
    context.create_placed("alone", [1])
    context.heartbeat(1, offline_log_dirs=[directory(1, 1)])
    assert context.isr_and_leader("t", 0) == ((2,), 2)
    assert context.isr_and_leader("alone", 0) == ((1,), -1)
    context.fence(1)
    context.start(1, incarnation=2)
    assert context.isr_and_leader("alone", 0) == ((1,), 1)
    assert context.alter_isr("t", [2, 1]).error_code == ErrorCode.NONE
    assert context.isr_and_leader("t", 0) == ((2, 1), 2)


def test_a_restart_with_another_disk_waits_for_the_broker_to_say_where_the_replicas_are() -> None:
    """A directory that was replaced has another id."""
    context = Directories()
    topic_id = context.create_placed("t", [1, 2])
    context.heartbeat(1, offline_log_dirs=[directory(1, 1)])
    context.fence(1)
    context.start(1, 2, 3, incarnation=2)
    assert context.alter_isr("t", [2, 1]).error_code == ErrorCode.INELIGIBLE_REPLICA
    context.assign(1, topic_id, (directory(1, 3), 0))
    assert context.alter_isr("t", [2, 1]).error_code == ErrorCode.NONE
    context.fence(2)
    assert context.partition("t").leader == 1


def test_a_replica_without_a_leader_leads_once_it_is_placed_again() -> None:
    """The last of the ISR, and its directory was replaced."""
    context = Directories()
    topic_id = context.create_placed("t", [1])
    context.heartbeat(1, offline_log_dirs=[directory(1, 1)])
    context.fence(1)
    context.start(1, 2, 3, incarnation=2)
    assert context.partition("t").leader == -1
    context.assign(1, topic_id, (directory(1, 3), 0))
    assert context.partition("t").leader == 1


def test_the_next_controller_knows_the_directories() -> None:
    """They are in the log and in its snapshots."""
    context = Directories()
    context.create_placed("t", [1, 2], [1, 2])
    context.heartbeat(1, offline_log_dirs=[directory(1, 1)])
    snapshot = MetadataDelta(MetadataImage())
    for record in context.image.to_records():
        snapshot.replay(record)
    assert snapshot.apply(context.image.offset, context.image.epoch) == context.image
    context.fail_over()
    context.heartbeat(2, offline_log_dirs=[directory(2, 1)])
    assert context.isr_and_leader("t", 0) == ((2,), -1)
    assert context.isr_and_leader("t", 1) == ((1, 2), 1)


# ---- old logs


def test_records_from_before_directories_were_kept_can_be_read() -> None:
    """They say nothing of directories, and change nothing of them."""
    topic_id = b"t" * 16
    partition = decode_record(
        msgpack.packb([3, 0, topic_id, 0, [1, 2], [1, 2], 1, 0, 0, 0, [], []])
    )
    assert isinstance(partition, PartitionRecord)
    assert partition.directories == ()
    change = decode_record(msgpack.packb([5, 0, topic_id, 0, None, -2, [2, 3], None, None, None]))
    assert isinstance(change, PartitionChangeRecord)
    assert change.directories is None
    broker = decode_record(msgpack.packb([17, 0, 1, 5, True, None]))
    assert broker == BrokerRegistrationChangeRecord(1, 5, fenced=True)


# ---- brokers whose disks were replaced


def unclean_election(name: str) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=1, topic_partitions=[TopicPartitions(topic=name, partitions=[0])]
    )


def replace_disks(cluster: Directories, *lost: bytes) -> None:
    """Let broker 1 come back with other directories, and report which topics' logs it misses."""
    cluster.start(1, 8, 9, incarnation=2)
    for topic_id in lost:
        assert cluster.codes(cluster.assign(1, topic_id, (LOST, 0))) == [0]


def test_a_broker_with_another_disk_leaves_every_isr_before_it_is_unfenced() -> None:
    """It leads nothing either; where it was the last member, nobody does."""
    cluster = Directories()
    shared = cluster.create_placed("shared", [1, 2, 3])
    alone = cluster.create_placed("alone", [1])
    cluster.fence(1)
    cluster.register(1, incarnation=2, log_dirs=[directory(1, 8), directory(1, 9)])
    assert cluster.partition("shared").isr == (2, 3)
    replace_disks(cluster, alone)
    assert (cluster.partition("shared").isr, cluster.partition("shared").leader) == ((2, 3), 2)
    assert (cluster.partition("alone").isr, cluster.partition("alone").leader) == ((1,), NO_LEADER)
    # The log that it creates elsewhere belongs to a follower.
    cluster.assign(1, shared, (directory(1, 8), 0))
    assert cluster.partition("shared").leader == 2
    cluster.alter_isr("shared", [2, 3, 1])
    assert cluster.partition("shared").isr == (2, 3, 1)


@pytest.mark.parametrize("is_configured", [True, False])
def test_an_unclean_election_lets_a_broker_begin_empty(is_configured: bool) -> None:
    """By the topic's setting or an operator's word; the broker says where the new log lies."""
    setting = {"unclean.leader.election.enable": str(is_configured).lower()}
    cluster = Directories()
    topic_id = cluster.create_placed("t", [1], **setting)
    cluster.fence(1)
    replace_disks(cluster, topic_id)
    if not is_configured:
        assert cluster.partition("t").leader == NO_LEADER
        cluster.send(unclean_election("t"))
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (1, (1,))
    assert partition.leader_recovery_state == LEADER_RECOVERING
    assert partition.directory(1) == UNASSIGNED
    cluster.assign(1, topic_id, (directory(1, 8), 0))
    assert cluster.partition("t").directory(1) == directory(1, 8)


def test_an_unclean_election_prefers_who_has_a_log() -> None:
    """However old: a replica without any comes last."""
    cluster = Directories()
    topic_id = cluster.create_placed("t", [1, 2])
    cluster.fence(2)
    cluster.fence(1)
    assert cluster.partition("t").isr == (1,)
    replace_disks(cluster, topic_id)
    cluster.start(2, incarnation=2)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.send(unclean_election("t"))
    assert cluster.partition("t").leader == 2
