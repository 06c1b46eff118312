"""The coordinators' brokers are asked by one request at a time, and may not answer."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.replica.verification.coordinator_asker import CoordinatorAsker
from kraftrio.broker.replica.verification.questions import Question
from kraftrio.net.connection import ConnectionLost
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kraftrio.wire.primitives import TopicPartition

TP = TopicPartition("t", 0)


class Brokers:
    """Writes down what is sent; the test answers."""

    broker_id = 2

    def __init__(self) -> None:
        self.sent: list[tuple[int, AddPartitionsToTxnRequest, Deferred[Any]]] = []

    def send(self, broker_id: int, request: Any, *, timeout_ms: float) -> Deferred[Any]:
        assert timeout_ms == 1000
        self.sent.append((broker_id, request, Deferred()))
        return self.sent[-1][2]

    def ids(self, index: int) -> list[str]:
        """The transactional ids in a request."""
        return [one.transactional_id for one in self.sent[index][1].transactions]

    def verify(self, index: int) -> None:
        """Everything that a request asks about is so."""
        results = [
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=partition)
                            for partition in topic.partitions
                        ],
                    )
                    for topic in one.topics
                ],
            )
            for one in self.sent[index][1].transactions
        ]
        self.sent[index][2].complete(AddPartitionsToTxnResponse(results_by_transaction=results))


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def asker(brokers: Brokers) -> CoordinatorAsker:
    coordinators = {"a": 1, "b": 1, "c": 1, "d": 3, "here": 2, "here, too": 2}
    return CoordinatorAsker(brokers, coordinators.get, 1000)


def ask(asker: CoordinatorAsker, transactional_id: str) -> Question:
    question = Question(transactional_id, 7, 0, [TP], True)
    asker.ask(question)
    return question


def test_one_request_at_a_time_to_each_broker(asker: CoordinatorAsker, brokers: Brokers) -> None:
    first, second, third, other = (ask(asker, one) for one in "abcd")
    assert [broker_id for broker_id, _, _ in brokers.sent] == [1, 3]
    assert brokers.ids(0) == ["a"] and brokers.ids(1) == ["d"]
    brokers.verify(0)
    assert first.answer.value == {} and not second.answer.done
    assert brokers.ids(2) == ["b", "c"]
    brokers.verify(2)
    assert second.answer.value == third.answer.value == {}
    assert not other.answer.done
    ask(asker, "a")
    assert brokers.ids(3) == ["a"], "nobody asks that broker any more"
    assert asker.statistics()["questions_total"] == 5


def test_no_question_to_this_broker_waits_for_another(
    asker: CoordinatorAsker, brokers: Brokers
) -> None:
    first, second = ask(asker, "here"), ask(asker, "here, too")
    assert brokers.ids(0) == ["here"] and brokers.ids(1) == ["here, too"]
    brokers.verify(1)
    assert second.answer.value == {} and not first.answer.done
    brokers.sent[0][2].fail(ConnectionLost("this broker stops"))
    assert first.answer.value == {TP: ErrorCode.NETWORK_EXCEPTION}
    assert asker.statistics()["brokers_being_asked"] == 0


def test_without_a_coordinator(asker: CoordinatorAsker, brokers: Brokers) -> None:
    unknown = ask(asker, "z")
    assert unknown.answer.value == {TP: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert not brokers.sent


def test_without_an_answer(asker: CoordinatorAsker, brokers: Brokers) -> None:
    """The producers have to ask again; those behind are asked now."""
    lost, following = ask(asker, "a"), ask(asker, "b")
    brokers.sent[0][2].fail(ConnectionLost("reset"))
    assert lost.answer.value == {TP: ErrorCode.NETWORK_EXCEPTION}
    brokers.verify(1)
    assert following.answer.value == {}
    assert asker.statistics()["unanswered_requests_total"] == 1


def test_a_fault_of_ours_is_not_taken_for_a_lost_connection(
    asker: CoordinatorAsker, brokers: Brokers
) -> None:
    ask(asker, "a")
    with pytest.raises(ZeroDivisionError):
        brokers.sent[0][2].fail(ZeroDivisionError())
