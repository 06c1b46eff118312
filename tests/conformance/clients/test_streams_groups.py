"""Kafka Streams with the broker's own group protocol (KIP-1071): a word count under faults.

Instances of the application start, are killed in the middle of their work, or close properly; the
counts must be those of one that ran undisturbed. Each single count goes to the target, so that each
word's counts must be 1, 2, 3 and so on.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import CreatableTopic, CreateTopicsRequest
from kraftrio.wire.messages.streams_groups import StreamsGroupDescribeRequest
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import append, create_topic
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import wait_for_transactions
from tests.conformance.clients import scenarios
from tests.conformance.clients.streams_programs import WORD_COUNT, running, wait_for
from tests.conformance.clients.test_streams_and_connect import Counts
from tests.conformance.cluster_process import Cluster

pytestmark = scenarios.MARKS

PARTITIONS = 4
CREATE_TOPICS_VERSION = 7
LINE = b"to be or not to be that is the question"
WORDS = Counter(LINE.split())
QUICK = {
    "group_streams_min_session_timeout_ms": 3_000,
    "group_streams_session_timeout_ms": 3_000,
    "group_streams_min_heartbeat_interval_ms": 300,
    "group_streams_heartbeat_interval_ms": 300,
    "group_streams_initial_rebalance_delay_ms": 500,
}

MakeBroker = Callable[..., Broker]
Leader = Callable[[str, int], contextlib.AbstractContextManager[RawClient]]


class WordCount:
    """One application, its topics, and what is in them.

    Args:
        leader: returns a connection to the leader of a partition.
    """

    def __init__(self, leader: Leader, address: str, folder: Path, *settings: str) -> None:
        self.source, self.target = "lines", "counts"
        self.log = folder / "streams.log"
        self._leader = leader
        self._folder = folder
        self._program = (WORD_COUNT.stem, address, "words", self.source, self.target)
        self._counts = Counts(self.target)
        self._settings = ("group.protocol=streams", *settings)
        self._lines = self._instances = 0

    def instance(self) -> contextlib.AbstractContextManager[Any]:
        """Run another instance, with a folder of its own, until it is killed."""
        self._instances += 1
        state = str(self._folder / f"state{self._instances}")
        return running(self.log, *self._program, state, *self._settings)

    def write(self, lines: int) -> None:
        """Write lines, spread over the partitions."""
        for partition in range(PARTITIONS):
            with self._leader(self.source, partition) as client:
                append(client, self.source, *[LINE] * (lines // PARTITIONS), partition=partition)
        self._lines += lines

    @property
    def count(self) -> int:
        """How many counts there are."""
        with self._leader(self.target, 0) as client:
            return self._counts.read_on(client).total

    @property
    def total(self) -> int:
        """How many there are to be."""
        return self._lines * WORDS.total()

    def check_exact(self) -> None:
        """Each word has each of its counts, once, in order."""
        expected = {word: list(range(1, self._lines * n + 1)) for word, n in WORDS.items()}
        with self._leader(self.target, 0) as client:
            assert Counts(self.target).read_on(client).by_word == expected


def members(client: RawClient) -> list[Any]:
    """The members of the application's group, as its coordinator describes it."""
    (group,) = client.call(StreamsGroupDescribeRequest(group_ids=["words"])).groups
    return list(group.members)


def share_count(client: RawClient) -> int:
    """How many members have active tasks."""
    return sum(bool(member.assignment.active_tasks) for member in members(client))


def start_words(raw: RawClient, address: str, folder: Path, *settings: str) -> WordCount:
    """Make the topics of an application at a single broker."""
    create_topic(raw, "lines", partitions=PARTITIONS)
    create_topic(raw, "counts")
    return WordCount(
        lambda _topic, _partition: contextlib.nullcontext(raw), address, folder, *settings
    )


@pytest.fixture
def broker_of_streams(make_broker: MakeBroker) -> Broker:
    """A broker that notices soon that a member is gone."""
    return make_broker(**QUICK)


def test_instances_are_killed(broker_of_streams: Broker, tmp_path: Path) -> None:
    """Exactly once: one that is killed is taken over with its state; no count twice or missing."""
    with RawClient(broker_of_streams.address) as raw:
        wait_for_transactions(raw)
        words = start_words(raw, broker_of_streams.address, tmp_path)
        words.write(200)
        with words.instance() as first, words.instance() as second:
            wait_for(first, words.log, lambda: words.count >= 400)
            wait_for(second, words.log, lambda: share_count(raw) == 2)
            words.write(2000)
            seen = words.count
            wait_for(second, words.log, lambda: words.count > seen)
            first.kill()
            with words.instance() as third:
                wait_for(third, words.log, lambda: words.count >= words.total)
                words.write(400)
                second.kill()
                wait_for(third, words.log, lambda: words.count >= words.total)
        words.check_exact()


def test_instances_come_and_leave(broker_of_streams: Broker, tmp_path: Path) -> None:
    """At least once, with standby tasks: instances that close properly lose and repeat nothing."""
    with RawClient(broker_of_streams.address) as raw:
        words = start_words(
            raw, broker_of_streams.address, tmp_path,
            "processing.guarantee=at_least_once", "num.stream.threads=2",
        )  # fmt: skip
        words.write(200)
        with words.instance() as first:
            wait_for(first, words.log, lambda: words.count >= words.total)
            with words.instance() as second:
                wait_for(second, words.log, lambda: share_count(raw) == 4)
                words.write(1000)
                wait_for(second, words.log, lambda: words.count >= words.total)
                first.communicate()
                words.write(200)
                wait_for(second, words.log, lambda: words.count >= words.total)
                second.communicate()
        assert members(raw) == []
        words.check_exact()


def test_coordinators_are_killed(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """Exactly once in a cluster: the group goes on once its next coordinator has loaded it."""
    cluster = make_cluster(**QUICK)
    for topic, partitions in (("lines", PARTITIONS), ("counts", 1)):
        with cluster.any_client() as client:
            answer = client.call(
                CreateTopicsRequest(
                    topics=[
                        CreatableTopic(name=topic, num_partitions=partitions, replication_factor=3)
                    ],
                    timeout_ms=10_000,
                ),
                CREATE_TOPICS_VERSION,
            )
            assert answer.topics[0].error_code is ErrorCode.NONE, answer
        cluster.wait_healthy(topic)

    def leader(topic: str, partition: int) -> RawClient:
        return cluster.node(cluster.leader(topic, partition)).client()

    words = WordCount(leader, cluster.bootstrap, tmp_path, "replication.factor=3")
    words.write(200)
    with words.instance() as first, words.instance() as second:
        wait_for(first, words.log, lambda: words.count >= words.total)
        for process in (first, second):
            words.write(1000)
            cluster.node(cluster.coordinator("words")).kill9()
            wait_for(process, words.log, lambda: words.count >= words.total)
            cluster.heal()
        first.kill()
        words.write(400)
        wait_for(second, words.log, lambda: words.count >= words.total)
    words.check_exact()
