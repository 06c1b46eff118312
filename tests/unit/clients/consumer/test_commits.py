"""A commit is that of a moment: of the member, and of the topics, as they were then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.clients.config import make_config
from kraftrio.clients.consumer.commits import Commits
from kraftrio.clients.consumer.config import ConsumerConfig
from kraftrio.clients.errors import (
    CommitFailedError,
    CoordinatorNotAvailableError,
    KafkaClientError,
    RebalanceInProgressError,
    RetriableError,
    UnknownTopicOrPartitionError,
)
from kraftrio.clients.group_offsets import GroupMetadata, OffsetAndMetadata
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition
from tests.unit.clients.simulated import Kafka

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST, SECOND = b"1" * 16, b"2" * 16


def at(offset: int, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
    return dict.fromkeys(partitions or (T0,), OffsetAndMetadata(offset))


@dataclass
class Member:
    """The part of a membership that commits look at."""

    metadata: GroupMetadata = field(default_factory=lambda: GroupMetadata("g", 5, "m"))
    can_commit: bool = True
    is_rebalancing: bool = False
    member_id: str = "m"
    fenced_by: list[ErrorCode] = field(default_factory=list)

    def refused(self, code: ErrorCode) -> None:
        self.fenced_by.append(code)

    def tenure(self, partitions: Iterable[TopicPartition]) -> GroupMetadata:
        return self.metadata

    def move_on(self) -> None:
        """Have joined again."""
        self.metadata = replace(self.metadata, generation_id=self.metadata.generation_id + 1)


@dataclass
class Coordinator:
    """Stands in for `OffsetClient`: notes what is committed, and answers as planned."""

    group_id: str = "g"
    ids: dict[str, bytes] = field(default_factory=lambda: {"t": FIRST})
    there: set[TopicPartition] = field(default_factory=lambda: {T0, T1})
    answers: list[KafkaClientError | trio.Event] = field(default_factory=list)
    got: list[tuple[GroupMetadata, dict[str, bytes], dict[TopicPartition, int]]] = field(
        default_factory=list
    )

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
        return {each.topic: self.ids[each.topic] for each in partitions}

    def is_there(self, partition: TopicPartition, topic_id: bytes) -> bool:
        return partition in self.there and self.ids[partition.topic] == topic_id

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, bytes],
        member: GroupMetadata,
    ) -> None:
        self.got.append(
            (member, dict(topic_ids), {each: one.offset for each, one in offsets.items()})
        )
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, trio.Event):
            await answer.wait()
        elif answer is not None:
            raise answer

    async def repeat(self, attempt: Callable[[], Awaitable[None]], timeout_s: float) -> None:
        while True:
            try:
                return await attempt()
            except RetriableError:
                await trio.sleep(1)


@asynccontextmanager
async def commits_of(
    coordinator: Coordinator, member: Member | None, raised: list[Exception] | None = None
) -> AsyncIterator[Commits]:
    raised = [] if raised is None else raised
    config = make_config(ConsumerConfig, "localhost:1", {"group_id": "g"})
    client: Any = coordinator
    commits = Commits(client, config, lambda: None, raised.append)
    commits.membership = member  # type: ignore[assignment]
    with trio.fail_after(600):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commits.run)
            yield commits
            nursery.cancel_scope.cancel()


async def test_a_commit_that_waited_is_not_applied_in_a_later_generation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It stands behind another; meanwhile the group rebalances: the offsets are others' now."""
    coordinator, member = Coordinator(), Member()
    coordinator.answers = [busy := trio.Event()]
    failures: list[KafkaClientError | None] = []
    async with commits_of(coordinator, member) as commits:
        commits.submit(at(1))
        commits.submit(at(2), lambda _, error: failures.append(error))
        await trio.testing.wait_all_tasks_blocked()
        member.move_on()
        busy.set()
        await commits.wait_idle()
    assert [offsets[T0] for _, _, offsets in coordinator.got] == [1]
    assert isinstance(failures[0], CommitFailedError)
    assert not member.fenced_by


async def test_a_commit_that_is_repeated_is_not_applied_in_a_later_generation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    coordinator, member = Coordinator(), Member()
    coordinator.answers = [CoordinatorNotAvailableError()]
    async with commits_of(coordinator, member) as commits, trio.open_nursery() as nursery:

        async def commit() -> None:
            with pytest.raises(CommitFailedError, match="generation 5 of the group, which is over"):
                await commits.commit(at(1))

        nursery.start_soon(commit)
        await trio.testing.wait_all_tasks_blocked()
        member.move_on()
    assert [metadata.generation_id for metadata, _, _ in coordinator.got] == [5]


