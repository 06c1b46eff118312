"""Questions to one transaction coordinator, gathered into requests of the brokers' form.

Rules
1. A request has each transactional id once (AddPartitionsToTxn 4 and later). Questions of one
   producer are joined; what cannot be joined waits for the next request.
2. Of two epochs of a producer, the older one is fenced, whatever the coordinator knows by now.
3. Every question is answered once, for all of its partitions: what the coordinator is silent about
   is not verified.

Pure. `coordinator_asker` owns one for each coordinator's broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kraftrio.base.deferred import Deferred
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kraftrio.wire.primitives import TopicPartition, indexes_by_topic

Unverified: TypeAlias = Mapping[TopicPartition, ErrorCode]
"""The partitions that are not part of the transaction, each with its reason."""


@dataclass(slots=True, eq=False)
class Question:
    """Are these partitions part of a producer's transaction?

    Attributes:
        adds_partitions: add those that are not.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    adds_partitions: bool
    answer: Deferred[Unverified] = field(default_factory=Deferred)

    def fail(self, code: ErrorCode) -> None:
        """None of them is verified."""
        self.answer.complete(dict.fromkeys(self.partitions, code))

    def can_join(self, other: Question) -> bool:
        """Whether both may be asked as one (for the same transactional id)."""
        return (
            self.producer_id == other.producer_id
            and self.producer_epoch == other.producer_epoch
            and self.adds_partitions == other.adds_partitions
        )


class QuestionBatch:
    """The questions of one request."""

    __slots__ = ("_asked",)

    def __init__(self, asked: Mapping[str, Sequence[Question]]) -> None:
        self._asked = asked  # by transactional id; each list joined

    def request(self) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            transactions=[_transaction(questions) for questions in self._asked.values()]
        )

    def fail(self, code: ErrorCode) -> None:
        """There was no answer."""
        for questions in self._asked.values():
            for question in questions:
                question.fail(code)

    def answer(self, response: AddPartitionsToTxnResponse) -> None:
        """Answer every question."""
        if response.error_code is not ErrorCode.NONE:
            # That brokers may not ask each other is not reported to a client.
            is_ours = response.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            self.fail(ErrorCode.INVALID_TXN_STATE if is_ours else response.error_code)
            return
        codes = {
            result.transactional_id: {
                TopicPartition(topic.name, entry.partition_index): entry.partition_error_code
                for topic in result.topic_results
                for entry in topic.results_by_partition
            }
            for result in response.results_by_transaction
        }
        for transactional_id, questions in self._asked.items():
            answered_codes = codes.get(transactional_id, {})
            for question in questions:
                unverified = {}
                for topic_partition in question.partitions:
                    code = answered_codes.get(topic_partition, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                    if code is not ErrorCode.NONE:
                        unverified[topic_partition] = code
                question.answer.complete(unverified)


class Questions:
    """What is still to be asked of one coordinator's broker; false if there is nothing."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Question] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, question: Question) -> None:
        self._waiting.append(question)

    def take(self) -> QuestionBatch | None:
        """The next request: of each transactional id what can be asked at once."""
        newest: dict[tuple[str, int], int] = {}
        for question in self._waiting:
            producer = question.transactional_id, question.producer_id
            newest[producer] = max(newest.get(producer, 0), question.producer_epoch)
        asked: dict[str, list[Question]] = {}
        later: list[Question] = []
        fenced: list[Question] = []
        for question in self._waiting:
            transactional_id = question.transactional_id
            if question.producer_epoch < newest[transactional_id, question.producer_id]:
                fenced.append(question)
                continue
            joined = asked.setdefault(transactional_id, [])
            if not joined or joined[0].can_join(question):
                joined.append(question)
            else:
                later.append(question)
        self._waiting = later
        for question in fenced:
            question.fail(ErrorCode.INVALID_PRODUCER_EPOCH)
        return QuestionBatch(asked) if asked else None


def _transaction(questions: Sequence[Question]) -> AddPartitionsToTxnTransaction:
    asked = dict.fromkeys(one for question in questions for one in question.partitions)
    first = questions[0]
    return AddPartitionsToTxnTransaction(
        transactional_id=first.transactional_id,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        verify_only=not first.adds_partitions,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in indexes_by_topic(asked).items()
        ],
    )
