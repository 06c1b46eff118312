"""Behaviours that clients rely on and that only several brokers can show, by raw frames.

Who answers for a partition it does not lead, what a deposed leader says, epochs after failovers,
too few in-sync replicas, truncated logs, and ids and topics asked for at every broker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    TopicPartitions,
)
from kraftrio.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from kraftrio.wire.messages.data import (
    EpochEndOffset,
    InitProducerIdRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kraftrio.wire.messages.groups import DescribeGroupsRequest
from kraftrio.wire.records.batch import iter_headers
from tests.conformance.broker_process import KIND
from tests.conformance.cases.calls import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    PRODUCE_BY_NAME,
    batch_of,
    delete_records,
    fetch,
    list_offset,
    new_producer_id,
    now_ms,
    produce,
    produce_request,
    records_in,
)
from tests.conformance.cases.members import (
    Member,
    alone,
    commit_code,
    commit_request,
    fetch_offset,
    subscription,
)
from tests.conformance.cases.raw_client import ConnectionClosed, RawClient
from tests.conformance.cluster_load import check_replicas
from tests.conformance.cluster_process import Cluster

Connect = Callable[[int], RawClient]
NewTopic = Callable[..., str]

# What a client may be told while a partition changes its leader: all of it is retriable.
PASSING = {
    ErrorCode.NONE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


@pytest.fixture
def connect(cluster: Cluster) -> Iterator[Connect]:
    """Open connections to nodes; they are closed with the test."""
    with ExitStack() as opened:
        yield lambda node_id: opened.enter_context(cluster.node(node_id).client())


@pytest.fixture
def new_topic(cluster: Cluster, unique_topic: Callable[[], str]) -> NewTopic:
    """Create topics with their replicas where they are wanted: new_topic([1, 2], [2, 3])."""

    def made(*assignments: list[int], **configs: object) -> str:
        name = unique_topic()
        code = create(cluster.reachable()[0].client, name, *assignments, **configs)
        assert code == ErrorCode.NONE
        for partition, replicas in enumerate(assignments):
            cluster.wait_isr(name, set(replicas), partition)
            wait_served(cluster, name, partition)
        return name

    return made


def create(
    client_of: Callable[[], RawClient], name: str, *assignments: list[int], **configs: object
) -> int:
    """Create a topic with given replicas; return the error code."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(assignments)
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
            for key, value in configs.items()
        ],
    )
    with client_of() as client:
        (result,) = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics
    return int(result.error_code)


def wait_served(cluster: Cluster, topic: str, partition: int = 0) -> None:
    """Wait until the leader of a partition answers for it."""

    def served() -> bool:
        with cluster.node(cluster.leader(topic, partition)).client() as client:
            return list_offset(client, topic, LATEST, partition).error_code == ErrorCode.NONE

    cluster.wait_until(served, f"{topic}-{partition} is served")


def append(client: RawClient, topic: str, *values: bytes) -> int:
    """Produce a batch with acks=all, again while the partition settles; return its offset."""
    deadline = time.monotonic() + 20
    while True:
        answer = produce(client, topic, batch_of(*values))
        if answer.error_code == ErrorCode.NONE:
            return int(answer.base_offset)
        assert answer.error_code in PASSING, ErrorCode(answer.error_code)
        assert time.monotonic() < deadline, ErrorCode(answer.error_code)
        time.sleep(0.1)


def end_of_epoch(
    client: RawClient, topic: str, epoch: int, current_leader_epoch: int = -1
) -> EpochEndOffset:
    """Ask where an epoch ends in partition 0."""
    asked = OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current_leader_epoch, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )
    ((answer,),) = [one.partitions for one in client.call(request).topics]
    assert isinstance(answer, EpochEndOffset)
    return answer


def epoch_of(cluster: Cluster, topic: str) -> int:
    """Return the leader epoch of partition 0."""
    found = cluster.partition(topic)
    assert found is not None
    return int(found.leader_epoch)


def elect_preferred(cluster: Cluster, topic: str) -> None:
    """Give partition 0 back to its first replica."""
    asked = [TopicPartitions(topic=topic, partitions=[0])]
    request = ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=10_000)
    with cluster.any_client() as client:
        response = client.call(request)
    assert response.replica_election_results[0].partition_result[0].error_code == ErrorCode.NONE


def spare(cluster: Cluster) -> tuple[int, int, int]:
    """Return two nodes that may fail without a change of the controller, and the controller."""
    controller = cluster.controller()
    first, second = cluster.others(controller)
    return first, second, controller


