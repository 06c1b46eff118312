"""Markers leave in batches, through brokers that fail, and finished transactions are reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.base.logging_setup import LineFormatter
from kraftrio.broker.coordinator.marker_sender import MarkerSender
from kraftrio.broker.coordinator.transactions.ports import EndCause, TransactionEnd
from kraftrio.broker.metadata.cache import MetadataCache
from kraftrio.kraft_meta.metadata.image import MetadataDelta
from kraftrio.kraft_meta.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftrio.net.connection import ConnectionLost
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kraftrio.wire.primitives import TopicPartition

THIS_BROKER = 1
TOPIC_ID = b"\x07" * 16
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)  # led by brokers 1 and 2


def written(
    request: WriteTxnMarkersRequest, code: ErrorCode = ErrorCode.NONE
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


class FakeLinks:
    """Keeps what is sent; this broker answers at once, if it is told to."""

    broker_id = THIS_BROKER

    def __init__(self) -> None:
        self.sent: list[tuple[int, WriteTxnMarkersRequest, Deferred[Any]]] = []
        self.answers_here = True

    def send(self, broker_id: int, request: Any, *, timeout_ms: float) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.sent.append((broker_id, request, answer))
        if broker_id == THIS_BROKER and self.answers_here:
            answer.complete(written(request))
        return answer

    def to(self, broker_id: int) -> list[WriteTxnMarkersRequest]:
        return [request for to, request, _ in self.sent if to == broker_id]


class Timer:
    def __init__(self, due_ms: float, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualClock(Clock):
    now = 5000.0

    def monotonic_ms(self) -> float:
        return self.now


class Context:
    """A sender over links that the test answers; outside of a run, every turn is at once."""

    def __init__(self) -> None:
        self.links = FakeLinks()
        self.metadata = MetadataCache()
        self.clock = ManualClock()
        self.timers: list[Timer] = []
        self.finished: list[str] = []
        delta = MetadataDelta(self.metadata.image)
        delta.replay(TopicRecord("t", TOPIC_ID))
        for index, leader in ((0, 1), (1, 2)):
            delta.replay(PartitionRecord(TOPIC_ID, index, (leader, 3), (leader, 3), leader))
        self.metadata.image = delta.apply(1, 1)
        self.sender = MarkerSender(self.links, self.metadata, self, self.clock, timeout_ms=30_000)
        self.completions: list[Deferred[None]] = []
        self.sender.when_written(self._on_written)

    def _on_written(self, end: TransactionEnd) -> Deferred[None]:
        self.finished.append(end.transactional_id)
        self.completions.append(Deferred())
        return self.completions[-1]

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.clock.now + delay_ms, callback))
        return self.timers[-1]

    def pass_time(self, ms: float) -> None:
        self.clock.now += ms
        due = [one for one in self.timers if one.due_ms <= self.clock.now]
        self.timers = [one for one in self.timers if one not in due]
        for one in due:
            if not one.is_cancelled:
                one.callback()

    def write(
        self,
        *partitions: TopicPartition,
        name: str = "x",
        producer_id: int = 1,
        cause: EndCause = EndCause.REQUESTED,
    ) -> None:
        end = TransactionEnd(name, 0, 5, producer_id, 3, True, 2, frozenset(partitions), cause)
        self.sender.write(end)

    def change(self, *records: Any) -> None:
        delta = MetadataDelta(self.metadata.image)
        for record in records:
            delta.replay(record)
        self.metadata.image = delta.apply(self.metadata.image.offset + 1, 1)
        self.sender.metadata_changed()

    def lead(self, index: int, leader: int) -> None:
        self.change(PartitionChangeRecord(TOPIC_ID, index, leader=leader))


@pytest.fixture
def context() -> Context:
    return Context()


def test_markers_of_this_broker_are_written_and_reported_at_once(context: Context) -> None:
    context.write(FIRST)
    assert context.finished == ["x"]
    assert len(context.links.to(THIS_BROKER)) == 1
    assert context.sender.statistics()["markers_written_total"] == 1
    assert context.sender.statistics()["pending_transactions"] == 0


async def test_nothing_is_sent_from_within_write(context: Context) -> None:
    context.write(FIRST)
    assert not context.links.sent
    context.write(FIRST, name="y", producer_id=2)
    await trio.testing.wait_all_tasks_blocked()
    assert context.finished == ["x", "y"]
    assert len(context.links.to(THIS_BROKER)) == 1  # what was decided in one turn goes together


async def test_what_was_written_can_be_sent_before_the_turn_ends(context: Context) -> None:
    context.write(FIRST)
    context.sender.send_now()
    assert context.finished == ["x"]
    await trio.testing.wait_all_tasks_blocked()
    assert len(context.links.sent) == 1
    assert context.finished == ["x"]


def test_a_coordinator_that_writes_in_its_callback_is_not_reentered(context: Context) -> None:
    depths: list[int] = []
    depth = 0

    def go_on(end: TransactionEnd) -> Deferred[None]:
        nonlocal depth
        depth += 1
        depths.append(depth)
        if len(depths) < 3:
            context.write(FIRST, name=f"next-{len(depths)}", producer_id=10 + len(depths))
            context.sender.send_now()
        depth -= 1
        return Deferred.completed(None)

    context.sender.when_written(go_on)
    context.write(FIRST)
    assert depths == [1, 1, 1]


def test_another_broker_has_one_request_at_a_time_and_the_next_has_all_that_waited(
    context: Context,
) -> None:
    context.write(SECOND, name="x", producer_id=1)
    context.write(SECOND, name="y", producer_id=2)
    context.write(FIRST, SECOND, name="z", producer_id=3)
    ((_, request, answer), (here, _, _)) = context.links.sent
    assert [marker.producer_id for marker in request.markers] == [1]
    assert here == THIS_BROKER
    answer.complete(written(request))
    assert context.finished == ["x"]
    _, second_request, second_answer = context.links.sent[-1]
    assert [marker.producer_id for marker in second_request.markers] == [2, 3]
    second_answer.complete(written(second_request))
    assert context.finished == ["x", "y", "z"]


def test_this_broker_is_not_held_up_by_what_it_has_not_answered(context: Context) -> None:
    context.links.answers_here = False
    context.write(FIRST, name="x", producer_id=1)
    context.write(FIRST, name="y", producer_id=2)
    first, second = context.links.sent
    second[2].complete(written(second[1]))
    assert context.finished == ["y"]
    first[2].complete(written(first[1]))
    assert context.finished == ["y", "x"]


def test_a_lost_request_is_sent_again_after_a_pause(context: Context) -> None:
    context.write(SECOND)
    context.links.sent[0][2].fail(ConnectionLost("reset"))
    assert len(context.links.sent) == 1
    context.pass_time(19)
    assert len(context.links.sent) == 1
    context.pass_time(1)
    _, request, answer = context.links.sent[1]
    answer.complete(written(request))
    assert context.finished == ["x"]
    assert context.sender.statistics()["markers_retried_total"] == 1


def test_a_fault_of_a_handler_is_not_taken_for_a_lost_connection(context: Context) -> None:
    context.links.answers_here = False
    context.write(FIRST)
    with pytest.raises(ValueError, match="a fault"):
        context.links.sent[0][2].fail(ValueError("a fault"))


def test_new_metadata_sends_to_the_new_leader_at_once(context: Context) -> None:
    context.write(SECOND)
    context.lead(1, 3)
    assert [to for to, _, _ in context.links.sent] == [2, 3]
    _, request, answer = context.links.sent[1]
    answer.complete(written(request))
    assert context.finished == ["x"]
    context.links.sent[0][2].fail(ConnectionLost("reset"))
    assert context.finished == ["x"]


def test_a_deleted_topic_ends_the_wait_for_it(context: Context) -> None:
    context.write(SECOND)
    context.change(RemoveTopicRecord(TOPIC_ID))
    assert context.finished == ["x"]
    assert context.sender.statistics()["markers_skipped_total"] == 1


def test_a_partition_without_a_leader_waits_for_one(context: Context) -> None:
    context.lead(1, -1)
    context.write(SECOND)
    assert not context.links.sent
    context.lead(1, 2)
    assert [to for to, _, _ in context.links.sent] == [2]


def test_nothing_is_reported_for_a_resigned_partition(context: Context) -> None:
    context.write(SECOND)
    context.sender.drop(0)
    _, request, answer = context.links.sent[0]
    answer.complete(written(request))
    assert context.finished == []
    assert context.sender.statistics()["pending_transactions"] == 0


def test_many_failures_keep_one_timer(context: Context) -> None:
    context.write(SECOND, name="x", producer_id=1)
    for _ in range(5):
        context.links.sent[-1][2].fail(ConnectionLost("reset"))
        context.pass_time(10_000)
    assert len([one for one in context.timers if not one.is_cancelled]) <= 1
    assert len(context.links.sent) == 6


def test_what_waits_behind_a_silent_broker_goes_to_the_new_leader_too(context: Context) -> None:
    context.write(SECOND)
    context.write(SECOND, name="y", producer_id=2)
    context.lead(1, 1)
    assert [to for to, _, _ in context.links.sent] == [2, 1]
    assert len(context.links.to(1)[0].markers) == 2
    assert sorted(context.finished) == ["x", "y"]


@pytest.mark.parametrize("cause", EndCause)
def test_what_is_aborted_against_its_producer_is_a_line_in_the_log(
    context: Context, caplog: pytest.LogCaptureFixture, cause: EndCause
) -> None:
    with caplog.at_level("INFO"):
        context.write(FIRST, name="a\nb", cause=cause)
    lines = [LineFormatter().format(record) for record in caplog.records]
    if cause in (EndCause.TIMED_OUT, EndCause.FENCED):
        (line,) = lines
        assert "transaction aborted transactional_id=" in line
        assert "\n" not in line
        assert cause.value in line
        assert "producer_id=1 epoch=3 partitions=1" in line
    else:
        assert lines == []


# -- waiting for an end ---------------------------------------------------------------------------


def test_an_end_can_be_waited_for_until_it_is_complete(context: Context) -> None:
    assert context.sender.when_ended("x") is None
    context.write(FIRST)
    first, second = context.sender.when_ended("x"), context.sender.when_ended("x")
    assert first is not None and second is not None
    assert context.finished == ["x"]
    assert not first.done
    context.completions[0].complete(None)
    assert first.done and second.done
    assert context.sender.when_ended("x") is None
    context.pass_time(1000)


def test_an_end_is_waited_for_no_longer_than_a_back_off(context: Context) -> None:
    context.write(SECOND)
    ended = context.sender.when_ended("x")
    assert ended is not None
    context.pass_time(19)
    assert not ended.done
    context.pass_time(1)
    assert ended.done
    assert context.sender.when_ended("x") is not None


def test_no_caller_waits_for_what_is_left_to_a_later_coordinator(context: Context) -> None:
    context.write(SECOND, name="resigned")
    ended = context.sender.when_ended("resigned")
    context.sender.drop(0)
    assert ended is not None and ended.done
    assert context.sender.when_ended("resigned") is None
    context.links.sent[0][2].fail(ConnectionLost("reset"))
    context.write(SECOND, name="fenced")
    ended = context.sender.when_ended("fenced")
    _, request, answer = context.links.sent[-1]
    answer.complete(written(request, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
    assert ended is not None and ended.done
    assert context.sender.when_ended("fenced") is None
