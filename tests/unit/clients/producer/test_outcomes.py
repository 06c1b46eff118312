"""What becomes of batches: sent again and in order, split, given up."""

from __future__ import annotations

import pytest

from kraftrio.clients.errors import (
    ClosedError,
    InvalidRecordError,
    RecordTooLargeError,
    TimedOutError,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.records.batch import parse_header
from tests.unit.clients.producer.producing import Core, records_of

# Failures


def test_a_lost_batch_is_sent_again_after_a_backoff() -> None:
    """The same bytes, the same sequence; each time later than the time before."""
    core = Core(retry_backoff_ms=100, retry_backoff_max_ms=1000)
    delivery = core.accept(b"a")
    core.flush()
    batch = core.drain_one()
    data = bytes(batch.data)
    for low, high in ((80, 120), (160, 240), (320, 480), (640, 960), (800, 1200), (800, 1200)):
        core.refuse(batch, ErrorCode.NETWORK_EXCEPTION)
        core.wait(low - 1)
        assert core.drain() == []
        core.wait(high - low + 1)
        assert core.drain_one() is batch
        assert batch.data == data
    core.deliver(batch, 3)
    assert delivery.result().offset == 3


def test_the_end_of_each_backoff_is_known_in_advance() -> None:
    """Who polls right after a failure learns when to come back, for every batch in turn."""
    core = Core(batch_size=1000, linger_ms=0, retry_backoff_ms=100)
    core.fill(batches=3)
    sent = [core.drain_one() for _ in range(4)]
    for batch in sent:
        core.refuse(batch, ErrorCode.NETWORK_EXCEPTION)
    dues = sorted(batch.retry_at_ms for batch in sent)
    assert dues[0] > core.now_ms
    for due in dues:
        assert core.poll() == due
        core.wait(due - core.now_ms)


def test_a_new_leader_is_asked_at_once() -> None:
    """A backoff ends when the partition has another leader."""
    core = Core(retry_backoff_ms=1000)
    core.accept(b"a")
    core.flush()
    batch = core.drain_one()
    core.refuse(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert core.drain() == []
    core.lead(0, 2, 1)
    assert core.accumulator.schedule.nodes() == [2]
    assert core.drain_one(2) is batch


def test_order_is_kept_when_the_first_of_many_fails() -> None:
    """Those sent after it fail for their sequence; all are sent again, one at a time, in order."""
    core = Core(batch_size=1000)
    core.fill(batches=4)
    sent = [core.drain_one() for _ in range(4)]
    core.refuse(sent[0], ErrorCode.NOT_ENOUGH_REPLICAS)
    for batch in sent[1:]:
        core.refuse(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    again = []
    for _ in range(4):
        core.wait(1000)
        batch = core.drain_one()
        if batch is not sent[-1]:
            assert core.drain() == [], "the next one waits for the answer"
        again.append(batch)
        core.deliver(batch)
    assert again == sent
    assert [batch.producer_epoch for batch in sent] == [0, 0, 0, 0]


def test_with_one_request_at_a_time_order_needs_no_sequences() -> None:
    """max_in_flight_requests_per_connection=1: a partition has one batch out."""
    core = Core(batch_size=1000, enable_idempotence=False, max_in_flight_requests_per_connection=1)
    core.fill(batches=2)
    first = core.drain_one()
    assert core.drain() == []
    core.refuse(first, ErrorCode.NETWORK_EXCEPTION)
    core.wait(1000)
    assert core.drain_one() is first
    core.deliver(first)
    second = core.drain_one()
    assert second is not first


def test_an_error_that_stays_ends_the_batch() -> None:
    """The delivery raises the broker's error in its class; memory is free again."""
    core = Core()
    delivery = core.accept(b"a")
    core.flush()
    core.refuse(core.drain_one(), ErrorCode.INVALID_RECORD)
    with pytest.raises(InvalidRecordError) as raised:
        delivery.result()
    assert raised.value.code == ErrorCode.INVALID_RECORD
    assert not raised.value.retriable
    assert core.accumulator.memory.free_bytes == core.config.buffer_memory


def test_retries_end() -> None:
    """With retries=1 the second failure is the last."""
    core = Core(retries=1)
    delivery = core.accept(b"a")
    core.flush()
    core.refuse(core.drain_one(), ErrorCode.NETWORK_EXCEPTION)
    core.wait(1000)
    core.refuse(core.drain_one(), ErrorCode.NETWORK_EXCEPTION)
    assert delivery.done


def test_a_batch_that_was_written_long_ago_counts_as_delivered() -> None:
    """DUPLICATE_SEQUENCE_NUMBER: the broker has it, but no longer knows where."""
    core = Core()
    delivery = core.accept(b"a")
    core.flush()
    core.refuse(core.drain_one(), ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert delivery.result().offset == -1


# Time


def test_what_waits_too_long_is_given_up() -> None:
    """delivery_timeout_ms counts from the first record, also when no leader is known."""
    core = Core(delivery_timeout_ms=40_000)
    core.lead(0, -1, 1)
    delivery = core.accept(b"a")
    assert core.wait(10_000) == 41_000.0
    assert core.accumulator.wants_metadata
    core.wait(29_999)
    assert not delivery.done
    core.wait(1)
    with pytest.raises(TimedOutError, match=r"orders-0 were not written within 40000 ms"):
        delivery.result()
    assert core.accumulator.memory.free_bytes == core.config.buffer_memory


def test_a_late_answer_is_ignored() -> None:
    """What was given up stays so, whatever the broker says later; the reason is kept."""
    core = Core(delivery_timeout_ms=40_000)
    delivery = core.accept(b"a")
    core.flush()
    core.refuse(core.drain_one(), ErrorCode.NOT_ENOUGH_REPLICAS)
    core.wait(1000)
    batch = core.drain_one()
    core.wait(40_000)
    assert delivery.done
    core.deliver(batch, 5)
    with pytest.raises(TimedOutError, match="fewer in-sync replicas"):
        delivery.result()


# Epochs


def test_nothing_new_goes_while_it_is_not_known_what_was_written() -> None:
    """After a sent batch was given up, the next waits until those out are answered; if it was not
    written, the epoch rises and sequences begin again."""
    core = Core(batch_size=1000, delivery_timeout_ms=40_000)
    core.accept(b"lost")
    core.flush()
    lost = core.drain_one()
    core.wait(39_990)
    core.fill(batches=2)
    out = core.drain_one()
    core.wait(20)
    assert lost.is_done
    assert core.drain() == []
    core.refuse(out, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    core.wait(2000)
    again = core.drain_one()
    assert again is out
    header = parse_header(again.data)
    assert (header.producer_epoch, header.base_sequence) == (1, 0)
    core.deliver(again)
    assert parse_header(core.drain_one().data).base_sequence == again.record_count


def test_if_a_lost_batch_turns_out_to_be_written_all_goes_on() -> None:
    """The one sent after it was accepted: nothing is missing, and the epoch stays."""
    core = Core(batch_size=1000, delivery_timeout_ms=40_000)
    core.accept(b"lost")
    core.flush()
    core.drain_one()
    core.wait(39_990)
    core.fill(batches=2)
    out = core.drain_one()
    core.wait(20)
    core.deliver(out)
    header = parse_header(core.drain_one().data)
    assert (header.producer_epoch, header.base_sequence) == (0, 3)


def test_a_refused_batch_leaves_no_gap() -> None:
    """Its sequences were never used: the epoch rises, and those sent after it begin at 0."""
    core = Core(batch_size=1000)
    core.fill(batches=3)
    first, second, third = (core.drain_one() for _ in range(3))
    core.refuse(first, ErrorCode.INVALID_RECORD)
    core.refuse(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    core.refuse(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    core.wait(1000)
    assert core.drain_one() is second
    assert parse_header(second.data).base_sequence == 0
    assert parse_header(second.data).producer_epoch == 1
    core.deliver(second)
    core.wait(1000)
    assert core.drain_one() is third
    assert parse_header(third.data).base_sequence == 2


def test_other_partitions_take_the_new_epoch_once_they_are_quiet() -> None:
    """Their batches that are out keep the old epoch; new ones wait for them, then begin at 0."""
    core = Core(partitions=2, batch_size=1000)
    core.fill(batches=1, partition=0)
    refused = core.drain_one()
    core.fill(batches=2, partition=1)
    out = core.drain_one()
    core.refuse(refused, ErrorCode.INVALID_RECORD)
    assert [batch.partition for batch in core.drain()] == []
    core.deliver(out)
    header = parse_header(core.drain_one().data)
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


def test_a_broker_that_forgot_the_producer_gets_a_new_epoch() -> None:
    """UNKNOWN_PRODUCER_ID: its records are gone, so the batch begins a new epoch."""
    core = Core()
    core.accept(b"a")
    core.flush()
    batch = core.drain_one()
    core.refuse(batch, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset=100)
    core.wait(1000)
    assert core.drain_one() is batch
    assert parse_header(batch.data).producer_epoch == 1


def test_after_the_last_epoch_a_new_id_is_needed() -> None:
    """Epochs end at 32767; then the producer asks for another id."""
    core = Core(producer_id=None)
    sequences = core.accumulator.sequences
    assert sequences is not None
    sequences.set_producer_id(1, 0x7FFF)
    core.accept(b"a")
    core.flush()
    batch = core.drain_one()
    core.refuse(batch, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset=100)
    core.wait(1000)
    assert sequences.needs_producer_id
    assert core.drain() == []
    sequences.set_producer_id(2, 0)
    assert core.drain_one() is batch
    header = parse_header(batch.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2, 0, 0)


def test_the_first_batch_of_an_epoch_goes_alone() -> None:
    """A broker that does not know the producer would take the second batch without the first."""
    core = Core(fresh=True, batch_size=1000)
    core.fill(batches=3)
    first = core.drain_one()
    assert core.drain() == []
    core.refuse(first, ErrorCode.NETWORK_EXCEPTION)
    core.wait(1000)
    assert core.drain_one() is first
    assert core.drain() == []
    core.deliver(first)
    assert len([core.drain_one() for _ in range(2)]) == 2


def test_what_may_be_written_already_keeps_its_numbers() -> None:
    """A batch before the gap was perhaps written: it is asked for with its old sequence, and only
    then do those after the gap begin the new epoch."""
    core = Core(batch_size=1000)
    core.fill(batches=3)
    first, second, third = (core.drain_one() for _ in range(3))
    core.refuse(first, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    core.refuse(second, ErrorCode.INVALID_RECORD)
    core.refuse(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    core.wait(1000)
    assert core.drain_one() is first
    assert (first.producer_epoch, first.base_sequence) == (0, 0)
    core.wait(1000)
    assert core.drain() == []
    core.deliver(first)
    assert core.drain_one() is third
    header = parse_header(third.data)
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


# Batches that are too large


def test_a_batch_that_is_too_large_is_split() -> None:
    """Its parts go in its place, with its sequences; every record finds its offset."""
    core = Core(batch_size=1000, compression_type="gzip")
    deliveries = [core.accept(b"%03d" % index * 30) for index in range(8)]
    core.flush()
    whole = core.drain_one()
    later = core.accept(b"later")
    core.flush()
    core.refuse(whole, ErrorCode.MESSAGE_TOO_LARGE)
    offset = 10
    values = []
    sequence = 0
    while not all(delivery.done for delivery in deliveries):
        part = core.drain_one()
        assert part.base_sequence == sequence
        sequence += part.record_count
        values += [record.value for record in records_of(part)]
        core.deliver(part, offset)
        offset += part.record_count
    assert values == [b"%03d" % index * 30 for index in range(8)]
    assert [delivery.result().offset for delivery in deliveries] == list(range(10, 18))
    last = core.drain_one()
    assert last.base_sequence == 8
    core.deliver(last, offset)
    assert later.result().offset == 18
    assert core.accumulator.memory.free_bytes == core.config.buffer_memory


def test_splitting_ends_at_one_record() -> None:
    """A record that is too large by itself fails; its neighbours arrive, in a new epoch."""
    core = Core(batch_size=10_000)
    deliveries = [core.accept(value) for value in (b"a", b"x" * 5000, b"b")]
    core.flush()
    for _ in range(20):
        core.wait(1000)
        for batch in core.drain():
            if any(record.value == b"x" * 5000 for record in records_of(batch)):
                core.refuse(batch, ErrorCode.MESSAGE_TOO_LARGE)
            else:
                core.deliver(batch)
    assert [delivery.done for delivery in deliveries] == [True, True, True]
    with pytest.raises(RecordTooLargeError):
        deliveries[1].result()
    assert deliveries[2].result().partition == 0
    assert core.accumulator.memory.free_bytes == core.config.buffer_memory


def test_the_parts_of_a_batch_expire_with_its_age() -> None:
    """Splitting makes nothing younger."""
    core = Core(batch_size=1000, delivery_timeout_ms=40_000)
    deliveries = [core.accept(b"x" * 300) for _ in range(3)]
    core.flush()
    whole = core.drain_one()
    core.wait(30_000)
    core.accept(b"y" * 700)
    core.refuse(whole, ErrorCode.MESSAGE_TOO_LARGE)
    core.wait(10_000)
    assert all(delivery.done for delivery in deliveries)


# The end


def test_aborting_ends_everything_once() -> None:
    """Waiting, sent and open batches fail with the error given; later answers change nothing."""
    core = Core(batch_size=1000)
    deliveries = core.fill(batches=2)
    sent = core.drain_one()
    core.accumulator.outcomes.abort(ClosedError("the end"))
    core.deliver(sent, 4)
    for delivery in deliveries:
        with pytest.raises(ClosedError, match="the end"):
            delivery.result()
    assert core.accumulator.memory.free_bytes == core.config.buffer_memory
    assert core.drain() == []