# -- who answers ----------------------------------------------------------------------------------


def test_broker_without_the_replica(
    cluster: Cluster, connect: Connect, new_topic: NewTopic
) -> None:
    """NOT_LEADER_OR_FOLLOWER for what lives elsewhere; unknown is only what exists nowhere."""
    topic = new_topic([1])
    client = connect(2)
    answer = produce(client, topic, batch_of(b"v"))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(client, topic, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for timestamp in (LATEST, EARLIEST, now_ms()):
        found = list_offset(client, topic, timestamp)
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert end_of_epoch(client, topic, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert delete_records(client, topic, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(client, f"{topic}-missing", batch_of(b"v")).error_code == unknown
    assert produce(client, topic, batch_of(b"v"), 9).error_code == unknown
    assert fetch(client, topic, 0, 9).error_code == unknown
    assert list_offset(client, f"{topic}-missing", LATEST).error_code == unknown


def test_follower_does_not_answer_for_its_leader(
    cluster: Cluster, connect: Connect, new_topic: NewTopic
) -> None:
    """A follower refuses writes and questions as well; the default replica ids are consumers'."""
    topic = new_topic([1, 2])
    follower, leader = connect(2), connect(1)
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produce(follower, topic, batch_of(b"v")).error_code == refused
    assert fetch(follower, topic, 0, version=10).error_code == refused
    for version in (3, 4, 11):
        assert list_offset(follower, topic, LATEST, version=version).error_code == refused
        for replica_id in (-1, -2):  # a consumer's, and that of tools that compare replicas
            found = list_offset(leader, topic, LATEST, version=version, replica_id=replica_id)
            assert found.error_code == ErrorCode.NONE
    assert end_of_epoch(follower, topic, 0).error_code == refused


def test_epochs_fence_in_both_directions(
    cluster: Cluster, connect: Connect, new_topic: NewTopic
) -> None:
    """An epoch before the leader's is FENCED, one after it UNKNOWN, -1 is not checked."""
    topic = new_topic([1, 2, 3])
    cluster.node(1).restart()
    elect_when_back(cluster, topic)
    epoch = epoch_of(cluster, topic)
    assert epoch >= 2
    client = connect(1)
    wanted = {
        epoch - 1: ErrorCode.FENCED_LEADER_EPOCH,
        epoch: ErrorCode.NONE,
        epoch + 1: ErrorCode.UNKNOWN_LEADER_EPOCH,
        -1: ErrorCode.NONE,
    }
    for asked, code in wanted.items():
        assert fetch(client, topic, 0, current_leader_epoch=asked).error_code == code
        found = list_offset(client, topic, LATEST, current_leader_epoch=asked)
        assert found.error_code == code
        assert end_of_epoch(client, topic, epoch, asked).error_code == code


def elect_when_back(cluster: Cluster, topic: str) -> None:
    """Have the preferred replica lead again once it is in sync."""
    cluster.wait_healthy()
    wanted = cluster.partition(topic)
    assert wanted is not None
    if wanted.leader_id != wanted.replica_nodes[0]:
        elect_preferred(cluster, topic)
    cluster.wait_leader(topic, wanted.replica_nodes[0])
    wait_served(cluster, topic)


def test_topics_are_created_at_every_broker(
    cluster: Cluster, connect: Connect, unique_topic: Callable[[], str]
) -> None:
    """Each broker takes CreateTopics, and names a controller that is one of the brokers."""
    for node_id in cluster.nodes:
        client = connect(node_id)
        answer = client.call(MetadataRequest(topics=[]))
        assert answer.controller_id in {one.node_id for one in answer.brokers} == {1, 2, 3}
        name = unique_topic()
        assert create(cluster.node(node_id).client, name, [1], [2], [3]) == ErrorCode.NONE
        again = create(cluster.node(node_id).client, name, [1])
        assert again == ErrorCode.TOPIC_ALREADY_EXISTS


def test_topics_are_made_on_use_at_every_broker(
    cluster: Cluster, connect: Connect, unique_topic: Callable[[], str]
) -> None:
    """Metadata that may create starts it wherever it is asked; a leader follows that serves."""
    names = [unique_topic() for _ in range(6)]
    for number, name in enumerate(names):
        client = connect(1 + number % 3)
        (topic,) = client.call(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
            )
        ).topics
        assert topic.error_code in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.LEADER_NOT_AVAILABLE,
        )
    for name in names:
        leader = cluster.leader(name)
        append(connect(leader), name, b"first")


# -- leaders that were ----------------------------------------------------------------------------


def test_deposed_leader(cluster: Cluster, connect: Connect, new_topic: NewTopic) -> None:
    """A leader that hung while another was elected says so; it does not judge sequences."""
    old, new, third = spare(cluster)
    topic = new_topic([old, new, third])
    client = connect(old)
    producer_id = new_producer_id(client)

    def batch(sequence: int) -> bytearray:
        return batch_of(
            b"v%d" % sequence, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )

    assert produce(client, topic, batch(0)).error_code == ErrorCode.NONE
    cluster.node(old).pause()
    cluster.wait_leader(topic, new)
    wait_served(cluster, topic)
    current = connect(new)
    for sequence in (1, 2, 3):
        assert produce(current, topic, batch(sequence)).error_code == ErrorCode.NONE
    # Sequence 3 would be out of order for who has seen 0 alone, 1 would fit.
    waiting = [
        client.send(produce_request(topic, batch(sequence)), PRODUCE_BY_NAME)
        for sequence in (3, 1, 7)
    ]
    cluster.node(old).resume()
    codes = []
    for correlation_id in waiting:
        try:
            response = client.receive(
                produce_request(topic, batch(0)), PRODUCE_BY_NAME, correlation_id
            )
        except ConnectionClosed:
            break
        codes.append(response.responses[0].partition_responses[0].error_code)
    # Before the old leader learns of its fall it is one to itself: only there may it say 45.
    allowed = PASSING - {ErrorCode.NONE}
    assert set(codes[1:2]) <= allowed, codes
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes
    cluster.heal()
    late = connect(old)
    for sequence in (3, 7):
        code = produce(late, topic, batch(sequence)).error_code
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    again = produce(current, topic, batch(3))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 3), "the old answer again"
    records = records_in(fetch(current, topic, 0).records)
    assert [record.value for record in records] == [b"v0", b"v1", b"v2", b"v3"]
    check_replicas(cluster, topic, 1)


