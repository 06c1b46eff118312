"""The producer's core: what is sent when, in which order, and what becomes of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kraftrio.clients.errors import (
    ClosedError,
    InvalidRecordError,
    RecordTooLargeError,
    TimedOutError,
)
from kraftrio.clients.producer.partitioner import partition_for_key
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.records.batch import parse_header
from tests.unit.clients.producer.producing import Core, records_of


def test_a_batch_lingers_until_it_is_due() -> None:
    """Records of one partition share a batch, which goes linger_ms after its first record."""
    core = Core(linger_ms=5)
    first = core.accept(b"a")
    assert core.poll() == core.now_ms + 5
    assert core.drain() == []
    core.wait(3)
    second = core.accept(b"b")
    assert core.wait(1.9) == core.now_ms + 0.1
    assert core.drain() == []
    core.wait(0.1)
    batch = core.drain_one()
    assert [record.value for record in records_of(batch)] == [b"a", b"b"]
    assert not first.done
    core.deliver(batch, 70)
    assert first.result() == ("orders", 0, 70, 5000)
    assert second.result().offset == 71


def test_a_full_batch_does_not_linger() -> None:
    """The record that does not fit opens the next batch; the full one goes at once, not larger
    than batch_size."""
    core = Core(linger_ms=1000, batch_size=1000)
    core.fill(batches=2)
    assert core.accumulator.schedule.wants_sender
    batch = core.drain_one()
    assert len(batch.data) <= 1000
    assert len(core.drain_one().data) <= 1000
    assert core.drain() == []
    core.wait(1000)
    assert core.drain_one().record_count == 1


def test_without_lingering_a_record_goes_at_once() -> None:
    """linger_ms=0: the first record is sent alone, what comes meanwhile together."""
    core = Core(linger_ms=0)
    core.accept(b"a")
    assert core.drain_one().record_count == 1
    core.accept(b"b")
    core.accept(b"c")
    assert core.drain_one().record_count == 2


def test_a_batch_that_waited_behind_another_lingers_from_its_own_first_record() -> None:
    """Once the full batch is gone, the open one behind it is due by its own age."""
    core = Core(linger_ms=50, batch_size=1000)
    core.fill(batches=1)
    core.wait(20)
    assert core.drain_one().record_count == 2
    assert core.drain() == []
    assert core.wait(29.9) == pytest.approx(core.now_ms + 0.1)
    core.wait(0.2)
    assert core.drain_one().record_count == 1


def test_everything_about_a_record_arrives() -> None:
    """Keys, nulls, headers and timestamps are in the bytes as they were given."""
    core = Core()
    core.accept(None, b"k", timestamp_ms=77, headers=(("h", b"1"), ("h", None)))
    core.accept(b"", b"", partition=0, timestamp_ms=12)
    core.accept(b"v", None, timestamp_ms=10**12)
    core.flush()
    assert [record[1:] for record in records_of(core.drain_one())] == [
        (77, b"k", None, (("h", b"1"), ("h", None))),
        (12, b"", b"", ()),
        (10**12, None, b"v", ()),
    ]


def test_sequences_count_records() -> None:
    """Each batch begins where the last one ended; partitions count for themselves."""
    core = Core(partitions=2, batch_size=1000)
    core.fill(batches=2, partition=0)
    core.fill(batches=1, partition=1)
    core.flush()
    seen: dict[Any, Any] = {}
    while batches := core.drain():
        for batch in batches:
            header = parse_header(batch.data)
            assert (header.producer_id, header.producer_epoch) == (4000, 0)
            seen.setdefault(batch.partition, []).append(
                (header.base_sequence, header.last_sequence)
            )
    assert seen == {0: [(0, 1), (2, 3), (4, 4)], 1: [(0, 1), (2, 2)]}


def test_a_request_has_one_batch_of_each_partition_and_a_size() -> None:
    """Requests stay below max_request_size; who had to wait comes first the next time."""
    core = Core(partitions=3, batch_size=1000, max_request_size=2100)
    for partition in range(3):
        core.fill(batches=2, partition=partition)
    order = []
    while batches := core.drain():
        assert sum(len(batch.data) for batch in batches) <= 2100
        order.append([batch.partition for batch in batches])
    assert order == [[0, 1], [2, 0], [1, 2]]


def test_without_a_producer_id_nothing_goes() -> None:
    """An idempotent producer sends nothing before it has its id."""
    core = Core(producer_id=None)
    core.accept(b"a")
    core.flush()
    assert core.drain() == []
    assert core.accumulator.sequences is not None
    core.accumulator.sequences.set_producer_id(9, 3)
    header = parse_header(core.drain_one().data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 0)


def test_a_producer_that_is_not_idempotent_needs_no_id() -> None:
    """Its batches carry no sequence."""
    core = Core(enable_idempotence=False)
    core.accept(b"a")
    core.flush()
    assert parse_header(core.drain_one().data).base_sequence == -1


# Partitions


def test_a_key_has_its_partition() -> None:
    """Records with a key go where the hash says, whatever happens elsewhere."""
    core = Core(partitions=12)
    for key in (b"a", b"b", b"", b"N14228"):
        assert core.accept(b"v", key).partition == partition_for_key(key, 12)


def test_records_without_a_key_stick_to_a_partition_for_a_batch() -> None:
    """One partition gets full batches of batch_size together, then another; over time all get the
    same."""
    core = Core(partitions=4, batch_size=1000)
    partitions = []
    for _ in range(4000):
        partitions.append(core.accept(b"x" * 90).partition)
        while core.accumulator.schedule.wants_sender:
            for batch in core.drain():
                core.deliver(batch)
            core.poll()
            core.accumulator.schedule.nodes()
    runs = [1]
    for before, after in pairwise(partitions):
        if before == after:
            runs[-1] += 1
        else:
            runs.append(1)
    assert set(runs[:-1]) <= {18, 36, 54, 72}  # 9 records of 90 B fill a batch of 1000
    shares = [partitions.count(partition) for partition in range(4)]
    assert max(shares) < 1.4 * min(shares)


def test_partitions_without_a_leader_are_left_out() -> None:
    """Records without a key avoid partitions that nobody leads, while there are others."""
    core = Core(partitions=3, batch_size=200)
    core.lead(1, -1, 1)
    assert {core.accept(b"x" * 90).partition for _ in range(200)} == {0, 2}


def test_slow_partitions_get_fewer_records() -> None:
    """What waits for a partition speaks against it (adaptive partitioning)."""
    core = Core(partitions=2, batch_size=500)
    core.lead(1, 2, 1)  # node 2 takes nothing
    counts = [0, 0]
    for _ in range(3000):
        counts[core.accept(b"x" * 90).partition] += 1
        if core.accumulator.schedule.wants_sender:
            for batch in core.drain(1):
                core.deliver(batch)
            core.accumulator.schedule.nodes()
    assert counts[0] > 5 * counts[1]


def test_keys_may_be_ignored() -> None:
    """partitioner_ignore_keys: a key does not decide."""
    core = Core(partitions=12, partitioner_ignore_keys=True)
    assert len({core.accept(b"v", b"%d" % index).partition for index in range(50)}) == 1


# Memory


def test_memory_is_bounded_and_comes_back() -> None:
    """A batch holds memory from its first record to its end; without memory nothing is taken."""
    core = Core(batch_size=1000, buffer_memory=3000)
    accepted = 0
    while core.send(b"x" * 400) is not None:
        accepted += 1
    assert accepted == 6
    assert core.accumulator.memory.free_bytes < 1000
    for _ in range(2):
        core.deliver(core.drain_one())
    core.flush()
    core.deliver(core.drain_one())
    assert core.accumulator.memory.free_bytes == 3000
    assert not core.accumulator.incomplete


def test_a_small_batch_gives_back_what_it_does_not_need() -> None:
    """Once a batch is sent it holds no more than its records take."""
    core = Core(batch_size=1000, buffer_memory=3000)
    core.accept(b"x" * 100)
    assert core.accumulator.memory.free_bytes == 2000
    core.flush()
    batch = core.drain_one()
    assert core.accumulator.memory.free_bytes > 2800
    core.deliver(batch)
    assert core.accumulator.memory.free_bytes == 3000


def test_who_waits_for_memory_ends_the_lingering() -> None:
    """While somebody waits, batches go as they are, and nobody overtakes."""
    core = Core(linger_ms=10_000, batch_size=1000, buffer_memory=2000)
    core.accept(b"x")
    core.accumulator.on_memory_waiters(1)
    assert not core.accumulator.memory.reserve(100)
    assert core.drain_one().record_count == 1
    assert core.accumulator.memory.grant(1500)
    core.accumulator.on_memory_waiters(0)
    assert not core.accumulator.memory.reserve(900)
    assert core.accumulator.memory.reserve(100)


@pytest.mark.parametrize("limit", ["max_request_size", "buffer_memory"])
def test_a_record_that_can_never_go_is_refused(limit: str) -> None:
    """The error names the limit; nothing is accepted."""
    settings: dict[str, Any] = {limit: 5000}
    core = Core(**settings)
    with pytest.raises(RecordTooLargeError, match=limit):
        core.send(b"x" * 5000)
    assert not core.accumulator.incomplete
    assert core.accept(b"x" * 4800).partition == 0


def test_compressible_records_make_larger_batches() -> None:
    """How well a topic's records compress decides how many go into a batch."""
    core = Core(batch_size=1000, compression_type="zstd", linger_ms=0)
    counts = []
    for _ in range(400):
        core.accept(b"the same again and again" * 4)
        for batch in core.drain():
            counts.append(batch.record_count)
            assert len(batch.data) <= 1000
            core.deliver(batch)
    core = Core(batch_size=1000, compression_type="zstd")
    for _ in range(3000):
        core.accept(b"the same again and again" * 4)
        for batch in core.drain():
            counts.append(batch.record_count)
            assert len(batch.data) <= 1000
            core.deliver(batch)
    assert counts[0] == 1
    assert max(counts) >= 50


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


def test_the_end_of_each_backoff_is_told_in_advance() -> None:
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
    """What was given up stays so, whatever the broker says later; the reason is told."""
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


def test_nothing_new_goes_while_it_is_not_known_what_was_written() -> None:
    """After a sent batch was given up, the next waits until those out are answered; if it was not
    written, the epoch rises and sequences begin anew."""
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


# Epochs


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


def test_a_broker_that_forgot_the_producer_is_told_a_new_epoch() -> None:
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


def test_what_may_be_written_already_is_not_numbered_anew() -> None:
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
    core.accumulator.abort(ClosedError("the end"))
    core.deliver(sent, 4)
    for delivery in deliveries:
        with pytest.raises(ClosedError, match="the end"):
            delivery.result()
    assert core.accumulator.memory.free_bytes == core.config.buffer_memory
    assert core.drain() == []
