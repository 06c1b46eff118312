"""Share coordinators are found, asked with few requests, and asked again until the deadline."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.peers.share_state_client import ShareStateClient
from kraftrio.broker.share_state import (
    SharePartitionKey,
    SharePartitionState,
    ShareStateBatch,
    ShareStateWrite,
)
from kraftrio.net.connection import ConnectionLost
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages import share_state as messages
from tests.unit.broker.coordinator.broker_stand_in import ManualTimers
from tests.unit.broker.coordinator.share_state.share_stand_in import TOPIC_ID, ShareStandIn

KEY = SharePartitionKey("g", TOPIC_ID, 0)
KEYS = [KEY._replace(partition=index) for index in range(4)]
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Brokers:
    """Brokers of which one coordinates; they answer as the test says.

    Attributes:
        sent: the requests, with the broker of each.
        held: requests that are not answered yet; None: all are answered at once.
    """

    broker_id = 1

    def __init__(self, share: ShareStandIn) -> None:
        self.share = share
        self.coordinator_id: int | None = 2
        self.sent: list[tuple[int, Any]] = []
        self.failures: list[Exception | ErrorCode] = []
        self.held: list[tuple[Any, Deferred[Any]]] | None = None
        self.topics_created = 0

    def coordinator_of(self, key: str) -> int | None:
        assert key.startswith(("g:", "h:"))
        return self.coordinator_id

    def create_topic(self) -> None:
        self.topics_created += 1

    def send(self, broker_id: int, request: Any, *, timeout_ms: float) -> Deferred[Any]:
        assert timeout_ms == 1000
        self.sent.append((broker_id, request))
        answer: Deferred[Any] = Deferred()
        if self.held is not None:
            self.held.append((request, answer))
        else:
            self._answer(request, answer)
        return answer

    def release(self) -> None:
        """Answer what is held, and everything from now on."""
        held, self.held = self.held, None
        for request, answer in held or []:
            self._answer(request, answer)

    def _answer(self, request: Any, answer: Deferred[Any]) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, ErrorCode):
            response = self.share.request(request)
            for result in response.results:
                for partition in result.partitions:
                    partition.error_code = failure
            answer.complete(response)
        elif failure is not None:
            answer.fail(failure)
        else:
            answer.complete(self.share.request(request))


class Context:
    def __init__(self) -> None:
        self.share = ShareStandIn()
        self.timers = ManualTimers()
        self.brokers = Brokers(self.share)
        self.client = ShareStateClient(
            self.brokers,
            self.brokers.coordinator_of,
            self.brokers.create_topic,
            self.timers,
            self.timers,
            1000,
        )


def test_every_question_has_its_answer() -> None:
    context = Context()
    client = context.client
    assert client.initialize(KEY, 3, 5).value is ErrorCode.NONE
    assert client.read(KEY, 2).value == SharePartitionState(3, 2, 5)
    batch = ShareStateBatch(5, 9, 2, 1)
    write = ShareStateWrite(3, 2, 5, 5, (batch,))
    assert client.write(KEY, write).value is ErrorCode.NONE
    assert client.read(KEY, 2).value == SharePartitionState(3, 2, 5, batches=(batch,))
    assert client.read_summary(KEY).value == SharePartitionState(3, 2, 5, 5)
    assert client.delete(KEY).value is ErrorCode.NONE
    assert client.read_summary(KEY).value == SharePartitionState(0, 0, -1, -1)
    assert {broker_id for broker_id, _ in context.brokers.sent} == {2}


def test_final_errors_are_returned_at_once() -> None:
    context = Context()
    assert context.client.write(KEY, ShareStateWrite(0, 0, 0, 0)).value is ErrorCode.INVALID_REQUEST
    answer = context.client.read(KEY, 0).value
    assert isinstance(answer, KafkaError)
    assert answer.message == "Read operation on uninitialized share partition not allowed."
    assert len(context.brokers.sent) == 2


def test_what_comes_meanwhile_goes_with_the_next_request() -> None:
    """One request of a kind, group and coordinator is under way; other kinds do not wait."""
    context = Context()
    context.brokers.held = []
    answers = [context.client.initialize(key, 1, 0) for key in KEYS]
    answers.append(context.client.initialize(KEYS[1], 2, 0))
    other_group = context.client.initialize(KEY._replace(group_id="h"), 1, 0)
    summary = context.client.read_summary(KEY)
    assert len(context.brokers.sent) == 3
    context.brokers.release()
    assert all(answer.value is ErrorCode.NONE for answer in (*answers, other_group))
    assert summary.done
    (second,) = [request for _, request in context.brokers.sent[3:4]]
    assert isinstance(second, messages.InitializeShareGroupStateRequest)
    partitions = [one.partition for topic in second.topics for one in topic.partitions]
    assert partitions == [1, 2, 3]  # and 1 again after that
    assert len(context.brokers.sent) == 5
    assert context.share.summary(KEYS[1]).state_epoch == 2
    assert context.client.statistics()["busy_lanes"] == 0


@pytest.mark.parametrize(
    "failure",
    [
        LOADING,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ConnectionLost("the broker is gone"),
    ],
)
def test_what_was_not_decided_is_asked_again(failure: Exception | ErrorCode) -> None:
    """Of the coordinator of that moment."""
    context = Context()
    context.brokers.failures = [failure, failure]
    answer = context.client.initialize(KEY, 1, 0)
    assert not answer.done
    context.brokers.coordinator_id = 3
    context.timers.advance(20)
    assert not answer.done
    context.timers.advance(40)
    assert answer.value is ErrorCode.NONE
    assert [broker_id for broker_id, _ in context.brokers.sent] == [2, 3, 3]


def test_the_topic_is_made_when_it_is_missing() -> None:
    context = Context()
    context.brokers.coordinator_id = None
    answer = context.client.initialize(KEY, 1, 0)
    assert (context.brokers.topics_created, context.brokers.sent) == (1, [])
    context.brokers.coordinator_id = 2
    context.timers.advance(20)
    assert answer.value is ErrorCode.NONE


def test_the_deadline_ends_the_asking() -> None:
    """With the last error; the pauses grow."""
    context = Context()
    context.brokers.failures = [LOADING] * 100
    answer = context.client.read(KEY, 0)
    context.timers.advance(28_000)
    assert not answer.done
    context.timers.advance(2_000)
    assert isinstance(answer.value, KafkaError) and answer.value.code is LOADING
    assert len(context.brokers.sent) < 40
    assert context.client.statistics()["given_up_total"] == 1
    assert context.client.statistics()["waiting_questions"] == 0
