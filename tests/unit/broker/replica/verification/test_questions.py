"""Questions to a coordinator: joined, fenced, answered."""

from __future__ import annotations

from kraftrio.broker.replica.verification.questions import Question, QuestionBatch, Questions
from kraftrio.wire.codec.message import encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kraftrio.wire.primitives import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def question(
    *partitions: TopicPartition,
    transactional_id: str = "a",
    producer_id: int = 7,
    epoch: int = 0,
    adds: bool = True,
) -> Question:
    return Question(transactional_id, producer_id, epoch, partitions, adds)


def taken(*questions: Question) -> tuple[Questions, QuestionBatch]:
    waiting = Questions()
    for one in questions:
        waiting.add(one)
    batch = waiting.take()
    assert batch is not None
    return waiting, batch


def asked(batch: QuestionBatch) -> list[tuple[str, int, bool, dict[str, list[int]]]]:
    request = batch.request()
    encode(request, 5)
    return [
        (
            one.transactional_id,
            one.producer_epoch,
            one.verify_only,
            {topic.name: topic.partitions for topic in one.topics},
        )
        for one in request.transactions
    ]


def response(
    codes: dict[tuple[str, TopicPartition], ErrorCode],
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic_partition.topic,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=topic_partition.partition,
                                partition_error_code=code,
                            )
                        ],
                    )
                ],
            )
            for (transactional_id, topic_partition), code in codes.items()
        ]
    )


def test_questions_of_many_producers_are_one_request() -> None:
    waiting, batch = taken(
        question(T0, T1, U0),
        question(T0, transactional_id="b", producer_id=8, epoch=3, adds=False),
    )
    assert asked(batch) == [
        ("a", 0, False, {"t": [0, 1], "u": [0]}),
        ("b", 3, True, {"t": [0]}),
    ]
    assert not waiting and waiting.take() is None


def test_what_one_producer_asks_twice_is_asked_once() -> None:
    """A retry, or offsets beside records."""
    first, second = question(T0, T1), question(T1, U0)
    _, batch = taken(first, second)
    assert asked(batch) == [("a", 0, False, {"t": [0, 1], "u": [0]})]
    codes = {
        ("a", T0): ErrorCode.NONE,
        ("a", T1): ErrorCode.CONCURRENT_TRANSACTIONS,
        ("a", U0): ErrorCode.NONE,
    }
    one_transaction = AddPartitionsToTxnResult(
        transactional_id="a",
        topic_results=[
            topic
            for result in response(codes).results_by_transaction
            for topic in result.topic_results
        ],
    )
    batch.answer(AddPartitionsToTxnResponse(results_by_transaction=[one_transaction]))
    assert first.answer.value == second.answer.value == {T1: ErrorCode.CONCURRENT_TRANSACTIONS}


def test_what_cannot_be_joined_is_the_next_request() -> None:
    """To verify and to add are different things; so are two producers under one id."""
    waiting, batch = taken(
        question(T0), question(T1, adds=False), question(U0, producer_id=8), question(T1)
    )
    assert asked(batch) == [("a", 0, False, {"t": [0, 1]})]
    following = waiting.take()
    assert following is not None and asked(following) == [("a", 0, True, {"t": [1]})]
    last = waiting.take()
    assert last is not None
    assert [one.producer_id for one in last.request().transactions] == [8]


def test_the_older_of_two_epochs_is_fenced() -> None:
    for epochs in ((1, 2), (2, 1)):
        older, newer = sorted((question(T0, epoch=one) for one in epochs), key=epoch_of)
        order = [older, newer] if epochs[0] == 1 else [newer, older]
        _, batch = taken(*order)
        assert older.answer.value == {T0: ErrorCode.INVALID_PRODUCER_EPOCH}
        assert asked(batch) == [("a", 2, False, {"t": [0]})]


def epoch_of(one: Question) -> int:
    return one.producer_epoch


def test_silence_is_no_permission() -> None:
    """What the coordinator does not speak of is not verified."""
    both, other = question(T0, T1), question(T0, transactional_id="b")
    _, batch = taken(both, other)
    batch.answer(response({("a", T0): ErrorCode.NONE}))
    assert both.answer.value == {T1: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert other.answer.value == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_errors_of_the_whole_request() -> None:
    for code, returned in (
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
    ):
        one = question(T0, T1)
        _, batch = taken(one)
        batch.answer(AddPartitionsToTxnResponse(error_code=code))
        assert one.answer.value == {T0: returned, T1: returned}


def test_the_request_is_the_brokers_form() -> None:
    _, batch = taken(question(T0))
    assert isinstance(batch.request(), AddPartitionsToTxnRequest)
    encode(batch.request(), 4)