async def test_a_cancelled_commit_is_repeated_no_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Neither one that waits its turn nor one that was refused and would be tried again."""
    coordinator, member = Coordinator(), Member()
    coordinator.answers = [CoordinatorNotAvailableError()]
    async with commits_of(coordinator, member) as commits:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commits.commit, at(1))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(commits.commit, at(2))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await commits.commit(at(3))
        await trio.sleep(100)
    assert [offsets[T0] for _, _, offsets in coordinator.got] == [1, 3]


async def test_who_waits_for_all_commits_does_not_wait_for_a_cancelled_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    coordinator = Coordinator()
    coordinator.answers = [busy := trio.Event()]
    scope = trio.CancelScope()

    async def be_cancelled(commits: Commits) -> None:
        with scope:
            await commits.commit(at(2))

    async with commits_of(coordinator, Member()) as commits, trio.open_nursery() as nursery:
        commits.submit(at(1))
        nursery.start_soon(be_cancelled, commits)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(commits.wait_idle)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        busy.set()
        with trio.fail_after(5):
            await commits.wait_idle()
    assert [offsets[T0] for _, _, offsets in coordinator.got] == [1]


async def test_a_commit_that_comes_while_a_close_waits_for_another(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The close waits for both, and no longer."""
    coordinator = Coordinator()
    coordinator.answers = [first := trio.Event(), second := trio.Event()]
    async with commits_of(coordinator, Member()) as commits:
        commits.submit(at(1))
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commits.wait_idle)
            await trio.testing.wait_all_tasks_blocked()
            commits.submit(at(2))
            first.set()
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            second.set()
            with trio.move_on_after(5) as scope:
                await commits.wait_idle()
            await trio.testing.wait_all_tasks_blocked()
            is_over = not scope.cancelled_caught and not nursery.child_tasks
            nursery.cancel_scope.cancel()
    assert is_over


async def test_a_commit_of_a_member_is_not_sent_once_it_has_left(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Nor is it sent for nobody in particular, whom an empty group would believe."""
    coordinator = Coordinator()
    coordinator.answers = [busy := trio.Event()]
    failures: list[KafkaClientError | None] = []
    async with commits_of(coordinator, Member()) as commits:
        commits.submit(at(1))
        commits.submit(at(2), lambda _, error: failures.append(error))
        await trio.testing.wait_all_tasks_blocked()
        commits.membership = None
        busy.set()
        await commits.wait_idle()
    assert len(coordinator.got) == 1
    assert isinstance(failures[0], CommitFailedError)


async def test_a_commit_names_the_topics_of_the_moment(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The topic is re-created while the commit waits: it is sent for the former one."""
    coordinator, member = Coordinator(), Member()
    coordinator.answers = [busy := trio.Event()]
    async with commits_of(coordinator, member) as commits:
        commits.submit(at(1))
        commits.submit(at(2))
        await trio.testing.wait_all_tasks_blocked()
        coordinator.ids["t"] = SECOND
        commits.submit(at(3))
        busy.set()
        await commits.wait_idle()
    assert [topics["t"] for _, topics, _ in coordinator.got] == [FIRST, FIRST, SECOND]


async def test_an_automatic_commit_leaves_out_what_is_gone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A rebalance waits for it: the partitions that are there are committed, and that is all."""
    coordinator = Coordinator(there={T0})
    coordinator.answers = [UnknownTopicOrPartitionError()]
    async with commits_of(coordinator, Member()) as commits:
        await commits.commit(at(1, T0, T1), is_automatic=True)
    assert [sorted(offsets) for _, _, offsets in coordinator.got] == [[T0, T1], [T0]]


async def test_who_is_no_member_at_the_moment_fails_without_a_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    coordinator, member = Coordinator(), Member(can_commit=False, is_rebalancing=True)
    async with commits_of(coordinator, member) as commits:
        with pytest.raises(RebalanceInProgressError):
            await commits.commit(at(1))
        member.member_id = ""
        with pytest.raises(CommitFailedError):
            await commits.commit(at(1))
        await commits.commit({})
    assert not coordinator.got


async def test_what_the_coordinator_says_of_the_member_goes_to_the_membership(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """But not what it says of a member of before."""
    coordinator, member = Coordinator(), Member()
    refusal = CommitFailedError(code=ErrorCode.ILLEGAL_GENERATION)
    coordinator.answers = [refusal]
    async with commits_of(coordinator, member) as commits:
        with pytest.raises(CommitFailedError):
            await commits.commit(at(1))
    assert member.fenced_by == [ErrorCode.ILLEGAL_GENERATION]


async def test_what_is_committed_without_waiting_is_committed_before_the_member_leaves(
    kafka: Kafka,
) -> None:
    """`commit_async` and then the end of `async with`: the coordinator still knows the member."""
    await kafka.create("t")
    await kafka.fill("t", 3)
    async with kafka.consumer(group_id="g", enable_auto_commit=False) as consumer:
        await consumer.subscribe("t")
        await consumer.poll()
        consumer.commit_async({T0: 1})
        consumer.commit_async({T0: 2})
    async with kafka.consumer(group_id="g") as consumer:
        committed = (await consumer.offsets.committed([T0]))[T0]
        assert committed is not None
        assert committed.offset == 2


async def test_what_a_callback_raises_is_the_programs() -> None:
    """Its next call raises; commits go on."""
    error = ValueError("the callback's own")

    def fail(*_: object) -> None:
        raise error

    raised: list[Exception] = []
    async with commits_of(Coordinator(), Member(), raised) as commits:
        commits.submit(at(1), fail)
        await commits.commit(at(2))
    assert raised == [error]