def test_error_codes_through_a_failover(
    cluster: Cluster, connect: Connect, new_topic: NewTopic
) -> None:
    """What producers and consumers are told while a leader dies is retriable, never unknown."""
    leader, second, third = spare(cluster)
    topic = new_topic([leader, second, third])
    append(connect(leader), topic, b"first")
    codes: set[int] = set()
    done = threading.Event()

    def work(node_id: int) -> None:
        while not done.is_set():
            try:
                with cluster.node(node_id).client() as client:
                    while not done.is_set():
                        codes.add(produce(client, topic, batch_of(b"more")).error_code)
                        codes.add(fetch(client, topic, 0).error_code)
                        codes.add(list_offset(client, topic, EARLIEST).error_code)
            except (OSError, ConnectionClosed):
                time.sleep(0.02)

    workers = [threading.Thread(target=work, args=(node_id,)) for node_id in cluster.nodes]
    for worker in workers:
        worker.start()
    try:
        cluster.node(leader).kill9()
        cluster.wait_leader(topic, second)
        time.sleep(1)
        cluster.heal()
        time.sleep(1)
    finally:
        done.set()
        for worker in workers:
            worker.join()
    assert codes <= PASSING | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, codes


def test_offsets_do_not_go_back(cluster: Cluster, connect: Connect, new_topic: NewTopic) -> None:
    """The latest offset, sampled through failovers, only grows; a new leader asks for patience."""
    first, second, third = spare(cluster)
    topic = new_topic([first, second, third])
    newest = append(connect(first), topic, *[b"x"] * 10)
    passing = PASSING | {ErrorCode.OFFSET_NOT_AVAILABLE}
    for dead, heir in ((first, second), (second, first)):
        cluster.node(dead).kill9()
        cluster.wait_leader(topic, heir)
        client = connect(heir)
        for _ in range(50):
            found = list_offset(client, topic, LATEST)
            assert found.error_code in passing
            if found.error_code == ErrorCode.NONE:
                assert found.offset >= newest
                newest = found.offset
            time.sleep(0.01)
        newest = max(newest, append(client, topic, *[b"y"] * 10))
        cluster.heal()


