"""Groups in numbers: their kinds, members, and how far they are behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraftrio.base.deferred import Deferred, run_waiting
from kraftrio.broker.coordinator.group_figures import GroupFigures
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraftrio.wire.primitives import TopicPartition
from tests.unit.broker.coordinator.broker_stand_in import BrokerStandIn

Offsets = Mapping[TopicPartition, int | ErrorCode]


class Leaders:
    """The other brokers: what they are asked, and what they will say."""

    def __init__(self) -> None:
        self.asked: list[list[TopicPartition]] = []
        self.answer: Deferred[Offsets] = Deferred()

    def ask(self, topic_partitions: Iterable[TopicPartition], /) -> Deferred[Offsets]:
        self.asked.append(list(topic_partitions))
        self.answer = Deferred()
        return self.answer


class Groups:
    """A coordinator that leads a partition of every group, and one of two topics."""

    def __init__(self, limit: int = 100) -> None:
        self.broker = BrokerStandIn()
        self.broker.metadata.add_topic("here", b"h" * 16, 1)
        self.broker.metadata.add_topic("there", b"t" * 16, 2)
        self.leaders = Leaders()
        self.figures = GroupFigures(
            self.broker.coordinator,
            lambda topic_partition: 100 if topic_partition.topic == "here" else None,
            self.leaders,
            limit,
        )

    def commit(self, group_id: str, topic: str, *offsets: int) -> None:
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            for index, offset in enumerate(offsets)
        ]
        self.broker.call(
            OffsetCommitRequest(
                group_id=group_id,
                topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
            ),
            8,
        )
        run_waiting()


def test_the_lag_is_what_lies_between_the_commit_and_the_high_watermark() -> None:
    groups = Groups()
    groups.commit("readers", "here", 70)
    groups.commit("ahead", "here", 120)  # of a log that was cut since
    figures = groups.figures.lag()
    assert figures["lag_records"] == {("readers", "here", "0"): 30, ("ahead", "here", "0"): 0}
    assert figures["committed_offset"][("readers", "here", "0")] == 70
    groups.figures.refresh()
    assert groups.leaders.asked == [[]]


def test_leaders_elsewhere_are_asked_and_shown_while_they_answer() -> None:
    groups = Groups()
    groups.commit("readers", "there", 5, 6)
    first, second = TopicPartition("there", 0), TopicPartition("there", 1)
    assert groups.figures.lag()["lag_records"] == {}
    refreshed = groups.figures.refresh()
    assert groups.figures.refresh() is refreshed, "one question at a time"
    assert groups.leaders.asked == [[first, second]]
    groups.leaders.answer.complete({first: 9, second: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    run_waiting()
    assert refreshed.done
    assert groups.figures.lag()["lag_records"] == {("readers", "there", "0"): 4}
    groups.figures.refresh()
    groups.leaders.answer.complete({first: ErrorCode.NETWORK_EXCEPTION, second: 6})
    run_waiting()
    assert groups.figures.lag()["lag_records"] == {("readers", "there", "1"): 0}


def test_so_many_offsets_are_looked_at() -> None:
    groups = Groups(limit=1)
    groups.commit("readers", "there", 5, 6)
    assert len(groups.figures.lag()["committed_offset"]) == 1


def test_groups_are_counted_by_kind_and_state() -> None:
    groups = Groups()
    groups.commit("one", "here", 1)
    groups.commit("two", "here", 1)
    assert groups.figures.kinds()["groups"] == {("classic", "Empty"): 2}
    assert groups.figures.members()["members"] == {("one",): 0, ("two",): 0}
