"""Consumers of the consumer protocol against scripted brokers: what is sent, in which order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kraftrio.clients.consumer.consumer import (
    Consumer,
    RebalanceListener,
    SubscriptionPattern,
)
from kraftrio.clients.errors import (
    CommitFailedError,
    ConfigError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.protocol.api import ApiKey
from tests.unit.clients.fake_cluster import CUT, FakeCluster, FakeNode, fake_cluster
from tests.unit.clients.heartbeat_member.epoch_group import answer, refusal

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Group:
    """The coordinator's answers, and what reached it and the application, in order."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.epoch = 1
        self.interval_ms = 20
        self.assigned: list[int] | None = [0, 1]
        self.refusals: list[ErrorCode | str] = []  # of heartbeats that are to come
        self.commit_refusals: list[ErrorCode] = []
        self.heartbeats: list[ConsumerGroupHeartbeatRequest] = []
        self.commits: list[OffsetCommitRequest] = []
        self.fetches: list[OffsetFetchRequest] = []
        self.log: list[str] = []
        self.news = trio.Condition()
        cluster.add_topic("t", [1, 1])
        cluster.on(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._heartbeat)
        cluster.on(ApiKey.OFFSET_FETCH, self._fetch)
        cluster.on(ApiKey.OFFSET_COMMIT, self._commit)
        cluster.delay(ApiKey.FETCH, 0.01)

    def assign(self, *partitions: int) -> None:
        self.epoch += 1
        self.assigned = list(partitions)

    def _heartbeat(self, node: FakeNode, request: ConsumerGroupHeartbeatRequest) -> Any:
        self.heartbeats.append(request)
        if request.topic_partitions:
            owned = sorted(p for topic in request.topic_partitions for p in topic.partitions)
            self.log.append(f"owns {owned}")
        if self.refusals:
            refused = self.refusals.pop(0)
            return refused if isinstance(refused, str) else refusal(refused, "because")
        if request.member_epoch < 0:
            self.log.append(f"leaves {request.member_epoch}")
            return ConsumerGroupHeartbeatResponse(member_epoch=request.member_epoch)
        assigned = self.assigned
        if assigned is not None:
            self.assigned = None
            topic_id = self.cluster.topics["t"].topic_id
            response = answer(self.epoch, {topic_id: assigned})
        else:
            response = answer(self.epoch)
        response.heartbeat_interval_ms = self.interval_ms
        return response

    def _fetch(self, node: FakeNode, request: OffsetFetchRequest) -> OffsetFetchResponse:
        self.fetches.append(request)
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=10 + index, metadata=""
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.groups[0].topics or ()
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])

    def _commit(self, node: FakeNode, request: OffsetCommitRequest) -> OffsetCommitResponse:
        self.commits.append(request)
        code = self.commit_refusals.pop(0) if self.commit_refusals else ErrorCode.NONE
        if request.generation_id_or_member_epoch != self.epoch:
            code = ErrorCode.STALE_MEMBER_EPOCH
        partitions = [each.partition_index for topic in request.topics for each in topic.partitions]
        self.log.append(f"commit {partitions} {code.name}")
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    topic_id=topic.topic_id,
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=each.partition_index, error_code=code
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


class Listener(RebalanceListener):
    def __init__(self, log: list[str]) -> None:
        self._log = log

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._log.append(f"assigned {[each.partition for each in partitions]}")

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._log.append(f"revoked {[each.partition for each in partitions]}")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self._log.append(f"lost {[each.partition for each in partitions]}")


@asynccontextmanager
async def running(
    *, interval_ms: int = 20, **settings: Any
) -> AsyncIterator[tuple[Consumer, Group]]:
    async with fake_cluster() as cluster:
        group = Group(cluster)
        group.interval_ms = interval_ms
        async with consumer_of(cluster, **settings) as consumer:
            await consumer.subscribe(["t"], listener=Listener(group.log))
            await poll_until(consumer, lambda: consumer.assignment == {T0, T1})
            yield consumer, group


def consumer_of(cluster: FakeCluster, **settings: Any) -> Consumer:
    chosen = {"group_id": "g", "group_protocol": "consumer", "retry_backoff_ms": 5, **settings}
    return Consumer(cluster.bootstrap, **chosen)


