"""The producer's core in transactions: what is sent, retried and given up, and its sequences."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.clients.errors import TimedOutError, TransactionAbortedError
from kraftrio.clients.producer.transaction_state import Transactions, TransactionState
from kraftrio.clients.producer.transactional_sequences import TransactionalSequences
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.batch import parse_header
from tests.unit.clients.producer.producing import PRODUCER_ID, TOPIC, Core

S = TransactionState


class TransactionalCore(Core):
    """A core with a transaction open."""

    def __init__(self, partitions: int = 1, version: int = 2, **settings: Any) -> None:
        super().__init__(
            partitions, fresh=True, transactional_id="t", batch_size=1000, linger_ms=0, **settings
        )
        transactions, sequences = self.accumulator.transactions, self.accumulator.sequences
        assert transactions is not None and isinstance(sequences, TransactionalSequences)
        self.transactions: Transactions = transactions
        self.sequences: TransactionalSequences = sequences
        transactions.on_initialized(version)
        transactions.begin()

    def end(self, epoch: int) -> None:
        """Abort, and go on in an epoch."""
        self.transactions.begin_abort()
        self.accumulator.outcomes.give_up_all(TransactionAbortedError("aborted"))
        self.sequences.renew(PRODUCER_ID, epoch)
        self.transactions.on_ended()
        self.transactions.begin()


def test_batches_are_marked_and_numbered_from_0_in_each_epoch() -> None:
    core = TransactionalCore()
    for epoch in range(3):
        core.accept(b"1")
        header = parse_header(core.drain_one().data)
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch) == (PRODUCER_ID, epoch)
        assert header.base_sequence == 0
        core.end(epoch + 1)


def test_in_one_epoch_sequences_go_on_over_transactions() -> None:
    core = TransactionalCore(version=1)
    core.transactions.on_partitions_added([TopicPartition(TOPIC, 0)])
    core.accept(b"1")
    core.deliver(core.drain_one())
    core.end(0)
    core.transactions.on_partitions_added([TopicPartition(TOPIC, 0)])
    core.accept(b"2")
    assert parse_header(core.drain_one().data).base_sequence == 1


def test_a_partition_that_the_coordinator_does_not_know_holds_back_no_other() -> None:
    core = TransactionalCore(partitions=2, version=1)
    for partition in (0, 1):
        core.accept(b"1", partition=partition)
    assert core.drain() == []
    core.transactions.on_partitions_added([TopicPartition(TOPIC, 1)])
    assert [batch.partition for batch in core.drain()] == [1]
    core.transactions.on_partitions_added([TopicPartition(TOPIC, 0)])
    assert [batch.partition for batch in core.drain()] == [0]


def test_after_a_failure_nothing_is_sent_and_nothing_sent_again() -> None:
    core = TransactionalCore(partitions=4)
    failed, flying, waiting = (core.accept(b"1", partition=index) for index in range(3))
    batches = core.drain()
    assert len(batches) == 3
    core.accept(b"2", partition=3)
    core.flush()
    core.refuse(batches[2], ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not waiting.done, "it is to be sent again"
    core.refuse(batches[0], ErrorCode.INVALID_RECORD)
    assert core.transactions.state is S.FAILED
    assert core.accumulator.drain(1, core.now_ms) == []
    core.wait(10_000)
    assert core.drain() == []
    for delivery in (failed, waiting):
        with pytest.raises(TransactionAbortedError) as raised:
            delivery.result()
        assert raised.value.code == ErrorCode.INVALID_RECORD
    assert not flying.done
    core.refuse(batches[1], ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert flying.done, "what was in flight is not sent again"
    assert core.accumulator.memory.free_bytes == core.config.buffer_memory


def test_a_batch_that_is_too_old_fails_the_transaction() -> None:
    core = TransactionalCore(delivery_timeout_ms=30_000)
    delivery = core.accept(b"1")
    core.drain_one()
    core.wait(30_000)
    with pytest.raises(TransactionAbortedError) as raised:
        delivery.result()
    assert isinstance(raised.value.__cause__, TimedOutError)
    assert core.transactions.needs_new_epoch, "a broker may have it all the same"


def test_what_is_not_written_yet_ends_with_an_abort_whatever_becomes_of_it() -> None:
    core = TransactionalCore(partitions=2)
    sent, waits = core.accept(b"1", partition=0), core.accept(b"2", partition=1)
    core.lead(1, 2, 1)
    batch = core.drain_one()
    core.end(1)
    assert sent.done and waits.done
    core.deliver(batch)  # too late: it is nobody's
    core.accept(b"3", partition=0)
    assert parse_header(core.drain_one().data).base_sequence == 0


@pytest.mark.parametrize(
    ("code", "log_start_offset", "retried"),
    [
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, False),
        (ErrorCode.UNKNOWN_PRODUCER_ID, 5, False),
        (ErrorCode.UNKNOWN_PRODUCER_ID, -1, True),
        (ErrorCode.INVALID_PRODUCER_EPOCH, -1, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS, -1, True),
        (ErrorCode.CONCURRENT_TRANSACTIONS, -1, True),
    ],
)
def test_a_gap_ends_the_transaction_instead_of_raising_the_epoch(
    code: ErrorCode, log_start_offset: int, retried: bool
) -> None:
    core = TransactionalCore()
    core.accept(b"1")
    core.refuse(core.drain_one(), code, log_start_offset=log_start_offset)
    assert core.transactions.state is (S.OPEN if retried else S.FAILED)
    assert core.transactions.needs_new_epoch is not retried
    assert core.sequences.producer_epoch == 0
    if retried:
        core.wait(10_000)
        assert parse_header(core.drain_one().data).base_sequence == 0


def test_a_batch_behind_one_that_is_sent_again_waits_for_it() -> None:
    core = TransactionalCore()
    core.accept(b"0")
    core.deliver(core.drain_one())
    core.fill(2)
    first, second = core.drain_one(), core.drain_one()
    core.refuse(first, ErrorCode.NOT_ENOUGH_REPLICAS)
    core.refuse(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert core.transactions.state is S.OPEN
    core.wait(10_000)
    assert core.drain_one() is first


def test_the_end_of_the_transaction_before_is_waited_for_briefly() -> None:
    core = TransactionalCore(retry_backoff_ms=1000)
    core.accept(b"1")
    batch = core.drain_one()
    core.refuse(batch, ErrorCode.CONCURRENT_TRANSACTIONS)
    core.wait(10)
    assert core.drain_one() is batch


def test_a_new_log_keeps_the_epoch() -> None:
    core = TransactionalCore()
    core.accept(b"1")
    core.deliver(core.drain_one())
    core.sequences.on_new_log(core.queue().sequence)
    assert core.sequences.is_settled
    core.accept(b"2")
    assert parse_header(core.drain_one().data).producer_epoch == 0
