"""Producers' requests to their coordinator: every version, what is checked, what is waited for."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.security.authorizer import AclOperation, Resource, ResourceType
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import InitProducerIdRequest
from kraftrio.wire.messages.quorum import AllocateProducerIdsResponse
from kraftrio.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
)
from kraftrio.wire.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.support.authorizers import Denies
from tests.unit.broker.api.transactions.transaction_stand_in import ID, TransactionStandIn

NONE = ErrorCode.NONE


@pytest.fixture
def broker() -> TransactionStandIn:
    return TransactionStandIn()


def codes_of(topics: Any) -> dict[tuple[str, int], ErrorCode]:
    """The code of each partition."""
    return {
        (topic.name, one.partition_index): one.partition_error_code
        for topic in topics
        for one in topic.results_by_partition
    }


def batch(*transactions: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=list(transactions))


def one_of_batch(
    producer: Any, *topics: tuple[str, list[int]], verify_only: bool = False, name: str = ID
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(ix)) for topic, ix in topics],
    )


# -- InitProducerId -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_without_a_transactional_id_each_producer_gets_a_fresh_id(
    broker: TransactionStandIn, version: int
) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
    answers = [broker.ask(request, version) for _ in range(2)]
    assert [(one.error_code, one.producer_id, one.producer_epoch) for one in answers] == [
        (NONE, 1000, 0),
        (NONE, 1001, 0),
    ]


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_keeps_its_producer_id_and_raises_the_epoch(
    broker: TransactionStandIn, version: int
) -> None:
    first, second = broker.init(version=version), broker.init(version=version)
    assert (first.error_code, first.producer_epoch) == (NONE, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
    assert broker.init("other", version).producer_id != first.producer_id


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5, "transactional_id": None}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_invalid_requests_are_refused_wherever_the_coordinator_is(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    elsewhere = TransactionStandIn(lead=False)
    request = InitProducerIdRequest(
        **{"transactional_id": ID, "transaction_timeout_ms": 60_000, **fields}
    )
    answer = elsewhere.ask(request)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


def test_a_producer_waits_for_the_next_block_of_ids() -> None:
    broker = TransactionStandIn()
    broker.holds_blocks = True
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
    answer = broker.begin(request, 5)
    assert isinstance(answer, Deferred)
    assert not answer.done
    broker.grant_block()
    assert (answer.value.error_code, answer.value.producer_id) == (NONE, 1000)


def test_producers_that_wait_for_ids_get_one_each() -> None:
    broker = TransactionStandIn()
    broker.holds_blocks = True
    answers = [
        broker.begin(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000), 5)
        for name in ("a", "b", "a")
    ]
    broker.grant_block()
    assert [one.value.producer_id for one in answers] == [1000, 1001, 1000]
    assert [one.value.producer_epoch for one in answers] == [0, 0, 1]


def test_without_a_block_of_ids_producers_are_told_to_come_again() -> None:
    broker = TransactionStandIn()
    broker.holds_blocks = True
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
    answer = broker.begin(request, 5)
    broker.blocks.pop().complete(
        AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    )
    assert answer.value.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert answer.value.producer_id == -1


# -- a transaction ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_of_a_client_ends_everywhere(
    broker: TransactionStandIn, version: int, commit: bool
) -> None:
    producer = broker.init(version=min(version, 5))
    added = broker.add(producer, ("t", [0, 2]), ("u", [0]), version=version)
    assert codes_of(added.results_by_topic_v3_and_below) == {
        ("t", 0): NONE, ("t", 2): NONE, ("u", 0): NONE,
    }  # fmt: skip
    assert broker.end(producer, commit=commit, version=version).error_code is NONE
    assert broker.links.written == [(producer.producer_id, commit)]
    again = broker.add(producer, ("t", [0]), version=version)
    assert codes_of(again.results_by_topic_v3_and_below) == {("t", 0): NONE}


def test_end_5_gives_the_epoch_of_the_next_transaction(broker: TransactionStandIn) -> None:
    producer = broker.init()
    broker.ask(batch(one_of_batch(producer, ("t", [0]))))
    ended = broker.end(producer)
    assert ended.error_code is NONE
    assert (ended.producer_id, ended.producer_epoch) == (producer.producer_id, 1)
    assert broker.end(producer, version=5).producer_epoch == 1, "a retry"
    old = broker.end(producer, version=4)
    assert old.error_code is ErrorCode.PRODUCER_FENCED


def test_the_answer_to_a_commit_does_not_wait_for_markers(broker: TransactionStandIn) -> None:
    producer = broker.init()
    broker.add(producer, ("t", [0]))
    broker.links.holds = True
    assert broker.end(producer, version=3).error_code is NONE
    assert broker.links.written == []
    broker.links.write_all()
    assert broker.links.written == [(producer.producer_id, True)]


def test_the_next_transaction_of_a_client_waits_a_little_for_the_end_of_the_last(
    broker: TransactionStandIn,
) -> None:
    producer = broker.init()
    broker.add(producer, ("t", [0]))
    broker.links.holds = True
    broker.end(producer, version=3)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=one_of_batch(producer, ("t", [0])).topics,
    )

    def code(answer: Any) -> ErrorCode:
        (only,) = codes_of(answer.value.results_by_topic_v3_and_below).values()
        return only

    busy = broker.begin(request, 3)
    assert isinstance(busy, Deferred) and not busy.done
    broker.timers.advance(20)
    assert code(busy) is ErrorCode.CONCURRENT_TRANSACTIONS
    free = broker.begin(request, 3)
    assert isinstance(free, Deferred) and not free.done
    broker.links.write_all()
    assert code(free) is NONE


def test_an_id_whose_transaction_is_ending_holds_up_no_other_of_a_batch(
    broker: TransactionStandIn,
) -> None:
    """The broker that asks for its clients gets the error at once, and asks again."""
    ending, other = broker.init(), broker.init("other")
    broker.add(ending, ("t", [0]))
    broker.links.holds = True
    broker.end(ending, version=3)
    asked = batch(one_of_batch(ending, ("t", [0])), one_of_batch(other, ("t", [0]), name="other"))
    answer = broker.ask(asked, 5)
    codes = {
        one.transactional_id: codes_of(one.topic_results)["t", 0]
        for one in answer.results_by_transaction
    }
    assert codes == {ID: ErrorCode.CONCURRENT_TRANSACTIONS, "other": NONE}


def test_a_commit_is_answered_once_its_decision_is_committed(broker: TransactionStandIn) -> None:
    producer = broker.init()
    broker.add(producer, ("t", [0]))
    broker.replicas.auto_commit = False
    request = EndTxnRequest(
        transactional_id=ID, producer_id=producer.producer_id, producer_epoch=0, committed=True
    )
    answer = broker.begin(request, 3)
    assert isinstance(answer, Deferred)
    assert not answer.done
    assert not broker.links.written
    for log in broker.replicas.logs:
        broker.replicas.commit(log)
    assert answer.value.error_code is NONE
    assert broker.links.written == [(producer.producer_id, True)]


# -- AddPartitionsToTxn -------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_a_partition_that_does_not_exist_keeps_the_others_out(
    broker: TransactionStandIn, version: int
) -> None:
    producer = broker.init(version=min(version, 5))
    added = broker.add(producer, ("t", [0, 3]), ("missing", [0]), version=version)
    assert codes_of(added.results_by_topic_v3_and_below) == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert broker.end(producer, version=3).error_code is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("internal", [CONSUMER_OFFSETS, TRANSACTION_STATE])
def test_clients_add_no_partition_of_an_internal_topic_but_brokers_do(
    broker: TransactionStandIn, internal: str
) -> None:
    producer = broker.init()
    refused = broker.add(producer, (internal, [0]), ("t", [0]))
    assert codes_of(refused.results_by_topic_v3_and_below) == {
        (internal, 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
    (added,) = broker.ask(batch(one_of_batch(producer, (internal, [0])))).results_by_transaction
    assert codes_of(added.topic_results) == {(internal, 0): NONE}


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, ErrorCode.PRODUCER_FENCED),
        (3, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_fenced_producer_gets_the_error_code_of_its_version(
    broker: TransactionStandIn, version: int, code: ErrorCode
) -> None:
    former = broker.init()
    broker.init()
    added = broker.add(former, ("t", [0]), version=version)
    assert codes_of(added.results_by_topic_v3_and_below) == {("t", 0): code}
    assert broker.end(former, version=version).error_code is code


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_for_many_transactions_at_once(
    broker: TransactionStandIn, version: int
) -> None:
    first, second = broker.init("a"), broker.init("b")
    added = broker.ask(
        batch(
            one_of_batch(first, ("t", [0, 1]), name="a"),
            one_of_batch(second, ("t", [9]), ("u", [0]), name="b"),
            one_of_batch(first, ("t", [0]), name="unknown"),
            one_of_batch(first, ("t", [0]), name=""),
        ),
        version,
    )
    assert added.error_code is NONE
    results = added.results_by_transaction
    assert [one.transactional_id for one in results] == ["a", "b", "unknown", ""]
    assert [codes_of(one.topic_results) for one in results] == [
        {("t", 0): NONE, ("t", 1): NONE},
        {("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
         ("u", 0): ErrorCode.OPERATION_NOT_ATTEMPTED},
        {("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING},
        {("t", 0): ErrorCode.INVALID_REQUEST},
    ]  # fmt: skip


def test_brokers_verify_without_adding(broker: TransactionStandIn) -> None:
    producer = broker.init()
    broker.add(producer, ("t", [0]))
    asked = batch(one_of_batch(producer, ("t", [0, 1]), ("u", [0]), verify_only=True))
    for _ in range(2):
        (verified,) = broker.ask(asked).results_by_transaction
        assert codes_of(verified.topic_results) == {
            ("t", 0): NONE,
            ("t", 1): ErrorCode.TRANSACTION_ABORTABLE,
            ("u", 0): ErrorCode.TRANSACTION_ABORTABLE,
        }


def test_a_long_batch_is_done_in_parts_and_answered_like_a_short_one(
    broker: TransactionStandIn,
) -> None:
    producer = broker.init()
    transactions = [one_of_batch(producer, ("t", [1]))] * 300
    transactions += [one_of_batch(producer, ("t", list(range(300))))]
    results = broker.ask(batch(*transactions)).results_by_transaction
    assert len(results) == 301
    assert all(codes_of(one.topic_results) == {("t", 1): NONE} for one in results[:300])
    last = codes_of(results[300].topic_results)
    assert last["t", 0] is ErrorCode.OPERATION_NOT_ATTEMPTED
    assert last["t", 299] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- AddOffsetsToTxn ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_adding_offsets_adds_the_groups_partition(broker: TransactionStandIn, version: int) -> None:
    producer = broker.init()
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer.producer_id, producer_epoch=0, group_id="g"
    )
    assert broker.ask(request, version).error_code is NONE
    index = broker.groups.partition_for("g")
    asked = batch(one_of_batch(producer, (CONSUMER_OFFSETS, [index]), verify_only=True))
    (verified,) = broker.ask(asked).results_by_transaction
    assert codes_of(verified.topic_results) == {(CONSUMER_OFFSETS, index): NONE}
    request.transactional_id = ""
    assert broker.ask(request, version).error_code is ErrorCode.INVALID_REQUEST
    request.transactional_id, request.producer_epoch = ID, 7
    code = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED
    assert broker.ask(request, version).error_code is code


# -- elsewhere ----------------------------------------------------------------------------------


def test_another_brokers_ids_are_not_coordinated_here() -> None:
    elsewhere = TransactionStandIn(lead=False)
    producer = InitProducerIdRequest(producer_id=5, producer_epoch=0)
    moved = ErrorCode.NOT_COORDINATOR
    assert elsewhere.init().error_code is moved
    assert elsewhere.end(producer).error_code is moved
    added = elsewhere.add(producer, ("t", [0]))
    assert codes_of(added.results_by_topic_v3_and_below) == {("t", 0): moved}
    asked = batch(
        one_of_batch(producer, ("t", [0])), one_of_batch(producer, ("t", [0]), verify_only=True)
    )
    for one in elsewhere.ask(asked).results_by_transaction:
        assert codes_of(one.topic_results) == {("t", 0): moved}


# -- permissions --------------------------------------------------------------------------------

_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_without_write_on_the_transactional_id_nothing_is_done(broker: TransactionStandIn) -> None:
    producer = broker.init()
    broker.authorizer = Denies(AclOperation.WRITE, Resource(ResourceType.TRANSACTIONAL_ID, ID))
    assert broker.init().error_code is _REFUSED
    assert broker.end(producer).error_code is _REFUSED
    added = broker.add(producer, ("t", [0]))
    assert codes_of(added.results_by_topic_v3_and_below) == {("t", 0): _REFUSED}
    request = AddOffsetsToTxnRequest(transactional_id=ID, producer_id=1, group_id="g")
    assert broker.ask(request).error_code is _REFUSED
    assert broker.init("other").error_code is NONE


def test_topics_and_groups_need_their_own_permission(broker: TransactionStandIn) -> None:
    producer = broker.init()
    broker.authorizer = Denies(AclOperation.WRITE, Resource(ResourceType.TOPIC, "u"))
    added = broker.add(producer, ("t", [0]), ("u", [0]))
    assert codes_of(added.results_by_topic_v3_and_below) == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("u", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    broker.authorizer = Denies(AclOperation.READ, Resource(ResourceType.GROUP, "g"))
    request = AddOffsetsToTxnRequest(transactional_id=ID, producer_id=1, group_id="g")
    assert broker.ask(request).error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_the_brokers_form_is_for_brokers(broker: TransactionStandIn) -> None:
    producer = broker.init()
    broker.authorizer = Denies(AclOperation.CLUSTER_ACTION)
    refused = broker.ask(batch(one_of_batch(producer, ("t", [0]))))
    assert refused.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert refused.results_by_transaction == []
