"""Verification of transactions before their first batch: guards, and what they let in (KIP-890)."""

from __future__ import annotations

import pytest

from kraftrio.broker.log.producers.producer_state import Duplicate
from kraftrio.broker.log.producers.verifications import ONGOING, VerificationGuard
from kraftrio.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.log.producers.producer_context import T0, Partition


@pytest.fixture
def partition() -> Partition:
    return Partition()


def start(
    partition: Partition, sequence: int = 0, epoch: int = 0, *, adds: bool = True
) -> VerificationGuard:
    return partition.state.start_verification(1, epoch, sequence, T0, adds_partition=adds)


def test_a_first_batch_needs_the_guard_of_its_verification(partition: Partition) -> None:
    guard = start(partition)
    assert start(partition) is guard, "a retry waits for the same one"
    assert partition.refused(0, txn=True, guard=ONGOING) is ErrorCode.INVALID_TXN_STATE
    assert partition.refused(0, txn=True, guard=VerificationGuard()) is ErrorCode.INVALID_TXN_STATE
    assert partition.send(0, txn=True, guard=guard) == 0
    assert start(partition, sequence=1) is ONGOING
    assert partition.send(1, txn=True, guard=ONGOING) == 1
    assert partition.send(1, txn=True, guard=VerificationGuard()) == Duplicate(1, 1, T0)


def test_what_was_verified_before_a_marker_is_not_appended_after_it(partition: Partition) -> None:
    """Nobody would end what it began (KIP-890), also if the next transaction was verified since."""
    for epoch in (0, 1):  # that of the transaction, or one more, as its coordinator writes markers
        guard = start(partition, epoch=epoch)
        partition.end(commit=False, epoch=epoch)
        refused = partition.refused(0, txn=True, epoch=epoch, guard=guard)
        assert refused is ErrorCode.INVALID_TXN_STATE
        assert start(partition, epoch=epoch) is not guard
        refused = partition.refused(0, txn=True, epoch=epoch, guard=guard)
        assert refused is ErrorCode.INVALID_TXN_STATE
    assert partition.state.first_unstable_offset is None


def test_an_open_transaction_that_ended_meanwhile(partition: Partition) -> None:
    """A batch that needed no verification waited for one of another partition."""
    partition.send(0, txn=True)
    assert start(partition, sequence=1, adds=False) is ONGOING
    partition.end()
    refused = partition.refused(1, txn=True, guard=ONGOING)
    assert refused is ErrorCode.INVALID_TXN_STATE


def test_no_verification_for_a_fenced_producer(partition: Partition) -> None:
    partition.end(epoch=3)
    with pytest.raises(KafkaError) as caught:
        start(partition, epoch=2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_do_not_overtake_what_is_to_be_verified(partition: Partition) -> None:
    """The first batch failed its verification for a while; the next one must not go before it."""
    first = start(partition, sequence=5, adds=False)
    start(partition, sequence=3, adds=False)
    guard = start(partition, sequence=6, adds=False)
    assert guard is first
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refused(6, txn=True, guard=guard) is out_of_order
    assert partition.refused(5, 3, txn=True, guard=guard) is out_of_order
    start(partition, sequence=8, epoch=1, adds=False)  # another transaction, after a time-out
    assert partition.refused(9, txn=True, epoch=1, guard=guard) is out_of_order
    assert partition.send(8, txn=True, epoch=1, guard=guard) == 0
    assert partition.send(9, txn=True, epoch=1) == 1


def test_partitions_that_are_added_by_producing_begin_with_sequence_0(partition: Partition) -> None:
    """Each transaction has an epoch of its own, so nothing that was deleted can precede it."""
    guard = start(partition, sequence=4)
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refused(4, txn=True, guard=guard) is out_of_order
    start(partition, sequence=0)
    assert partition.send(0, txn=True, guard=guard) == 0


def test_unused_verifications_expire() -> None:
    partition = Partition(expiration_ms=1000)
    guard = start(partition)
    partition.state.expire(T0 + 999)
    assert start(partition) is guard
    partition.state.expire(T0 + 1000)
    assert start(partition) is not guard