def test_leader_epochs_of_offsets(cluster: Cluster, connect: Connect, new_topic: NewTopic) -> None:
    """Each offset is told with the epoch of its batch, and each epoch with its end."""
    topic = new_topic([1, 2, 3])
    starts: dict[int, int] = {}
    stamps: dict[int, int] = {}
    for _ in range(3):
        leader = cluster.leader(topic)
        epoch = epoch_of(cluster, topic)
        stamps[epoch] = now_ms()
        starts[epoch] = append(connect(leader), topic, b"a", b"b")
        time.sleep(0.01)
        cluster.node(leader).restart()
        cluster.wait_healthy()
        elect_when_back(cluster, topic)
    client = connect(cluster.leader(topic))
    current = epoch_of(cluster, topic)
    first, *_, last = starts
    assert list_offset(client, topic, EARLIEST).leader_epoch == first
    newest = list_offset(client, topic, LATEST)
    assert (newest.offset, newest.leader_epoch) == (6, current)
    assert list_offset(client, topic, MAX_TIMESTAMP).leader_epoch == last
    for epoch, stamp in stamps.items():
        found = list_offset(client, topic, stamp)
        assert (found.offset, found.leader_epoch) == (starts[epoch], epoch)
    known = sorted(starts)
    for index, epoch in enumerate(known):
        answer = end_of_epoch(client, topic, epoch)
        end = starts[known[index + 1]] if index + 1 < len(known) else 6
        assert (answer.leader_epoch, answer.end_offset) == (epoch, end)
    between = known[0] + 1
    assert between not in starts
    answer = end_of_epoch(client, topic, between)
    assert (answer.leader_epoch, answer.end_offset) == (known[0], starts[known[1]])
    answer = end_of_epoch(client, topic, current)
    assert (answer.leader_epoch, answer.end_offset) == (current, 6)
    answer = end_of_epoch(client, topic, current + 5)
    assert (answer.leader_epoch, answer.end_offset) == (-1, -1)
    headers = iter_headers(records_view(fetch(client, topic, 0).records or b""))
    assert [header.partition_leader_epoch for header in headers] == known


# -- in-sync replicas -----------------------------------------------------------------------------


def test_too_few_in_sync_replicas(cluster: Cluster, connect: Connect, new_topic: NewTopic) -> None:
    """With fewer than min.insync.replicas acks=all is refused before the append, acks=1 is not."""
    leader, second, third = spare(cluster)
    topic = new_topic([leader, second, third], min_insync_replicas=3)
    client = connect(leader)
    assert append(client, topic, b"before") == 0
    cluster.node(second).kill9()
    cluster.wait_isr(topic, {leader, third})
    for _ in range(2):
        answer = produce(client, topic, batch_of(b"refused"))
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce(client, topic, batch_of(b"taken"), acks=1).error_code == ErrorCode.NONE
    cluster.heal()
    cluster.wait_isr(topic, {leader, second, third})
    assert append(connect(leader), topic, b"after") == 2
    values = [record.value for record in records_in(fetch(connect(leader), topic, 0).records)]
    assert values == [b"before", b"taken", b"after"]


def test_in_sync_replicas_lost_after_the_append(
    cluster: Cluster, connect: Connect, new_topic: NewTopic
) -> None:
    """A follower that hangs holds acks=all up until it is out of the ISR; then 20 tells."""
    leader, second, _ = spare(cluster)
    topic = new_topic([leader, second], min_insync_replicas=2)
    client = connect(leader)
    append(client, topic, b"before")
    cluster.node(second).pause()
    answer = produce(client, topic, batch_of(b"in doubt"))
    assert answer.error_code in (
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    )
    cluster.wait_isr(topic, {leader})
    answer = produce(client, topic, batch_of(b"refused"))
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.node(second).resume()
    cluster.wait_isr(topic, {leader, second})
    append(client, topic, b"after")
    values = [record.value for record in records_in(fetch(client, topic, 0).records)]
    assert values == [b"before", b"in doubt", b"after"]


def test_one_replica_is_enough_for_itself(
    cluster: Cluster, connect: Connect, new_topic: NewTopic
) -> None:
    """min.insync.replicas above the number of replicas asks for no more than there are."""
    topic = new_topic([2])
    assert append(connect(2), topic, b"alone") == 0