async def poll_until(consumer: Consumer, condition: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not condition():
            await consumer.poll(timeout_ms=5)


async def positioned(consumer: Consumer, *partitions: TopicPartition) -> None:
    for partition in partitions:
        await consumer.position(partition)


async def test_joins_reads_and_leaves() -> None:
    """It names itself, sends what it owns, asks for offsets as the member, and leaves with -1."""
    async with running() as (consumer, group):
        await positioned(consumer, T0, T1)
        joining = group.heartbeats[0]
        assert (joining.member_epoch, joining.subscribed_topic_names) == (0, ["t"])
        assert len(joining.member_id) == 22
        await poll_until(consumer, lambda: "owns [0, 1]" in group.log)
        asked = group.fetches[0].groups[0]
        assert (asked.member_id, asked.member_epoch) == (joining.member_id, 1)
        assert group.cluster.versions_used["OffsetFetch"] == 10
        assert consumer.group_metadata().generation_id == 1
        assert consumer.group_metadata().member_id == joining.member_id
    assert group.log == [
        "assigned [0, 1]",
        "owns [0, 1]",
        "commit [0, 1] NONE",
        "revoked [0, 1]",
        "leaves -1",
    ]
    commit = group.commits[0]
    assert (commit.member_id, commit.generation_id_or_member_epoch) == (joining.member_id, 1)
    assert group.cluster.versions_used["OffsetCommit"] == 10


async def test_commits_then_revokes_then_acknowledges() -> None:
    """Only after that another member may get the partition."""
    async with running() as (consumer, group):
        await positioned(consumer, T0, T1)
        await poll_until(consumer, lambda: "owns [0, 1]" in group.log)
        group.log.clear()
        group.assign(1)
        await poll_until(consumer, lambda: "owns [1]" in group.log)
        assert group.log == ["commit [0] NONE", "revoked [0]", "assigned []", "owns [1]"]
        assert consumer.assignment == {T1}


async def test_nothing_is_given_up_before_the_application_polls() -> None:
    """Heartbeats go on meanwhile, and say nothing of it."""
    async with running() as (consumer, group):
        await positioned(consumer, T0, T1)
        await poll_until(consumer, lambda: "owns [0, 1]" in group.log)
        group.assign(1)
        before = len(group.heartbeats)
        with trio.fail_after(5):
            while len(group.heartbeats) < before + 4:  # noqa: ASYNC110 (of the brokers' side)
                await trio.sleep(0.01)
        assert consumer.assignment == {T0, T1} and "owns [1]" not in group.log
        await poll_until(consumer, lambda: consumer.assignment == {T1})


async def test_fenced_members_lose_their_partitions_and_come_back() -> None:
    """Nothing is committed for what is lost."""
    async with running() as (consumer, group):
        await positioned(consumer, T0, T1)
        await poll_until(consumer, lambda: "owns [0, 1]" in group.log)
        group.log.clear()
        group.assign(0)
        group.refusals = [ErrorCode.FENCED_MEMBER_EPOCH]
        await poll_until(consumer, lambda: "owns [0]" in group.log)
        assert group.log == ["lost [0, 1]", "assigned [0]", "owns [0]"]
        assert len({each.member_id for each in group.heartbeats}) == 1


async def test_a_commit_waits_for_the_newer_epoch() -> None:
    """STALE_MEMBER_EPOCH hastens the heartbeat that brings it, whoever waits for the commit."""
    async with running(enable_auto_commit=False, interval_ms=60_000) as (consumer, group):
        await poll_until(consumer, lambda: "owns [0, 1]" in group.log)
        group.epoch += 1
        await consumer.commit({T0: 5})
        epochs = [each.generation_id_or_member_epoch for each in group.commits]
        assert (epochs[0], epochs[-1]) == (1, 2)
        outcomes: list[Any] = []
        group.epoch += 1
        consumer.commit_async({T0: 6}, lambda offsets, error: outcomes.append(error))
        await poll_until(consumer, lambda: bool(outcomes))
        assert outcomes == [None]
        assert group.commits[-1].generation_id_or_member_epoch == 3


async def test_a_member_that_is_not_known_cannot_commit() -> None:
    """The application learns it from its commit; the next heartbeat informs the member."""
    async with running(enable_auto_commit=False) as (consumer, group):
        group.commit_refusals = [ErrorCode.UNKNOWN_MEMBER_ID]
        with pytest.raises(CommitFailedError):
            await consumer.commit({T0: 5})
        group.assign(0, 1)
        group.refusals = [ErrorCode.UNKNOWN_MEMBER_ID]
        group.log.clear()
        await poll_until(consumer, lambda: "owns [0, 1]" in group.log)
        assert group.log == ["lost [0, 1]", "assigned [0, 1]", "owns [0, 1]"]


async def test_lost_answers_and_a_coordinator_that_moves() -> None:
    """The member keeps what it owns, and sends all of it to the next coordinator."""
    async with running() as (consumer, group):
        await poll_until(consumer, lambda: "owns [0, 1]" in group.log)
        group.log.clear()
        group.refusals = [ErrorCode.NOT_COORDINATOR, CUT]
        await poll_until(consumer, lambda: not group.refusals and bool(group.log))
        assert group.log[0] == "owns [0, 1]"
        again = next(each for each in reversed(group.heartbeats) if each.topic_partitions)
        assert (again.member_epoch, again.subscribed_topic_names) == (1, ["t"])
        assert group.cluster.requests[1, "FindCoordinator"] >= 2


async def test_an_application_that_does_not_poll_leaves_the_group() -> None:
    """With its next poll it has lost its partitions, and joins again."""
    async with running(max_poll_interval_ms=60) as (consumer, group):
        await poll_until(consumer, lambda: "owns [0, 1]" in group.log)
        group.log.clear()
        with trio.fail_after(5):
            while "leaves -1" not in group.log:  # noqa: ASYNC110 (of the brokers' side)
                await trio.sleep(0.01)
        group.assign(0, 1)
        await poll_until(consumer, lambda: "owns [0, 1]" in group.log)
        assert group.log[:3] == ["leaves -1", "lost [0, 1]", "assigned [0, 1]"]


async def test_static_members_leave_for_a_while() -> None:
    async with running(group_instance_id="i", enable_auto_commit=False) as (_, group):
        pass
    assert group.log[-1] == "leaves -2"
    assert {each.instance_id for each in group.heartbeats} == {"i"}


async def test_patterns_that_the_broker_resolves() -> None:
    """Names of topics come from metadata; a subscription by names takes the pattern back."""
    async with fake_cluster() as cluster:
        group = Group(cluster)
        async with consumer_of(cluster) as consumer:
            await consumer.subscribe(SubscriptionPattern("t.*"), listener=Listener(group.log))
            await poll_until(consumer, lambda: consumer.assignment == {T0, T1})
            joining = group.heartbeats[0]
            assert (joining.subscribed_topic_names, joining.subscribed_topic_regex) == ([], "t.*")
            assert consumer.subscription == {"t"}
            await consumer.subscribe(["t"], listener=Listener(group.log))
            await poll_until(consumer, lambda: group.heartbeats[-1].subscribed_topic_regex == "")


async def test_brokers_without_the_protocol() -> None:
    """The error names the setting that does not go with them."""
    async with fake_cluster() as cluster:
        Group(cluster)
        cluster.max_versions[ApiKey.CONSUMER_GROUP_HEARTBEAT] = -1
        async with consumer_of(cluster) as consumer:
            await consumer.subscribe(["t"])
            with pytest.raises(UnsupportedVersionError, match='group_protocol="consumer" needs'):
                await consumer.poll(timeout_ms=5_000)
        cluster.max_versions[ApiKey.CONSUMER_GROUP_HEARTBEAT] = 0
        async with consumer_of(cluster) as consumer:
            await consumer.subscribe(SubscriptionPattern("t.*"))
            with pytest.raises(UnsupportedVersionError, match="serve patterns that it resolves"):
                await consumer.poll(timeout_ms=5_000)


async def test_an_assignor_that_the_broker_does_not_have() -> None:
    """Every poll raises it, and what is to be done is to close the consumer."""
    async with fake_cluster() as cluster:
        group = Group(cluster)
        group.refusals = [ErrorCode.UNSUPPORTED_ASSIGNOR]
        async with consumer_of(cluster, group_remote_assignor="fair") as consumer:
            await consumer.subscribe(["t"])
            for _ in range(2):
                with pytest.raises(UnsupportedAssignorError, match="because"):
                    await consumer.poll(timeout_ms=5_000)
        assert [each.server_assignor for each in group.heartbeats] == ["fair"]


@pytest.mark.parametrize(
    ("protocol", "name", "value"),
    [
        ("consumer", "session_timeout_ms", 10_000),
        ("consumer", "heartbeat_interval_ms", 1_000),
        ("consumer", "partition_assignment_strategy", "range"),
        ("classic", "group_remote_assignor", "uniform"),
    ],
)
def test_settings_of_the_other_protocol_are_refused(protocol: str, name: str, value: Any) -> None:
    settings: Any = {"group_id": "g", "group_protocol": protocol, name: value}
    sentence = f'{name} cannot be set with group_protocol="{protocol}"'
    with pytest.raises(ConfigError, match=sentence):
        Consumer("localhost:1", **settings)


async def test_the_classic_protocol_has_no_patterns_of_the_broker() -> None:
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, group_id="g") as consumer:
        with pytest.raises(ValueError, match='needs group_protocol="consumer"'):
            await consumer.subscribe(SubscriptionPattern("t.*"))
    with pytest.raises(ValueError, match="must not be empty"):
        SubscriptionPattern("")
    with pytest.raises(ConfigError, match="group_protocol must be one of classic, consumer"):
        Consumer("localhost:1", group_id="g", group_protocol="modern")  # type: ignore[arg-type]
