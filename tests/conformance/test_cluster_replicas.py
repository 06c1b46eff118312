"""In-sync replicas that are too few or leave, logs truncated or deleted, by raw frames."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import (
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.conformance.cases.calls import (
    EARLIEST,
    LATEST,
    batch_of,
    delete_records,
    fetch,
    list_offset,
    produce,
    records_in,
)
from tests.conformance.cluster_calls import (
    Connect,
    NewTopic,
    append,
    create,
    elect_when_back,
    epoch_of,
    spare,
    wait_served,
)
from tests.conformance.cluster_load import check_replicas
from tests.conformance.cluster_process import Cluster


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
    """A follower that hangs holds acks=all up until it is out of the ISR; then error 20 says so."""
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
    """While a follower stops gracefully, acks=all waits less than a second.

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


def test_lost_tail_is_fetched_again(
    cluster: Cluster, connect: Connect, new_topic: NewTopic
) -> None:
    """A node that lost the unflushed end of a log fetches it again; the gap is never served."""
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
    """It starts again where the log starts now, and can lead then."""
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
    """No broker could lead such a partition: INVALID_REPLICA_ASSIGNMENT."""
    away, second, third = spare(cluster)
    probe = new_topic([away, second, third])
    cluster.node(away).kill9()
    cluster.wait_isr(probe, {second, third})
    name = unique_topic()
    client_of = cluster.node(second).client
    assert create(client_of, name, [away]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert create(client_of, name, [away, second]) == ErrorCode.NONE
    cluster.wait_isr(name, {second})