@pytest.mark.measures
@pytest.mark.parametrize("stop", ["terminate", "kill9"])
def test_follower_leaves(
    cluster: Cluster, connect: Connect, new_topic: NewTopic, stop: str
) -> None:
    """While a follower stops in good order acks=all waits less than a second.

    A follower that is killed leaves the ISR when its session or lag is over.
    """
    leader, follower, third = spare(cluster)
    topic = new_topic([leader, follower, third])
    client = connect(leader)
    append(client, topic, b"warm")
    epoch = epoch_of(cluster, topic)
    stopper = threading.Thread(target=getattr(cluster.node(follower), stop))
    stopper.start()
    slowest = 0.0
    ends = time.monotonic() + (6.0 if stop == "kill9" else 3.0)
    while time.monotonic() < ends:
        begin = time.monotonic()
        assert produce(client, topic, batch_of(b"v")).error_code == ErrorCode.NONE
        slowest = max(slowest, time.monotonic() - begin)
    stopper.join()
    assert slowest < (1.0 if stop == "terminate" else 6.0)
    cluster.wait_isr(topic, {leader, third})
    if stop == "terminate":
        assert epoch_of(cluster, topic) == epoch, "the leader did not change"
    cluster.heal()
    cluster.wait_isr(topic, {leader, follower, third})
    check_replicas(cluster, topic, 1)


# -- logs -----------------------------------------------------------------------------------------


def test_lost_tail_is_fetched_again(
    cluster: Cluster, connect: Connect, new_topic: NewTopic
) -> None:
    """A node that lost the unflushed end of a log fetches it again; nobody is served the gap."""
    leader, second, third = spare(cluster)
    topic = new_topic([leader, second, third])
    values = [b"%d" % number for number in range(100)]
    client = connect(leader)
    for value in values:
        append(client, topic, value)
    for dead in (second, leader):
        cluster.node(dead).kill9()
        (segment,) = (cluster.node(dead).data_directory / f"{topic}-0").glob("*.log")
        data = segment.read_bytes()
        segment.write_bytes(data[: len(data) // 2 + 7])
        cluster.heal()
        cluster.wait_isr(topic, {leader, second, third})
        check_replicas(cluster, topic, 1)
        elect_when_back(cluster, topic)
    records = records_in(fetch(connect(leader), topic, 0).records)
    assert [record.value for record in records] == values


def test_records_deleted_past_a_follower_that_is_away(
    cluster: Cluster, connect: Connect, new_topic: NewTopic
) -> None:
    """It starts anew where the log starts now, and can lead then."""
    late, leader, third = spare(cluster)
    topic = new_topic([late, leader, third])
    client = connect(late)
    for number in range(20):
        append(client, topic, b"%d" % number)
    cluster.node(late).kill9()
    cluster.wait_leader(topic, leader)
    client = connect(leader)
    wait_served(cluster, topic)
    for number in range(20, 40):
        append(client, topic, b"%d" % number)
    cluster.wait_isr(topic, {leader, third})
    answer = delete_records(client, topic, 30)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 30)
    cluster.heal()
    elect_when_back(cluster, topic)
    assert cluster.leader(topic) == late
    client = connect(late)
    assert list_offset(client, topic, EARLIEST).offset == 30
    assert list_offset(client, topic, LATEST).offset == 40
    assert fetch(client, topic, 29).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    records = records_in(fetch(client, topic, 30).records)
    assert [record.value for record in records] == [b"%d" % number for number in range(30, 40)]
    assert append(client, topic, b"next") == 40


def test_deleted_records_are_gone_on_all_replicas(
    cluster: Cluster, connect: Connect, new_topic: NewTopic
) -> None:
    """DeleteRecords answers when every replica has moved its log start, so none brings it back."""
    leader, second, third = spare(cluster)
    topic = new_topic([leader, second, third])
    client = connect(leader)
    append(client, topic, *[b"x"] * 10)
    answer = delete_records(client, topic, 6)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 6)
    cluster.node(leader).kill9()
    cluster.wait_leader(topic, second)
    wait_served(cluster, topic)
    assert list_offset(connect(second), topic, EARLIEST).offset == 6


def test_topic_deleted_while_a_broker_is_away(
    cluster: Cluster, connect: Connect, new_topic: NewTopic
) -> None:
    """A broker that comes back drops what was deleted; a new topic of that name is another."""
    away, second, third = spare(cluster)
    topic = new_topic([away, second, third])
    append(connect(away), topic, b"old")
    cluster.node(away).kill9()
    cluster.wait_leader(topic, second)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
    (result,) = connect(second).call(request).responses
    assert result.error_code == ErrorCode.NONE
    cluster.wait_until(lambda: cluster.partition(topic) is None, "the topic is gone")
    code = create(cluster.node(second).client, topic, [away, second, third])
    assert code == ErrorCode.NONE
    cluster.heal()
    elect_when_back(cluster, topic)
    assert append(connect(away), topic, b"new") == 0
    values = [record.value for record in records_in(fetch(connect(away), topic, 0).records)]
    assert values == [b"new"]
    check_replicas(cluster, topic, 1)


