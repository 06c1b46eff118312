"""Who answers for a partition, what deposed leaders say, epochs after failovers, by raw frames."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kraftrio.wire.codec.message import records_view
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from kraftrio.wire.records.batch import iter_headers
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
from tests.conformance.cases.raw_client import ConnectionClosed
from tests.conformance.cluster_calls import (
    PASSING,
    Connect,
    NewTopic,
    append,
    create,
    elect_when_back,
    end_of_epoch,
    epoch_of,
    spare,
    wait_served,
)
from tests.conformance.cluster_load import check_replicas
from tests.conformance.cluster_process import Cluster


def test_broker_without_the_replica(
    cluster: Cluster, connect: Connect, new_topic: NewTopic
) -> None:
    """NOT_LEADER_OR_FOLLOWER for what other brokers have; only what none has is unknown."""
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
    """The errors of producers and consumers while a leader dies are retriable, never unknown."""
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
    """The latest offset, sampled through failovers, only grows; a new leader answers retriably."""
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
    """Each offset is answered with the epoch of its batch, and each epoch with its end."""
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