def test_assignment_to_fenced_brokers_only(
    cluster: Cluster, new_topic: NewTopic, unique_topic: Callable[[], str]
) -> None:
    """Nobody could lead such a partition: INVALID_REPLICA_ASSIGNMENT."""
    away, second, third = spare(cluster)
    probe = new_topic([away, second, third])
    cluster.node(away).kill9()
    cluster.wait_isr(probe, {second, third})
    name = unique_topic()
    client_of = cluster.node(second).client
    assert create(client_of, name, [away]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert create(client_of, name, [away, second]) == ErrorCode.NONE
    cluster.wait_isr(name, {second})


# -- groups and ids -------------------------------------------------------------------------------


def test_coordinator_without_enough_replicas(
    cluster: Cluster, connect: Connect, new_topic: NewTopic, unique_group: Callable[[], str]
) -> None:
    """A commit that cannot be replicated is a retriable error of coordinators, never a timeout."""
    topic = new_topic([1, 2, 3])
    group = unique_group()
    coordinator = cluster.coordinator(group)
    client = connect(coordinator)
    request = commit_request(group, topic, 5)
    deadline = time.monotonic() + 20
    while commit_code(client, request) != ErrorCode.NONE:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for other in cluster.others(coordinator):
        cluster.node(other).pause()
    allowed = {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
    code = commit_code(client, commit_request(group, topic, 6))
    assert code in allowed, ErrorCode(code)
    cluster.heal()
    client = connect(cluster.coordinator(group))
    deadline = time.monotonic() + 20
    while (code := commit_code(client, commit_request(group, topic, 7))) != ErrorCode.NONE:
        assert code in allowed, ErrorCode(code)
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert fetch_offset(client, group, topic).committed_offset == 7


@pytest.mark.parametrize("rejoin", ["other protocol", "same protocol"])
def test_static_member_outlives_its_coordinator(
    cluster: Cluster, connect: Connect, unique_group: Callable[[], str], rejoin: str
) -> None:
    """What a static member rejoined with is known to the next coordinator."""
    group = unique_group()
    old = cluster.coordinator(group)
    protocols = ("range", subscription("topic")), ("roundrobin", subscription("topic"))
    first = alone(connect(old), group, instance="one", protocols=protocols)
    again = Member(connect(old), group, instance="one", protocols=protocols)
    again.client.client_id = "renamed"
    if rejoin == "other protocol":
        again.protocols = protocols[::-1]
    again.join()
    assert again.sync({again.member_id: b"all of it"}).error_code == ErrorCode.NONE
    assert again.member_id != first.member_id
    cluster.node(old).kill9()
    client = connect(cluster.coordinator(group))

    def described() -> Any:
        (found,) = client.call(DescribeGroupsRequest(groups=[group]), 5).groups
        return found if found.error_code == ErrorCode.NONE else None

    (member,) = cluster.wait_until(described, "the group is loaded").members
    assert member.group_instance_id == "one"
    if KIND == "apache":
        return  # whose next coordinator knows the member as it joined first
    assert (member.member_id, member.client_id) == (again.member_id, "renamed")
    stale = Member(client, group, instance="one")
    stale.member_id, stale.generation = first.member_id, again.generation
    assert stale.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    again.client = client
    assert again.heartbeat() == ErrorCode.NONE


def test_producer_ids_are_unique(cluster: Cluster) -> None:
    """Ids from all brokers at once, with crashes between, are never given twice."""
    found: list[int] = []
    for turn in range(3):
        workers = [threading.Thread(target=_take_ids, args=(cluster, node_id, found))
                   for node_id in cluster.nodes]  # fmt: skip
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        cluster.node(1 + turn).kill9()
        cluster.heal()
    assert len(found) == 3 * 3 * 700
    assert len(set(found)) == len(found)


def _take_ids(cluster: Cluster, node_id: int, found: list[int]) -> None:
    with cluster.node(node_id).client() as client:
        taken = 0
        while taken < 700:
            response = client.call(InitProducerIdRequest(transactional_id=None))
            if response.error_code == ErrorCode.NONE:
                assert response.producer_epoch == 0
                found.append(response.producer_id)
                taken += 1
            else:
                assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                time.sleep(0.02)
